"""Attention of many queries over slots, a tile at a time, as they were when each query came."""

# B streams, L tokens, H heads of keys, G queries for each key, N = B H, S room for slots
# D key size, E value size, C tokens of a chunk, R queries of a block, T slots or tokens of a tile

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from .slots import PLACES, spot


@triton.jit
def soften(logits, values, top, total, mean):
    """One more tile of a softmax in base two, and of the values it weighs."""
    higher = tl.maximum(top, tl.max(logits, 1))
    # A row that has seen nothing yet has no top to measure from.
    base = tl.where(higher == float("-inf"), 0.0, higher)
    share = tl.exp2(logits - base[:, None])
    fade = tl.exp2(top - base)
    total = total * fade + tl.sum(share, 1)
    mean = tl.dot(share.to(values.dtype), values, mean * fade[:, None])
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
        top, total, mean = soften(logits, means.load([start, 0]), top, total, mean)
    if whole < n_slots:
        used = whole + tl.arange(0, T) < n_slots
        logits = tl.dot(query, slots.load([at + whole, 0]).T)
        logits = tl.dot(ones, biases.load([at + whole, 0]).T, logits) * scale
        logits = tl.where(used[None, :], logits, float("-inf"))
        # What lies behind the last slot may be anything; times 0 it must be 0.
        value = tl.where(used[:, None], means.load([at + whole, 0]), 0.0)
        top, total, mean = soften(logits, value, top, total, mean)
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
    place = spot(head, row, H * G, query_batch, query_token, query_head)[:, None]
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
        source = spot(stream, token, H, value_batch, value_token, value_head)[:, None]
        value = tl.load(values + source + e, mask=real[:, None], other=0.0)
        top, total, mean = soften(logits, value, top, total, mean)
    alive = tl.load(assign + base + row, mask=inside, other=-1) >= 0
    mean = tl.where(alive[:, None], mean / total[:, None], 0.0).to(out.dtype.element_ty)
    place = spot(head, row, H * G, L * H * G * E, H * G * E, E)[:, None]
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
    place = spot(head, row, H * G, query_batch, query_token, query_head)
    query = tl.load(queries + place[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    top = tl.full((R,), float("-inf"), tl.float32)
    total = tl.zeros((R,), tl.float32)
    mean = tl.zeros((R, E), tl.float32)
    whole = tl.min(tl.where(inside, seen, S), 0) // T * T
    for start in range(0, whole, T):
        at = stream * S + start
        logits = tl.dot(query, slots.load([at, 0]).T) * scale
        top, total, mean = soften(logits, firsts.load([at, 0]), top, total, mean)
    most = tl.max(seen, 0)
    for start in range(whole, most, T):
        at = stream * S + start
        logits = tl.dot(query, slots.load([at, 0]).T) * scale
        logits = tl.where((start + column)[None, :] < seen[:, None], logits, float("-inf"))
        value = tl.where((start + column < most)[:, None], firsts.load([at, 0]), 0.0)
        top, total, mean = soften(logits, value, top, total, mean)
    mean = tl.where((own >= 0)[:, None], mean / total[:, None], 0.0)
    place = spot(head, row, H * G, L * H * G * E, H * G * E, E)
    mean = mean.to(out.dtype.element_ty)
    tl.store(out + place[:, None] + e[None, :], mean, mask=inside[:, None])
