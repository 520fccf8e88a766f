"""Causal reads of whole sequences over the slots that they open."""

# B sequences, H heads of keys, G queries for each key, N = B H, L tokens, S room for slots,
# D key size, E value size, C tokens of a chunk, R queries of a block, T slots or tokens of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

from math import e, log2

import torch
import triton
import triton.language as tl
from torch import Tensor

from .nearest import tiles

PLACES = tl.constexpr(16)  # the fewest columns that the matrix units take


@triton.jit
def offset(head, token, H, batch_step, token_step, head_step):
    """Where the rows of these tokens begin, in a tensor (B, L, H, ...) with these steps."""
    at = (head // H).to(tl.int64) * batch_step + (head % H).to(tl.int64) * head_step
    return at + token.to(tl.int64) * token_step


@triton.jit
def scatter_leaders(
    rows,  # (B, L, H, D)
    assign,
    visible,
    slots,  # (N, S, D)
    H,
    L,
    S,
    batch_step,
    token_step,
    head_step,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """Copy the leaders' rows to their slots; grid (L / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    token = block * R + tl.arange(0, R)
    place = stream.to(tl.int64) * L + token
    slot = tl.load(assign + place, mask=token < L, other=-1)
    # A leader's slot is the first it did not see.
    lead = (slot >= 0) & (slot == tl.load(visible + place, mask=token < L, other=-1))
    d = tl.arange(0, D)[None, :]
    place = offset(stream, token, H, batch_step, token_step, head_step)
    row = tl.load(rows + place[:, None] + d, mask=lead[:, None], other=0.0)
    at = (stream.to(tl.int64) * S + slot)[:, None] * D + d
    tl.store(slots + at, row, mask=lead[:, None])


@triton.jit
def segment_sum(
    values,  # (B, L, H, E)
    assign,
    sums,  # (N, S, E) float32
    counts,  # (N, S) float32
    begin,
    H,
    L,
    S,
    batch_step,
    token_step,
    head_step,
    E: tl.constexpr,
    R: tl.constexpr,
):
    """Add a chunk's values to its slots' sums, and count them; grid (C / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    token = begin + block * R + tl.arange(0, R)
    slot = tl.load(assign + stream.to(tl.int64) * L + token, mask=token < L, other=-1)
    real = slot >= 0
    e = tl.arange(0, E)[None, :]
    place = offset(stream, token, H, batch_step, token_step, head_step)
    value = tl.load(values + place[:, None] + e, mask=real[:, None], other=0.0)
    at = stream.to(tl.int64) * S + slot
    tl.atomic_add(sums + at[:, None] * E + e, value.to(tl.float32), mask=real[:, None])
    tl.atomic_add(counts + at, 1.0, mask=real)


@triton.jit
def mean_and_bias(
    sums,
    counts,
    assign,
    means,  # (N, S, E)
    biases,  # (N, S, 16)
    scale,  # of logits, in base two
    begin,
    L,
    S,
    E: tl.constexpr,
    R: tl.constexpr,
):
    """Mean and log count of the slots a chunk touched; grid (C / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    token = begin + block * R + tl.arange(0, R)
    slot = tl.load(assign + stream.to(tl.int64) * L + token, mask=token < L, other=-1)
    real = slot >= 0
    at = stream.to(tl.int64) * S + slot
    e = tl.arange(0, E)[None, :]
    count = tl.load(counts + at, mask=real, other=1.0)
    total = tl.load(sums + at[:, None] * E + e, mask=real[:, None], other=0.0)
    mean = (total / count[:, None]).to(means.dtype.element_ty)
    tl.store(means + at[:, None] * E + e, mean, mask=real[:, None])
    # The log in two halves, divided by what it will be multiplied by with the logits.
    bias = tl.log2(count) / scale
    high = bias.to(biases.dtype.element_ty)
    low = (bias - high.to(tl.float32)).to(biases.dtype.element_ty)
    place = tl.arange(0, PLACES)[None, :]
    both = tl.where(place == 0, high[:, None], tl.where(place == 1, low[:, None], 0.0))
    both = both.to(biases.dtype.element_ty)
    tl.store(biases + at[:, None] * PLACES + place, both, mask=real[:, None])


@triton.jit
def online_softmax(logits, values, top, total, mean):
    """One more tile of a softmax in base two, and of the values it weighs."""
    higher = tl.maximum(top, tl.max(logits, 1))
    # A row that has seen nothing yet has no top to measure from.
    base = tl.where(higher == float("-inf"), 0.0, higher)
    share = tl.exp2(logits - base[:, None])
    rescale = tl.exp2(top - base)
    total = total * rescale + tl.sum(share, 1)
    mean = tl.dot(share.to(values.dtype), values, mean * rescale[:, None])
    return higher, total, mean


@triton.jit
def over_slots(query, slots, means, biases, at, n_slots, scale, T: tl.constexpr, E: tl.constexpr):
    """Softmax of queries over the slots from row ``at`` on, weighed by their counts."""
    R: tl.constexpr = query.shape[0]
    # A bias has two halves, in the first two columns: one more step of the product adds it.
    ones = (tl.zeros((R, PLACES), tl.float32) + (tl.arange(0, PLACES) < 2)[None, :]).to(query.dtype)
    top = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    mean = tl.zeros((R, E), tl.float32)
    whole = n_slots // T * T
    for start in range(at, at + whole, T):
        logits = tl.dot(query, slots.load([start, 0]).T)
        logits = tl.dot(ones, biases.load([start, 0]).T, logits) * scale
        top, total, mean = online_softmax(logits, means.load([start, 0]), top, total, mean)
    if whole < n_slots:
        used = whole + tl.arange(0, T) < n_slots
        logits = tl.dot(query, slots.load([at + whole, 0]).T)
        logits = tl.dot(ones, biases.load([at + whole, 0]).T, logits) * scale
        logits = tl.where(used[None, :], logits, float("-inf"))
        # What lies behind the last slot may be anything; times 0 it must be 0.
        value = tl.where(used[:, None], means.load([at + whole, 0]), 0.0)
        top, total, mean = online_softmax(logits, value, top, total, mean)
    return top, total, mean


@triton.jit
def attend_mass(
    queries,  # (B, L, H G, D)
    slots,  # (N S, D), a descriptor of blocks (T, D)
    means,  # (N S, E), a descriptor of blocks (T, E): mean values as the chunk began
    biases,  # (N S, 16), a descriptor of blocks (T, 16): log counts as the chunk began
    keys,  # (N, S, D): the slots' keys again
    values,  # (B, L, H, E)
    visible,  # (N, L): slots that were open when the token came
    assign,  # (N, L)
    out,  # (B, L, H G, E)
    scale,  # of logits, in base two
    begin,
    H,
    G,
    L,
    S,
    query_batch,
    query_token,
    query_head,
    value_batch,
    value_token,
    value_head,
    D: tl.constexpr,
    E: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Reads of a chunk: slots from before it, then its own tokens; grid (C / R, N G)."""
    block, head = tl.program_id(0), tl.program_id(1)
    stream = head // G
    base = stream.to(tl.int64) * L
    row = begin + block * R + tl.arange(0, R)
    column, d, e = tl.arange(0, T), tl.arange(0, D)[None, :], tl.arange(0, E)[None, :]
    inside = row < L
    place = offset(head, row, H * G, query_batch, query_token, query_head)[:, None]
    query = tl.load(queries + place + d, mask=inside[:, None], other=0.0)
    n_slots = tl.load(visible + base + begin)
    top, total, mean = over_slots(query, slots, means, biases, stream * S, n_slots, scale, T, E)
    for start in range(begin, tl.minimum(begin + (block + 1) * R, L), T):
        token = start + column
        slot = tl.load(assign + base + token, mask=token < L, other=-1)
        real = slot >= 0
        at = (stream.to(tl.int64) * S + slot)[:, None] * D
        key = tl.load(keys + at + d, mask=real[:, None], other=0.0)
        seen = real[None, :] & (token[None, :] <= row[:, None])
        logits = tl.where(seen, tl.dot(query, key.T) * scale, float("-inf"))
        source = offset(stream, token, H, value_batch, value_token, value_head)[:, None]
        value = tl.load(values + source + e, mask=real[:, None], other=0.0)
        top, total, mean = online_softmax(logits, value, top, total, mean)
    alive = tl.load(assign + base + row, mask=inside, other=-1) >= 0
    mean = tl.where(alive[:, None], mean / total[:, None], 0.0).to(out.dtype.element_ty)
    place = offset(head, row, H * G, L * H * G * E, H * G * E, E)[:, None]
    tl.store(out + place + e, mean, mask=inside[:, None])


@triton.jit
def attend_first(
    queries,  # (B, L, H G, D)
    slots,  # (N S, D), a descriptor of blocks (T, D)
    firsts,  # (N S, E), a descriptor of blocks (T, E): each slot's first value
    visible,  # (N, L): slots that were open when the token came
    assign,  # (N, L)
    out,  # (B, L, H G, E)
    scale,
    H,
    G,
    L,
    S,
    query_batch,
    query_token,
    query_head,
    D: tl.constexpr,
    E: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
):
    """Reads in which each slot counts once, with its first value; grid (L / R, N G)."""
    # The last blocks see the most slots: they begin first.
    block, head = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    stream = head // G
    base = stream.to(tl.int64) * L
    row = block * R + tl.arange(0, R)
    column, d, e = tl.arange(0, T), tl.arange(0, D), tl.arange(0, E)
    inside = row < L
    before = tl.load(visible + base + row, mask=inside, other=0)
    own = tl.load(assign + base + row, mask=inside, other=-1)
    # A leader's slot is the first it did not see.
    seen = tl.where(own == before, before + 1, before)
    place = offset(head, row, H * G, query_batch, query_token, query_head)
    query = tl.load(queries + place[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    top = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    mean = tl.zeros((R, E), tl.float32)
    whole = tl.min(tl.where(inside, seen, S), 0) // T * T
    for start in range(0, whole, T):
        at = stream * S + start
        logits = tl.dot(query, slots.load([at, 0]).T) * scale
        top, total, mean = online_softmax(logits, firsts.load([at, 0]), top, total, mean)
    most = tl.max(seen, 0)
    for start in range(whole, most, T):
        at = stream * S + start
        logits = tl.dot(query, slots.load([at, 0]).T) * scale
        logits = tl.where((start + column)[None, :] < seen[:, None], logits, float("-inf"))
        value = tl.where((start + column < most)[:, None], firsts.load([at, 0]), 0.0)
        top, total, mean = online_softmax(logits, value, top, total, mean)
    mean = tl.where((own >= 0)[:, None], mean / total[:, None], 0.0)
    place = offset(head, row, H * G, L * H * G * E, H * G * E, E)
    mean = mean.to(out.dtype.element_ty)
    tl.store(out + place[:, None] + e[None, :], mean, mask=inside[:, None])


CHUNK = 512  # tokens that a mass read takes one by one
BLOCK, TILE, WARPS, STAGES = 128, 64, 8, 3


def read_mass(
    q: Tensor, k: Tensor, v: Tensor, assign: Tensor, visible: Tensor, scale: float
) -> Tensor:
    """Attention in which a slot weighs as many tokens as it holds; its value is their mean.

    ``q`` (B, L, H G, D), ``k`` (B, L, H, D) and ``v`` (B, L, H, E) in 16 bits; ``assign`` and
    ``visible`` (B H, L): each token's slot, and the slots open when it came. Gives (B, L, H G, E).
    """
    B, L, H, E = v.shape
    N, G, step = B * H, q.shape[2] // H, scale * log2(e)
    q, v = _rows(q), _rows(v)
    slots, out = _scattered(k, assign, visible), v.new_empty(B, L, H * G, E)
    sums = torch.zeros(N, L, E, device=v.device)
    counts = torch.zeros(N, L, device=v.device)
    means, biases = v.new_empty(N, L, E), q.new_empty(N, L, PLACES.value)
    tables = [tiles(table, TILE) for table in (slots, means, biases)]
    chunk = min(CHUNK, triton.next_power_of_2(L))
    for begin in range(0, L, chunk):
        attend_mass[(triton.cdiv(chunk, BLOCK), N * G)](
            q, *tables, slots, v, visible, assign, out, step, begin, H, G, L, L,
            *q.stride()[:3], *v.stride()[:3],
            D=q.shape[3], E=E, R=BLOCK, T=TILE, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        if begin + chunk < L:
            grid = (triton.cdiv(chunk, 32), N)
            segment_sum[grid](v, assign, sums, counts, begin, H, L, L, *v.stride()[:3], E=E, R=32)
            mean_and_bias[grid](sums, counts, assign, means, biases, step, begin, L, L, E=E, R=32)
    return out


def read_first(
    q: Tensor, k: Tensor, v: Tensor, assign: Tensor, visible: Tensor, scale: float
) -> Tensor:
    """Attention in which each slot counts once and keeps its first value; see `read_mass`."""
    B, L, H, E = v.shape
    G = q.shape[2] // H
    q = _rows(q)
    tables = [tiles(_scattered(x, assign, visible), TILE) for x in (k, v)]
    out = v.new_empty(B, L, H * G, E)
    attend_first[(triton.cdiv(L, BLOCK), B * H * G)](
        q, *tables, visible, assign, out, scale * log2(e), H, G, L, L, *q.stride()[:3],
        D=q.shape[3], E=E, R=BLOCK, T=TILE, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out


def _rows(x: Tensor) -> Tensor:
    """A tensor whose rows lie in one piece each; heads and tokens may lie anywhere."""
    return x if x.stride(3) == 1 else x.contiguous()


def _scattered(rows: Tensor, assign: Tensor, visible: Tensor) -> Tensor:
    """The leaders' rows of (B, L, H, D), where their slots are (N, L, D)."""
    rows = _rows(rows)
    B, L, H, D = rows.shape
    slots = rows.new_empty(B * H, L, D)
    scatter_leaders[(triton.cdiv(L, 64), B * H)](
        rows, assign, visible, slots, H, L, L, *rows.stride()[:3], D=D, R=64
    )
    return slots
