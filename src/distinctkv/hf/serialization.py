"""A cache in a safetensors file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .. import snapshot
from .attention import prepare
from .config import Plan, PositionError
from .inputs import Streams
from .layer import DistinctLayer
from .metric import Metric, Moments
from .model_support import Anatomy, same_model
from .slots import FLAT, Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .cache import DistinctCache


KIND = "language model cache"
WINDOW = ("keys", "values", "positions", "real", "got", "owner", "measured")
MOMENTS = ("queries", "values", "count")


def save(cache: DistinctCache, path: str | os.PathLike[str]) -> None:
    """Write a cache to a safetensors file with a digest, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    for index, layer in enumerate(cache.layers):
        tensors |= {f"{index}.{name}": part for name, part in held(layer).items()}
    if cache.streams is not None and cache.frequencies is not None:
        tensors |= {"pads": cache.streams.pads, "last": cache.streams.last}
        tensors["frequencies"] = cache.frequencies
    if cache.metric is not None:
        tensors |= {"factors": cache.metric.factors, "sizes": cache.metric.sizes}
    state = {
        "model": cache.identity,
        "notes": cache.notes,
        "plan": cache.plan.state(),
        "seen": cache.get_seq_length(),
        "stretch": cache.anatomy.rotary.stretch,
        "trace": cache.layers[0].trace,
        "scaling": [layer.scaling for layer in cache.layers],
        "thresholds": cache.sizing.thresholds,
        "temperatures": cache.sizing.temperatures,
        "types": {name: str(tensor.dtype).split(".")[1] for name, tensor in tensors.items()},
    }
    snapshot.save(path, KIND, {name: _array(tensor) for name, tensor in tensors.items()}, state)


def load(path: str | os.PathLike[str], model: PreTrainedModel) -> DistinctCache:
    """Read a cache back for the model it was made with; every byte is checked."""
    from .cache import DistinctCache

    arrays, state = snapshot.load(path, KIND)
    anatomy = Anatomy.of(model)
    identity = anatomy.identity
    same_model(state["model"], identity, "saved cache", "load it with the model it was for")
    tensors = {name: _tensor(array, state["types"][name]) for name, array in arrays.items()}
    metric = None
    if "factors" in tensors:
        metric = Metric(tensors["factors"], tensors["sizes"], identity)
    cache = DistinctCache(anatomy, Plan.of(state["plan"]), metric, trace=state["trace"])
    for index, layer in enumerate(cache.layers):
        device = anatomy.device(index)
        prefix = f"{index}."
        mine = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
        _fill(layer, {name: part.to(device) for name, part in mine.items()}, state["seen"])
        layer.scaling = state["scaling"][index]
    if "pads" in tensors:
        device = cache.layers[0].keys.device
        pads, last = tensors["pads"].to(device), tensors["last"].to(device)
        cache.streams = Streams(state["seen"], pads, last)
        cache.turn_at(_frequencies(tensors["frequencies"], anatomy))
        _check_stretch(state, anatomy)
    cache.made_by = state["model"]["weights"]
    cache.notes = state.get("notes", {})
    cache.sizing.thresholds = state["thresholds"]
    cache.sizing.temperatures = state["temperatures"]
    prepare(model)
    return cache


def _frequencies(known: Tensor, anatomy: Anatomy) -> Tensor:
    """Those that were saved; where the model's own move, its next pass tells whether they fit."""
    rotary = anatomy.rotary
    known = known.to(rotary.frequencies.device)
    return known if rotary.moves else rotary.check(known)


def _check_stretch(state: dict[str, Any], anatomy: Anatomy) -> None:
    """Refuse keys that were multiplied by another number as they were turned."""
    now = anatomy.rotary.stretch
    then = state.get("stretch", now)  # files from before it was written down
    if then != now:
        raise PositionError(
            f"attention_factor was {then} when these keys were turned, the model has {now}; use "
            "the model with its old rope settings, or give the context again"
        )


def held(layer: DistinctLayer) -> dict[str, Tensor]:
    """Every tensor that a layer holds, by name."""
    found = {name: getattr(layer, name) for name in WINDOW}
    if layer.slots is not None:
        found |= {f"slots.{name}": getattr(layer.slots, name) for name in (*FLAT, "lengths")}
    if layer.moments is not None:
        found |= {f"moments.{name}": getattr(layer.moments, name) for name in MOMENTS}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _fill(layer: DistinctLayer, parts: dict[str, Tensor], seen: int) -> None:
    if "keys" not in parts:
        return
    layer.hold(parts["keys"], parts["values"])
    layer.seen = seen
    for name in WINDOW[2:]:
        setattr(layer, name, parts.get(name))
    if "slots.keys" in parts:
        # Files from before values could be meant by attention have no such thing.
        parts.setdefault("slots.got", torch.zeros(0, device=layer.device))
        flat = {name: parts[f"slots.{name}"] for name in FLAT}
        layer.slots = Slots(**flat, lengths=parts["slots.lengths"].cpu())
    if "moments.count" in parts:
        layer.moments = Moments(*(parts[f"moments.{name}"] for name in MOMENTS))


def _array(tensor: Tensor) -> NDArray[Any]:
    """The numbers of a tensor; NumPy has no bfloat16, so its bits."""
    tensor = tensor.detach().cpu().contiguous()
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return np.asarray(bits.numpy())


def _tensor(array: NDArray[Any], kind: str) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if kind == "bfloat16" else tensor
