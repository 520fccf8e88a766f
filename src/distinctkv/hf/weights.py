"""By which weights a model is known: some numbers of every parameter."""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

NUMBERS = 64  # of each parameter: a change of low rank, or of scale, is in nearly all of them
GOLDEN = (5**0.5 - 1) / 2  # steps of this part of a matrix fall on rows and columns alike
# How far rounding to a type moves a number, as a part of it; numbers are compared in float32.
ROUNDING = {"float64": 2.0**-24, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = 2.0**-24  # what float16 knows above 0

Sample = dict[str, list[str]]  # by the name of a parameter: its type, and numbers as text


def sample(model: nn.Module) -> Sample:
    """Numbers of every parameter, the same on every device.

    What cannot be read here has none: weights that were offloaded or quantised, or that are spread
    over several devices.
    """
    named = {n.replace("_orig_mod.", ""): weight for n, weight in model.named_parameters()}
    picked: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for weight in filter(_readable, named.values()):
        found = weight.detach().take(_picks(weight.numel(), weight.device))
        picked.setdefault((weight.device, weight.dtype), []).append(found)
    # Each device is waited for once, or once for each type.
    read = {
        place: iter(torch.stack(parts).float().cpu().numpy()) for place, parts in picked.items()
    }
    return {
        name: [
            str(weight.dtype).split(".")[1],
            _text(next(read[weight.device, weight.dtype])) if _readable(weight) else "",
        ]
        for name, weight in named.items()
    }


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
    return type(weight) is nn.Parameter and not weight.is_meta and weight.numel() > 0


@cache
def _picks(size: int, device: torch.device) -> Tensor:
    steps = np.arange(1, NUMBERS + 1) * GOLDEN % 1.0
    return torch.from_numpy((steps * size).astype(np.int64)).to(device)


def _text(numbers: NDArray[Any]) -> str:
    return b64encode(numbers.astype("<f4").tobytes()).decode()


def _numbers(text: str) -> NDArray[Any]:
    return np.frombuffer(b64decode(text), "<f4")
