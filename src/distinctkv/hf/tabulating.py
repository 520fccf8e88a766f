"""Features of tokens and slots as the halves that `routing` compares, made by two kernels."""

# N heads of all layers and streams, L the most rows of a head
# D key size, C value size, F = D + C

# ruff: noqa: ANN001, ANN202
# mypy: ignore-errors

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
from torch import Tensor

from .featuring import feature, survey
from .routing import TOP, Table

if TYPE_CHECKING:
    from .metric import Scale
    from .rotary import Rotary
    from .slots import Slots

ROWS, ROWS_WIDE, WARPS = 64, 32, 4  # of features at a time, fewer of more than 64 numbers
SPAN, STEP = 512, 16  # rows of a survey, and at a time


class Rows(NamedTuple):
    """Slots, or tokens as slots of one, and which of them may be joined: (N, L)."""

    slots: Slots
    there: Tensor


def tabulate(
    tokens: Rows, slots: Rows | None, scale: Scale, rotary: Rotary, horizon: float | None
) -> tuple[Table, Tensor]:
    """The table of tokens and of the slots before them, and whether a token is not finite, ()."""
    present = tokens.there
    device, N = present.device, len(present)
    C, D = tokens.slots.values.shape[1], tokens.slots.keys.shape[1]
    starts, lengths = tokens.slots.bounds()[:-1].long(), torch.zeros_like(tokens.slots.bounds()[1:])
    parts = [tokens] if slots is None else [tokens, slots]
    if slots is not None:
        starts, lengths = starts + slots.slots.bounds()[:-1], slots.slots.bounds().diff()
    begins = starts + lengths
    n_rows = sum(len(rows) for rows, _ in parts)
    steps = torch.arange(1, present.shape[1] + 1, device=device, dtype=torch.int32)
    # Of a head without tokens nothing is asked.
    ends = (present * steps).amax(1)
    read = (ends, torch.where(ends > 0, lengths, 0))
    turns = rotary.frequencies.to(device).contiguous()
    stretch = float(getattr(rotary.module, "attention_scaling", 1.0))
    means, power = _centre(parts, read, scale, turns, stretch)
    step = ROWS if max(D, C) <= 64 else ROWS_WIDE
    width = max(16, triton.next_power_of_2(D + C))
    new = torch.empty if width == D + C else torch.zeros
    highs, lows = (new(n_rows, width, dtype=torch.float16, device=device) for _ in range(2))
    sizes = torch.empty(n_rows, dtype=torch.float32, device=device)
    places = sizes if horizon is None else torch.empty_like(sizes)
    wrong = torch.zeros(1, dtype=torch.int32, device=device)
    for (rows, there), end, to in zip(parts, read, (begins, starts), strict=False):
        if len(rows):
            feature[(triton.cdiv(there.shape[1], step), N)](
                rows.keys, rows.values, rows.positions, rows.bounds(), end,
                there.contiguous().view(torch.int8), turns, means, scale.factor, scale.size, power,
                highs, lows, sizes, places, to, wrong, there.shape[1], stretch,
                float(horizon or 1.0), BESIDE=horizon is not None, FIRST=to is begins, V=width,
                **_sizes(D, C), T=step, num_warps=WARPS,
            )  # fmt: skip
    beside = None if horizon is None else places
    table = Table(highs, lows, sizes, beside, power, present, ends, lengths, starts, begins)
    return table, wrong[0] > 0


def _centre(parts, read, scale, turns, stretch):
    """The mean key and value of the tokens, (N, F), and the power of two to scale rows by, (N,)."""
    tops = []
    for (rows, there), end in zip(parts, read, strict=False):
        (N, L), D, C = there.shape, rows.keys.shape[1], rows.values.shape[1]
        n_parts = max(triton.cdiv(L, SPAN), 1)
        sums = rows.keys.new_zeros(n_parts, N, D + C, dtype=torch.float32)
        most = sums.new_zeros(n_parts, N, 2)
        first = not tops
        survey[(n_parts, N)](
            rows.keys, rows.values, rows.positions, rows.bounds(), end,
            there.contiguous().view(torch.int8), turns, sums, most, L, stretch,
            SUMS=first, **_sizes(D, C), T=STEP, S=SPAN,
        )  # fmt: skip
        if first:
            count = there.sum(1).clamp(min=1)
            means = sums.sum(0) / count[:, None]
        tops.append(most.amax(0))
    longest = torch.stack(tops).amax(0).sqrt()
    wide = torch.linalg.vector_norm(scale.factor, dim=1).amax(1)
    # Less a mean that is no longer, a row is at most twice as long.
    bound = 2 * torch.maximum(longest[:, 0] * wide, longest[:, 1] / scale.size)
    power = torch.where(bound > 0, TOP - torch.frexp(bound).exponent, 0).clamp(-60, 60)
    return means, power.int()


def _sizes(D, C):
    wide = max(16, triton.next_power_of_2(D // 2))
    return {"H": D // 2, "W": wide, "C": C, "X": triton.next_power_of_2(C)}
