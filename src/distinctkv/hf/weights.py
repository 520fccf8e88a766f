"""By which weights a model is known: some numbers of every parameter."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .. import kernels

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
