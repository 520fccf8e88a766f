"""Second moments of queries, and tokens pooled into new slots or absorbed by those that are."""

# B sequences, K key-value heads, G query heads of each, N = B K, L tokens, D query size, H = D / 2,
# C value size, M slots or tokens (N slots after, in pooling), T rows at a time

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from .limits import BLOCK

if TYPE_CHECKING:
    from ..hf.slots import Slots


TOKENS, WARPS = 32, 4


def sums(
    queries: Sequence[Tensor], values: Sequence[Tensor], cos: Tensor, sin: Tensor, real: Tensor
) -> tuple[Tensor, Tensor]:
    """Sums of q q' over (B, K G, L, D) queries turned back, and of |v|^2 over (B, K, L, C) values.

    Of each of the layers: (layers, B, K, D, D), the mean of the G heads that share a key, and
    (layers, B, K), in float64. ``cos`` and ``sin`` (B, L, D / 2); tokens that are not ``real``
    (B, L) are left out.
    """
    B, Q, L, D = queries[0].shape
    K, C = values[0].shape[1], values[0].shape[3]
    blocks = triton.cdiv(L, BLOCK)
    made = queries[0].new_empty(len(queries), blocks, B * K, D, D, dtype=torch.float32)
    squares = made.new_empty(made.shape[:3])
    turns = cos.contiguous(), sin.contiguous(), real.contiguous().view(torch.uint8)
    for query, value, to, size in zip(queries, values, made, squares, strict=True):
        asked = query if query.stride(3) == 1 else query.contiguous()
        held = value if value.stride(3) == 1 else value.contiguous()
        gather[(blocks, B * K)](
            asked, held, *turns, to, size, K, L, *asked.stride()[:3], *held.stride()[:3],
            G=Q // K, H=D // 2, W=max(16, triton.next_power_of_2(D // 2)), C=C,
            V=triton.next_power_of_2(C), T=TOKENS, S=BLOCK,
            num_warps=WARPS,
        )  # fmt: skip
    moments = made.sum(1, dtype=torch.float64).view(-1, B, K, D, D)
    return moments.div_(Q // K), squares.sum(1, dtype=torch.float64).view(-1, B, K)


@triton.jit(do_not_specialize=["L"], do_not_specialize_on_alignment=["real", "squares"])
def gather(
    queries,  # (B, K G, L, D)
    values,  # (B, K, L, C)
    cosines,  # (B, L, H)
    sines,
    real,  # (B, L) uint8
    made,  # (L / S, N, D, D) float32
    squares,  # (L / S, N)
    K,
    L,
    batch_step,
    head_step,
    token_step,
    value_batch_step,
    value_head_step,
    value_step,
    G: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,  # H up to a power of two
    C: tl.constexpr,
    V: tl.constexpr,  # C up to a power of two
    T: tl.constexpr,
    S: tl.constexpr,
):
    """Sums over S tokens of the heads that share a key; grid (L / S, N)."""
    block, head = tl.program_id(0), tl.program_id(1)
    batch = (head // K).to(tl.int64)
    kind = (head % K).to(tl.int64)
    begin = (block * S).to(tl.int64)
    each = tl.full((), 1, tl.int64) * head_step
    mine = queries + batch * batch_step + kind * G * each + begin * token_step
    theirs = values + batch * value_batch_step + kind * value_head_step + begin * value_step
    cosines += (batch * L + begin) * H
    sines += (batch * L + begin) * H
    real += batch * L + begin
    left = L - block * S
    d, c = tl.arange(0, W), tl.arange(0, V)
    if W <= 32:
        whole = tl.zeros((2 * W, 2 * W), tl.float32)
    else:  # as one it would not fit beside the rest
        upper = tl.zeros((W, W), tl.float32)
        across = tl.zeros((W, W), tl.float32)
        lower = tl.zeros((W, W), tl.float32)
    for step in range(0, G * (S // T)):
        token = (step % (S // T)) * T + tl.arange(0, T)
        there = tl.load(real + token, mask=token < left, other=0) != 0
        inside = there[:, None] & (d < H)[None, :]
        at = token[:, None] * H + d[None, :]
        cos = tl.load(cosines + at, mask=inside, other=0.0)
        sin = tl.load(sines + at, mask=inside, other=0.0)
        row = (step // (S // T)) * each + token[:, None] * token_step + d[None, :]
        first = tl.load(mine + row, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(mine + H + row, mask=inside, other=0.0).to(tl.float32)
        one, two = first * cos + second * sin, second * cos - first * sin
        # Three products of the matrix units make one that is as good as float32's.
        if W <= 32:
            both = tl.interleave(one, two)
            whole = tl.dot(both.T, both, whole, input_precision="tf32x3")
        else:
            upper = tl.dot(one.T, one, upper, input_precision="tf32x3")
            across = tl.dot(one.T, two, across, input_precision="tf32x3")
            lower = tl.dot(two.T, two, lower, input_precision="tf32x3")
    to = made + (block * tl.num_programs(1) + head).to(tl.int64) * 4 * H * H
    if W <= 32:
        pair = tl.arange(0, 2 * W)
        place, known = pair // 2 + (pair % 2) * H, pair // 2 < H
        where = place[:, None] * 2 * H + place[None, :]
        tl.store(to + where, whole, mask=known[:, None] & known[None, :])
    else:
        row, column = d[:, None], d[None, :]
        inside = (row < H) & (column < H)
        tl.store(to + row * 2 * H + column, upper, mask=inside)
        tl.store(to + row * 2 * H + H + column, across, mask=inside)
        tl.store(to + (H + column) * 2 * H + row, across, mask=inside)
        tl.store(to + (H + row) * 2 * H + H + column, lower, mask=inside)
    total = tl.zeros((T,), tl.float32)
    for start in range(0, S, T):
        token = start + tl.arange(0, T)
        text = tl.load(real + token, mask=token < left, other=0) != 0
        used = text[:, None] & (c < C)[None, :]
        value = tl.load(theirs + token[:, None] * value_step + c[None, :], mask=used, other=0.0)
        total += tl.sum(value.to(tl.float32) * value.to(tl.float32), 1)
    tl.store(squares + block * tl.num_programs(1) + head, tl.sum(total, 0))


ROWS = 32


def pour(slots: Slots, to: Tensor, opens: Tensor | None, made: Slots) -> None:
    """Add slots to those that are ``made``, whose values are sums in float32.

    ``to`` (M,) says where each goes, -1 is nowhere; those that ``opens``, or all, bring their key.
    """
    D, C = slots.keys.shape[1], slots.values.shape[1]
    # Absent tensors are passed as any valid pointer; the kernel does not load them.
    pairs = [(slots.weight, made.weight), (slots.received, made.received)]
    extra = [part if len(made_of) else slots.values for part, made_of in pairs]
    pour_rows[(triton.cdiv(len(slots), ROWS),)](
        slots.keys.contiguous(), slots.values.contiguous(), slots.counts, slots.positions, *extra,
        to, to if opens is None else opens.view(torch.uint8),
        made.keys, made.values, made.counts, made.positions, made.weight, made.received,
        len(slots), ALL=opens is None, WEIGHED=len(made.weight) > 0,
        ATTENDED=len(made.received) > 0, D=D, W=triton.next_power_of_2(D), C=C,
        X=triton.next_power_of_2(C), T=ROWS,
    )  # fmt: skip


@triton.jit(
    do_not_specialize=["M"],
    do_not_specialize_on_alignment=[
        "counts", "positions", "weight", "received", "to", "opens", "new_weight", "new_received",
    ],
)  # fmt: skip
def pour_rows(
    keys,  # (M, D)
    values,  # (M, C)
    counts,  # (M,), as all that follow
    positions,
    weight,
    received,
    to,
    opens,
    new_keys,  # (N, D)
    sums,  # (N, C) float32
    new_counts,  # (N,), as all that follow
    new_positions,
    new_weight,
    new_received,
    M,
    ALL: tl.constexpr,
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
        share = tl.load(received + row, mask=goes, other=0.0)
        tl.atomic_add(new_received + place, share, mask=goes, sem="relaxed")
    if WEIGHED:
        heavy = tl.load(weight + row, mask=goes, other=0.0)
        # Weights are not negative, and so have the order of their bits.
        bits = heavy.to(tl.int32, bitcast=True)
        as_bits = new_weight.to(tl.pointer_type(tl.int32), bitcast=True)
        tl.atomic_max(as_bits + place, bits, mask=goes, sem="relaxed")
    inside = goes[:, None] & (x < C)
    value = tl.load(values + row[:, None] * C + x, mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(sums + place[:, None] * C + x, value * share[:, None], mask=inside, sem="relaxed")


# P heads of all layers and sequences, L tokens of each, T of them at a time


TOGETHER = 32


def absorb(tokens: Slots, owner: Tensor, opened: Tensor, into: Slots) -> None:
    """What `slots.absorb` does: merge (P, L) tokens into the slots of a buffer, where these lie."""
    D, C = tokens.keys.shape[1], tokens.values.shape[1]
    P, L = owner.shape
    # Absent tensors are passed as any valid pointer; the kernel does not load them.
    pairs = [(tokens.weight, into.weight), (tokens.received, into.received)]
    extra = [part if len(whole) else tokens.values for part, whole in pairs]
    absorb_rows[(P,)](
        tokens.keys, tokens.values, tokens.counts, tokens.positions, *extra,
        owner, opened.view(torch.uint8), into.spans(),
        into.keys, into.values, into.counts, into.positions, *(whole for _, whole in pairs),
        L, WEIGHED=len(into.weight) > 0, ATTENDED=len(into.received) > 0, D=D,
        W=triton.next_power_of_2(D), C=C, X=max(16, triton.next_power_of_2(C)), T=TOGETHER,
    )  # fmt: skip


@triton.jit(do_not_specialize=["L"], do_not_specialize_on_alignment=["opened", "spans"])
def absorb_rows(
    keys,  # (P L, D)
    values,  # (P L, C)
    counts,  # (P L,), as all that follow
    positions,
    weight,
    received,
    owner,
    opened,
    spans,  # (2, P): where the slots of each head begin
    slot_keys,
    slot_values,
    slot_counts,
    slot_positions,
    slot_weight,
    slot_received,
    L,
    WEIGHED: tl.constexpr,
    ATTENDED: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    X: tl.constexpr,
    T: tl.constexpr,
):
    """The tokens of a head; grid (P,)."""
    head = tl.program_id(0).to(tl.int64)
    begin = tl.load(spans + head).to(tl.int64)
    d, x = tl.arange(0, W)[None, :], tl.arange(0, X)[None, :]
    order = tl.arange(0, T)
    for start in range(0, L, T):
        at = head * L + start + order
        inside = start + order < L
        slot = tl.load(owner + at, mask=inside, other=-1)
        there = slot >= 0
        opens = there & (tl.load(opened + at, mask=inside, other=0) != 0)
        to = begin + slot
        # Tokens of one slot are added to the first of them, which alone writes.
        same = (slot[:, None] == slot[None, :]) & there[None, :]
        leads = there & (tl.sum((same & (order[None, :] < order[:, None])).to(tl.int32), 1) == 0)
        known = leads & ~opens
        count = tl.load(counts + at, mask=there, other=0)
        before = tl.load(slot_counts + to, mask=known, other=0)
        total = before + tl.sum(tl.where(same, count[None, :], 0), 1)
        tl.store(slot_counts + to, total, mask=leads)
        share, held, whole = count.to(tl.float32), before.to(tl.float32), total.to(tl.float32)
        if ATTENDED:
            share = tl.load(received + at, mask=there, other=0.0)
            held = tl.load(slot_received + to, mask=known, other=0.0)
            whole = held + tl.sum(tl.where(same, share[None, :], 0.0), 1)
            tl.store(slot_received + to, whole, mask=leads)
        if WEIGHED:
            heavy = tl.load(weight + at, mask=there, other=0.0)
            most = tl.load(slot_weight + to, mask=known, other=0.0)
            most = tl.maximum(most, tl.max(tl.where(same, heavy[None, :], 0.0), 1))
            tl.store(slot_weight + to, most, mask=leads)
        shares = tl.where(same, share[None, :], 0.0)
        value = tl.load(values + at[:, None] * C + x, mask=there[:, None] & (x < C), other=0.0)
        cell = to[:, None] * C + x
        old = tl.load(slot_values + cell, mask=known[:, None] & (x < C), other=0.0)
        mean = tl.dot(shares, value.to(tl.float32), old.to(tl.float32) * held[:, None],
                      input_precision="ieee")  # fmt: skip
        mean = mean / tl.where(leads, whole, 1.0)[:, None]
        tl.store(slot_values + cell, mean.to(slot_values.dtype.element_ty),
                 mask=leads[:, None] & (x < C))  # fmt: skip
        position = tl.load(positions + at, mask=opens, other=0)
        tl.store(slot_positions + to, position, mask=opens)
        brings = opens[:, None] & (d < D)
        key = tl.load(keys + at[:, None] * D + d, mask=brings, other=0.0)
        tl.store(slot_keys + to[:, None] * D + d, key, mask=brings)
        tl.debug_barrier()  # what is written is read by the next tokens
