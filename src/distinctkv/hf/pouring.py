"""`pooling.pool` in Triton: each slot or token is read once, and goes where it was told."""

# M slots or tokens, N slots after, D key size, C value size, T rows at a time

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from .slots import Slots


ROWS = 32


def pour(slots: Slots, to: Tensor, opens: Tensor | None, made: Slots) -> None:
    """Add slots to those that are ``made``, whose values are sums in float32.

    ``to`` (M,) says where each goes, -1 is nowhere; those that ``opens``, or all, bring their key.
    """
    D, C = slots.keys.shape[1], slots.values.shape[1]
    # What is not there is not read, but a kernel wants an address.
    pairs = [(slots.usage, made.usage), (slots.weight, made.weight), (slots.got, made.got)]
    extra = [part if len(made_of) else slots.values for part, made_of in pairs]
    pour_rows[(triton.cdiv(len(slots), ROWS),)](
        slots.keys.contiguous(), slots.values.contiguous(), slots.counts, slots.positions, *extra,
        to, to if opens is None else opens.view(torch.uint8),
        made.keys, made.values, made.counts, made.positions, made.usage, made.weight, made.got,
        len(slots), ALL=opens is None, USED=len(made.usage) > 0, WEIGHED=len(made.weight) > 0,
        ATTENDED=len(made.got) > 0, D=D, W=triton.next_power_of_2(D), C=C,
        X=triton.next_power_of_2(C), T=ROWS,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["M"],
    do_not_specialize_on_alignment=[
        "counts", "positions", "usage", "weight", "got", "to", "opens",
        "new_usage", "new_weight", "new_got",
    ],
)  # fmt: skip
def pour_rows(
    keys,  # (M, D)
    values,  # (M, C)
    counts,  # (M,), as all that follow
    positions,
    usage,
    weight,
    got,
    to,
    opens,
    new_keys,  # (N, D)
    sums,  # (N, C) float32
    new_counts,  # (N,), as all that follow
    new_positions,
    new_usage,
    new_weight,
    new_got,
    M,
    ALL: tl.constexpr,
    USED: tl.constexpr,
    WEIGHED: tl.constexpr,
    ATTENDED: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    X: tl.constexpr,
    T: tl.constexpr,
):
    """T rows; grid (M / T,)."""
    row = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    place = tl.load(to + row, mask=row < M, other=-1)
    goes = place >= 0
    first = goes
    if not ALL:
        first = goes & (tl.load(opens + row, mask=row < M, other=0) != 0)
    d, x = tl.arange(0, W)[None, :], tl.arange(0, X)[None, :]
    inside = first[:, None] & (d < D)
    key = tl.load(keys + row[:, None] * D + d, mask=inside, other=0.0)
    tl.store(new_keys + place[:, None] * D + d, key, mask=inside)
    position = tl.load(positions + row, mask=first, other=0)
    tl.store(new_positions + place, position, mask=first)
    count = tl.load(counts + row, mask=goes, other=0)
    tl.atomic_add(new_counts + place, count, mask=goes, sem="relaxed")
    share = count.to(tl.float32)
    if ATTENDED:
        share = tl.load(got + row, mask=goes, other=0.0)
        tl.atomic_add(new_got + place, share, mask=goes, sem="relaxed")
    if USED:
        used = tl.load(usage + row, mask=goes, other=0.0)
        tl.atomic_add(new_usage + place, used, mask=goes, sem="relaxed")
    if WEIGHED:
        heavy = tl.load(weight + row, mask=goes, other=0.0)
        # Weights are not negative, and so have the order of their bits.
        bits = heavy.to(tl.int32, bitcast=True)
        as_bits = new_weight.to(tl.pointer_type(tl.int32), bitcast=True)
        tl.atomic_max(as_bits + place, bits, mask=goes, sem="relaxed")
    inside = goes[:, None] & (x < C)
    value = tl.load(values + row[:, None] * C + x, mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(sums + place[:, None] * C + x, value * share[:, None], mask=inside, sem="relaxed")
