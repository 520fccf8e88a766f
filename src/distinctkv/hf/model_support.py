"""What a cache must know of a model: its attention modules, sizes, rotation and weights."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import kernels
from .config import UnsupportedModelError, WrongModelError
from .rotary import Belonging, Rotary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


NUMBERS = 64  # of each parameter: a change of low rank, or of scale, is in nearly all of them
GOLDEN = (5**0.5 - 1) / 2  # steps of this part of a matrix fall on rows and columns alike
# How far rounding to a type moves a number, as a part of it; numbers are compared in float32.
ROUNDING = {"float64": 2.0**-24, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = 2.0**-24  # what float16 knows above 0

WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Sample = dict[str, list[str]]  # by the name of a parameter: its type, and numbers as text
Place = tuple[torch.device, torch.dtype]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Numbers of every parameter as they were, still where the weights are."""

    places: dict[str, tuple[Place, bool]]  # by the name of a parameter, and whether it was read
    numbers: dict[Place, Tensor]  # (parameters, NUMBERS)

    def __deepcopy__(self, memo: object) -> Look:
        """Shared by all copies of a cache: it never changes."""
        return self

    def text(self) -> Sample:
        """The same on every device; each is waited for once, or once for each type."""
        rows = {place: iter(part.float().cpu().numpy()) for place, part in self.numbers.items()}
        return {
            name: [str(place[1]).split(".")[1], _text(next(rows[place])) if read else ""]
            for name, (place, read) in self.places.items()
        }


def look(model: nn.Module) -> Look:
    """Numbers of every parameter as they are now; no device is waited for.

    What cannot be read here has none: weights that were offloaded or quantised, or that are spread
    over several devices.
    """
    places: dict[str, tuple[Place, bool]] = {}
    found: dict[Place, list[Tensor]] = {}
    for name, weight in model.named_parameters():
        place, read = (weight.device, weight.dtype), _readable(weight)
        places[name.replace("_orig_mod.", "")] = place, read
        if read:
            found.setdefault(place, []).append(weight.detach())
    return Look(places, {place: _picked(weights) for place, weights in found.items()})


def sample(model: nn.Module) -> Sample:
    """What a `look` at a model finds, as text."""
    return look(model).text()


def difference(made_for: Sample, model: Sample) -> str | None:
    """A parameter in which two models differ, as far as both could be read."""
    for name in sorted(made_for.keys() | model.keys()):
        if name not in made_for or name not in model:
            return name
        (kind, text), (other, numbers) = made_for[name], model[name]
        if text and numbers and not _same(kind, _numbers(text), other, _numbers(numbers)):
            return name
    return None


def _same(kind: str, a: NDArray[Any], other: str, b: NDArray[Any]) -> bool:
    """Whether numbers are equal, or as near as two types can bring the same number."""
    if kind == other:
        return bool(np.array_equal(a, b, equal_nan=True))
    if kind not in ROUNDING or other not in ROUNDING:
        return False
    near = (ROUNDING[kind] + ROUNDING[other]) * np.maximum(np.abs(a), np.abs(b))
    smallest = SMALLEST if "float16" in (kind, other) else 0.0
    return bool((np.abs(a - b) <= near + smallest).all())


def _readable(weight: Tensor) -> bool:
    # A quantised parameter, or one that is spread out, is of a class of its own.
    known = weight.dtype.is_floating_point or weight.dtype in WHOLE
    return type(weight) is nn.Parameter and known and not weight.is_meta and weight.numel() > 0


def _bits(weight: Tensor) -> Tensor:
    """The weight; of floats of one byte, which cannot be picked from, the bytes."""
    small = weight.dtype.is_floating_point and weight.dtype.itemsize == 1
    return weight.view(torch.uint8) if small else weight


def _picked(weights: list[Tensor]) -> Tensor:
    """Numbers of weights of one type in one place, (parameters, NUMBERS)."""
    device = weights[0].device
    if kernels.available(*weights):
        from ..kernels import fingerprint

        if all(map(fingerprint.takes, weights)):
            marks = tuple((weight.data_ptr(), weight.numel()) for weight in weights)
            with torch.cuda.device(device):
                return fingerprint.pick(*_table(marks, device), weights[0].dtype)
    picked = [_bits(one).take(_picks(one.numel(), device)) for one in weights]
    return torch.stack(picked)


@lru_cache(maxsize=8)
def _table(marks: tuple[tuple[int, int], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Where parameters begin, and which numbers of each are read: right wherever they are."""
    begins = torch.tensor([begin for begin, _ in marks], device=device)
    return begins, torch.stack([_picks(size, device) for _, size in marks])


@cache
def _picks(size: int, device: torch.device) -> Tensor:
    steps = np.arange(1, NUMBERS + 1) * GOLDEN % 1.0
    return torch.from_numpy((steps * size).astype(np.int64)).to(device)


def _text(numbers: NDArray[Any]) -> str:
    return b64encode(numbers.astype("<f4").tobytes()).decode()


def _numbers(text: str) -> NDArray[Any]:
    return np.frombuffer(b64decode(text), "<f4")


# Each has a test from a tiny random configuration: keys rotated by halves, full attention.
KNOWN = ("gemma", "llama", "mistral", "phi3", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy(Belonging):
    """A model's attention modules in order, its rotary settings, and its sizes by name."""

    model: nn.Module  # without its head
    attentions: tuple[nn.Module, ...]
    rotary: Rotary
    config: Any
    sizes: dict[str, Any]

    @property
    def heads(self) -> int:
        """Key-value heads of each layer."""
        return int(self.sizes["kv_heads"])

    @property
    def identity(self) -> dict[str, Any]:
        """Marks by which to know the model, as JSON: its sizes, and its weights as they are now."""
        return {**self.sizes, "weights": self.look().text()}

    def look(self) -> Look:
        """Marks of the weights as they are now; no device is waited for."""
        return look(self.model)

    def device(self, layer: int) -> torch.device:
        """Where a layer computes its keys, also if its weights come there only for that."""
        attention = self.attentions[layer]
        weight = next(attention.parameters(), None)  # packed weights are no parameters
        if weight is not None and not weight.is_meta:
            return weight.device
        hooks = (getattr(part, "_hf_hook", None) for part in attention.modules())
        named = (getattr(hook, "execution_device", None) for hook in hooks)
        found = next((device for device in named if device is not None), None)
        return self.rotary.frequencies.device if found is None else torch.device(found)

    @classmethod
    def of(cls, model: PreTrainedModel) -> Anatomy:
        """The parts of a model, or an error that says why it will not do."""
        from transformers import PreTrainedModel

        if not isinstance(model, PreTrainedModel):
            raise TypeError(
                f"model must be a transformers.PreTrainedModel, got {type(model).__name__}; "
                "of a wrapped model give the one inside"
            )
        config = model.config
        _check_attention(config)
        attentions, rotaries = {}, []
        for module in model.modules():
            # Modules look long for what they do not have.
            index = vars(module).get("layer_idx")
            if isinstance(index, int) and hasattr(module, "scaling"):
                attentions[index] = module
            if "inv_freq" in module._buffers:
                rotaries.append(module)
        n_layers = config.num_hidden_layers
        if sorted(attentions) != list(range(n_layers)) or len(rotaries) != 1:
            raise UnsupportedModelError(
                f"{type(model).__name__} has {len(attentions)} attention layers of {n_layers} and "
                f"{len(rotaries)} rotary modules where 1 is needed; use a DynamicCache for it"
            )
        ordered = tuple(attentions[index] for index in range(n_layers))
        check_causal(config, *ordered)
        return cls(model.base_model, ordered, Rotary(rotaries[0]), config, _sizes(config))


def same_model(made_for: dict[str, Any], model: dict[str, Any], what: str, way_out: str) -> None:
    """Refuse what was made for a model with another shape or other weights."""
    for name, value in model.items():
        if name != "weights" and made_for.get(name) != value:
            raise WrongModelError(
                f"this {what} is for a model with {name} = {made_for.get(name)!r}, "
                f"the model has {value!r}; {way_out}"
            )
    if "weights" not in made_for:
        raise WrongModelError(
            f"this {what} does not say for which weights it was made: an early version wrote it; "
            "make it anew"
        )
    where = difference(made_for["weights"], model["weights"])
    if where is not None:
        raise WrongModelError(
            f"this {what} is for a model of this shape with other weights: {where} differs (a "
            f"model that was trained on, or has an adapter, is another one); {way_out}"
        )


def check_causal(config: Any, *attentions: nn.Module) -> None:  # noqa: ANN401
    """Refuse a model whose tokens see those after them, which may be slots by then."""
    both_ways = not getattr(config, "is_causal", True)
    both_ways |= bool(getattr(config, "use_bidirectional_attention", False))
    if both_ways or not all(getattr(module, "is_causal", True) for module in attentions):
        raise UnsupportedModelError(
            "attention is not causal (config.is_causal, config.use_bidirectional_attention or "
            "is_causal of a layer says so): tokens see those after them; use a DynamicCache for it"
        )


def _check_attention(config: Any) -> None:  # noqa: ANN401 - configurations share no class
    kind = getattr(config, "model_type", None)
    if kind not in KNOWN:
        raise UnsupportedModelError(
            f"model type {kind!r} is not one this cache was tested with ({', '.join(KNOWN)}); "
            "use a DynamicCache for it"
        )
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UnsupportedModelError(
            f"layers of type {sorted(kinds - {'full_attention'})} have a cache of their own; "
            "only models with full attention in every layer can merge"
        )
    window = getattr(config, "sliding_window", None)
    if window is not None:
        raise UnsupportedModelError(
            f"sliding_window is {window}: tokens beyond it must be forgotten, slots remember; "
            "if the model was trained without a window, set config.sliding_window to None"
        )


def _sizes(config: Any) -> dict[str, Any]:  # noqa: ANN401
    heads = config.num_attention_heads
    return {
        "model_type": config.model_type,
        "layers": config.num_hidden_layers,
        "heads": heads,
        "kv_heads": getattr(config, "num_key_value_heads", None) or heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // heads,
        "vocabulary": config.vocab_size,
    }
