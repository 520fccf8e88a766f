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
from .config import CacheConfig, PositionError
from .inputs import Batch
from .metric import Metric
from .model_support import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .cache import DistinctCache

KIND = "language model cache"


def save(cache: DistinctCache, path: str | os.PathLike[str]) -> None:
    """Write a cache to a safetensors file with a digest, atomically."""
    tensors: dict[str, Tensor] = {}
    for index, layer in enumerate(cache.layers):
        layer.compact()
        tensors |= {f"{index}.{name}": part for name, part in layer.tensors().items()}
    if cache.batch is not None and cache.frequencies is not None:
        tensors |= {"padding": cache.batch.padding, "last": cache.batch.last}
        tensors["frequencies"] = cache.frequencies
    if cache.metric is not None:
        tensors |= {"factors": cache.metric.factors, "sizes": cache.metric.sizes}
    state = {
        "model": cache.spec.identity,
        "notes": cache.notes,
        "config": cache.config.state(),
        "seq_length": cache.get_seq_length(),
        "rotary_scaling": cache.spec.rotary.scaling,
        "trace": cache.layers[0].trace,
        "scaling": [layer.scaling for layer in cache.layers],
        "thresholds": cache.budget.thresholds,
        "dtypes": {name: str(tensor.dtype).split(".")[1] for name, tensor in tensors.items()},
    }
    snapshot.save(path, KIND, {name: _array(tensor) for name, tensor in tensors.items()}, state)


def load(path: str | os.PathLike[str], model: PreTrainedModel) -> DistinctCache:
    """Read a cache back for the model it was made with; a digest is checked."""
    from .cache import DistinctCache

    arrays, state = snapshot.load(path, KIND)
    spec = ModelSpec.of(model)
    spec.check_same(state["model"], "saved cache", "load it with the model it was made with")
    tensors = {name: _tensor(array, state["dtypes"][name]) for name, array in arrays.items()}
    metric = None
    if "factors" in tensors:
        metric = Metric(tensors["factors"], tensors["sizes"], state["model"])
    cache = DistinctCache(
        spec, CacheConfig.from_state(state["config"]), metric, trace=state["trace"]
    )
    for index, layer in enumerate(cache.layers):
        device, prefix = spec.device(index), f"{index}."
        mine = {
            name.removeprefix(prefix): tensor.to(device)
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        layer.restore(mine, state["seq_length"], state["scaling"][index])
    if "padding" in tensors:
        cache.batch = Batch(state["seq_length"], tensors["padding"], tensors["last"])
        known = tensors["frequencies"].to(spec.rotary.frequencies.device)
        # If the model's own change with the text, its next pass checks them.
        cache.fix_frequencies(known if spec.rotary.is_dynamic else spec.rotary.check(known))
        if state["rotary_scaling"] != spec.rotary.scaling:
            raise PositionError(
                f"attention_factor was {state['rotary_scaling']} when these keys were rotated, the "
                f"model has {spec.rotary.scaling}; use the model with its old rope settings"
            )
    cache.notes = state["notes"]
    cache.budget.restore(state["thresholds"])
    prepare(model)
    return cache


def _array(tensor: Tensor) -> NDArray[Any]:
    """The elements of a tensor; of bfloat16, which NumPy lacks, the bits."""
    tensor = tensor.detach().cpu().contiguous()
    bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return np.asarray(bits.numpy())


def _tensor(array: NDArray[Any], dtype: str) -> Tensor:
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
