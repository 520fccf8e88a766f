"""`importance.received` in Triton: attention that tokens get, and no matrix of all pairs in memory.

Twice over the logits: first the logarithm of each query's sum, unless the read of a whole text has
given it (`flashing`), then each token's column of shares.
Tiles that a block of queries sees whole are most of them, and go without a mask. As in `ragged`,
the work of a head is dealt to parts, the queries that share a head of keys share its loads, and
nothing waits for the device.
"""

# B streams, H key-value heads, N = B H, G query heads of each, L queries, R tokens outside
# D key size, W the same up to a power of two, M rows of queries, T columns of a tile, P parts

# ruff: noqa: ANN001, ANN202
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from math import e, log2
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from .ragged import ALL, _parts, _rows, _width

if TYPE_CHECKING:
    from .slots import Slots

NARROW = (128, 64, 4)  # rows, columns and warps for keys of up to 64 numbers of 16 bits


def received(
    query: Tensor,
    keys: Tensor,
    real: Tensor,
    seen: Tensor,
    slots: Slots,
    scaling: float,
    cap: float | None,
    logs: Tensor | None = None,
) -> Tensor:
    """Sums of what each of the (B, H, R, D) window got from each query that has (B, L) ``seen``."""
    B, H, R, D = keys.shape
    L, N, G = query.shape[2], B * H, query.shape[1] // H
    n_rows = G * L
    query = query if query.stride(3) == 1 else query.contiguous()
    keys, text = keys.contiguous(), real.contiguous().view(torch.uint8)
    M, T, warps = _tile(D * query.element_size())
    M = min(max(triton.next_power_of_2(n_rows), 16), M)
    blocks, tiles = triton.cdiv(n_rows, M), triton.cdiv(R, T)
    told = (scaling * log2(e), H, L, R, *query.stride()[:3])
    words = {"G": G, "D": D, "W": _width(D), "M": M, "T": T}
    words |= {"STAGES": 3 if query.element_size() == 2 else 2, "num_warps": warps}
    if logs is None:
        P = _parts(N * blocks, triton.cdiv(len(slots), N * T) + tiles, query.device)
        bounds = slots.bounds() if len(slots) else _nothing(N + 1, query.device)
        logs = query.new_empty(P, N, n_rows, dtype=torch.float32)
        _sum[(P, N, blocks)](
            query, slots.keys, slots.counts, bounds, keys, text, logs,
            ALL if cap is None else float(cap), *told, P=P, **words,
        )  # fmt: skip
        if P > 1:
            size = logs[0].numel()
            _unite[(triton.cdiv(size, 128),)](logs, size, P=P, T=128, num_warps=4)
    else:
        logs = log2(e) * logs.reshape(N, G, L).mT.contiguous()
    P = _parts(N * tiles, blocks, query.device)
    got = query.new_empty(P, N, R, dtype=torch.float32)
    _collect[(P, N, tiles)](query, keys, text, logs, seen.contiguous(), got, *told, P=P, **words)
    return (got[0] if P == 1 else got.sum(0)).view(B, H, R)


@cache
def _nothing(size: int, device: torch.device) -> Tensor:
    """The bounds of no slots; asking `Slots` for them waits for the device."""
    return torch.zeros(size, dtype=torch.int32, device=device)


def _tile(size: int) -> tuple[int, int, int]:
    """Rows, columns and warps for keys of so many bytes."""
    if size <= 128:
        return NARROW
    return 64 if size <= 512 else 32, 64 if size <= 256 else 32, 4


@triton.jit
def _asked(queries, stream, block, H, L, batch_step, head_step, token_step, G: tl.constexpr,
           D: tl.constexpr, W: tl.constexpr, M: tl.constexpr):  # fmt: skip
    """A block of queries, the heads of a group side by side: rows, tokens, and which there are."""
    row = block * M + tl.arange(0, M)
    token, there = row // G, row < G * L
    at = (stream // H).to(tl.int64) * batch_step + token.to(tl.int64) * token_step
    at += ((stream % H) * G + row % G) * head_step
    return _rows(queries, at, there, D, W), row, token, there


@triton.jit
def _columns(keys, real, stream, start, H, R, D: tl.constexpr, W: tl.constexpr, T: tl.constexpr):
    """A tile of the window: keys, which are text, and where they stand."""
    seat = start + tl.arange(0, T)
    key = _rows(keys, (stream.to(tl.int64) * R + seat) * D, seat < R, D, W)
    text = tl.load(real + (stream // H).to(tl.int64) * R + seat, mask=seat < R, other=0) != 0
    return key, text, seat


@triton.jit
def _add(logits, top, total):
    """One more tile of a sum of powers of two."""
    higher = tl.maximum(top, tl.max(logits, 1))
    # A row that has seen nothing yet has no top to measure from.
    base = tl.where(higher == float("-inf"), 0.0, higher)
    return higher, total * tl.exp2(top - base) + tl.sum(tl.exp2(logits - base[:, None]), 1)


# What changes from token to token, or from layer to layer, must not make a kernel of its own.
@triton.jit(
    do_not_specialize=["L", "R"], do_not_specialize_on_alignment=["counts", "bounds", "real"]
)
def _sum(
    queries,  # (B, H G, L, D)
    slots,  # (slots of all heads, D)
    counts,  # (slots of all heads,) int32
    bounds,  # (N + 1,) int32: where the slots of each head begin
    keys,  # (N, R, D): the window
    real,  # (B, R) uint8
    logs,  # (P, N, L G): the sums of a part, as logarithms in base two
    cap,
    scale,  # of logits, in base two
    H,
    L,
    R,
    batch_step,
    head_step,
    token_step,
    G: tl.constexpr,
    P: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    M: tl.constexpr,
    T: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Sums of a block of queries over some of the tiles of their head; grid (P, N, blocks)."""
    part, stream, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query, row, token, asked = _asked(
        queries, stream, block, H, L, batch_step, head_step, token_step, G, D, W, M
    )
    begin = tl.load(bounds + stream)
    n_slots = tl.load(bounds + stream + 1) - begin
    end = tl.minimum(R, R - L + ((block + 1) * M - 1) // G + 1)  # what the last of them sees
    before = tl.cdiv(n_slots, T)
    tiles = before + tl.cdiv(end, T)
    share = tl.cdiv(tiles, P)
    first = part * share
    last = tl.minimum(first + share, tiles)
    column = tl.arange(0, T)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    for tile in tl.range(first, tl.minimum(last, before), num_stages=STAGES):
        slot = tile * T + column
        used = slot < n_slots
        place = begin.to(tl.int64) + slot
        key = _rows(slots, place * D, used, D, W)
        count = tl.load(counts + place, mask=used, other=1).to(tl.float32)
        bias = tl.log2(tl.minimum(tl.maximum(count, 1.0), cap))
        logits = tl.dot(query, key.T, input_precision="ieee") * scale + bias[None, :]
        top, total = _add(tl.where(used[None, :], logits, float("-inf")), top, total)
    own = R - L + token
    whole = before + (R - L + block * M // G + 1) // T  # from here on some of them see less
    for tile in tl.range(tl.maximum(first, before), tl.minimum(last, whole), num_stages=STAGES):
        key, text, _ = _columns(keys, real, stream, (tile - before) * T, H, R, D, W, T)
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        top, total = _add(tl.where(text[None, :], logits, float("-inf")), top, total)
    for tile in tl.range(tl.maximum(first, whole), last, num_stages=STAGES):
        key, text, seat = _columns(keys, real, stream, (tile - before) * T, H, R, D, W, T)
        seen = (seat[None, :] <= own[:, None]) & text[None, :] | (seat[None, :] == own[:, None])
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        top, total = _add(tl.where(seen, logits, float("-inf")), top, total)
    to = (part * tl.num_programs(1) + stream).to(tl.int64) * G * L + row
    tl.store(logs + to, top + tl.log2(total), mask=asked)


@triton.jit(do_not_specialize=["size"])
def _unite(logs, size, P: tl.constexpr, T: tl.constexpr):
    """The logarithms of the sums of all parts, in place of those of the first; grid (size / T,)."""
    at = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    part = tl.arange(0, P)[:, None]
    log = tl.load(logs + part * size + at[None, :], mask=(at < size)[None, :], other=0.0)
    top = tl.max(log, 0)
    total = tl.sum(tl.exp2(log - top[None, :]), 0)
    tl.store(logs + at, top + tl.log2(total), mask=at < size)


@triton.jit(do_not_specialize=["L", "R"], do_not_specialize_on_alignment=["real"])
def _collect(
    queries,
    keys,
    real,
    logs,  # (N, L G): of all parts
    counts,  # (B, L): tokens that each query has seen
    got,  # (P, N, R): what each column got from the queries of a part, the mean over G
    scale,
    H,
    L,
    R,
    batch_step,
    head_step,
    token_step,
    G: tl.constexpr,
    P: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    M: tl.constexpr,
    T: tl.constexpr,
    STAGES: tl.constexpr,
):
    """What a tile of the window got from every P-th block of queries; grid (P, N, tiles)."""
    part, stream, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    key, text, seat = _columns(keys, real, stream, tile * T, H, R, D, W, T)
    total = tl.zeros((T,), tl.float32)
    end = tl.cdiv(G * L, M)
    # Who comes earlier does not see the tile, who comes from `whole` on sees all of it.
    first = tl.maximum(tile * T - (R - L), 0) * G // M + part
    whole = tl.cdiv(tl.maximum(tile * T + T - 1 - (R - L), 0) * G, M)
    for block in tl.range(first, tl.minimum(whole, end), P, num_stages=STAGES):
        query, row, token, asked = _asked(
            queries, stream, block, H, L, batch_step, head_step, token_step, G, D, W, M
        )
        fade = _fade(logs, counts, real, stream, row, token, asked, H, L, R, G)
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        seen = seat[None, :] <= (R - L + token)[:, None]
        total += tl.sum(tl.where(seen, tl.exp2(logits - fade[:, None]), 0.0), 0)
    for block in tl.range(first + tl.cdiv(tl.maximum(whole - first, 0), P) * P, end, P,
                          num_stages=STAGES):  # fmt: skip
        query, row, token, asked = _asked(
            queries, stream, block, H, L, batch_step, head_step, token_step, G, D, W, M
        )
        fade = _fade(logs, counts, real, stream, row, token, asked, H, L, R, G)
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        total += tl.sum(tl.exp2(logits - fade[:, None]), 0)
    to = (part * tl.num_programs(1) + stream).to(tl.int64) * R + seat
    # Padding is seen by itself alone, and weighs nothing.
    tl.store(got + to, tl.where(text, total / G, 0.0), mask=seat < R)


@triton.jit
def _fade(logs, counts, real, stream, row, token, asked, H, L, R, G: tl.constexpr):
    """What to take from the logits of queries, so that powers are shares times what was seen."""
    log = tl.load(logs + stream.to(tl.int64) * G * L + row, mask=asked, other=0.0)
    batch = (stream // H).to(tl.int64)
    text = tl.load(real + batch * R + R - L + token, mask=asked, other=0) != 0
    count = tl.load(counts + batch * L + token, mask=asked & text, other=0).to(tl.float32)
    some = count > 0
    return tl.where(some, log - tl.log2(tl.where(some, count, 1.0)), float("inf"))
