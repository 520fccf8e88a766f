"""Attention over ragged slots and the window, and the attention that each token receives."""

# B sequences, H key-value heads, N = B H, G query heads of each, L queries, R tokens outside
# D key size, E value size, W and V the same up to a power of two, M rows of queries, T columns of
# a tile, P parts

# ruff: noqa: ANN001, ANN202
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from math import e, log, log2
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from ..hf.slots import Slots


# B streams, H key-value heads, N = B H, G query heads of each, L queries, R tokens outside
# D key size, E value size, W and V the same up to a power of two, M rows of queries, T columns of
# a tile, P parts


WAVES = 4  # programs for each processor of the device
MOST = 64  # parts of a head
WARPS = 4
LN2 = tl.constexpr(log(2))


def read(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    real: Tensor,
    slots: Slots,
    scaling: float,
) -> tuple[Tensor, Tensor]:
    """What `attention.read` gives: (B, H G, L, E), laid out so that heads come after queries.

    And the logsumexp of each query's logits, (B, H G, L).
    """
    B, H, R, D = keys.shape
    L, E = query.shape[2], values.shape[3]
    G = query.shape[1] // H
    _check(query, keys, values, real, slots)
    N, n_rows, wide = B * H, G * L, max(D, E) > 128
    query = query if query.stride(3) == 1 else query.contiguous()
    out = values.new_empty(B, L, H * G, E)
    logs = query.new_empty(B, H * G, L, dtype=torch.float32)
    M = min(max(triton.next_power_of_2(n_rows), 16), 16 if wide else 64)
    T = 64 if max(D, E) * query.element_size() <= 256 else 32
    blocks = triton.cdiv(n_rows, M)
    P = _parts(N * blocks, triton.cdiv(len(slots), N * T) + triton.cdiv(R, T), query.device)
    # Of one part nothing is joined, and these are not touched.
    shares = [out] * 3
    if P > 1:
        shares = [query.new_empty(n, dtype=torch.float32) for n in (N * n_rows * P,) * 2]
        shares.append(query.new_empty(N * n_rows * P * E, dtype=torch.float32))
    sizes = {"G": G, "E": E, "V": _width(E), "P": P}
    _share[(P, N, blocks)](
        query, slots.keys, slots.values, slots.counts, slots.spans(),
        keys.contiguous(), values.contiguous(), real.contiguous().view(torch.uint8), *shares, out,
        logs,
        scaling * log2(e), H, L, R, *query.stride()[:3],
        **sizes, D=D, W=_width(D), M=M, T=T, STAGES=3 if query.element_size() == 2 else 2,
        num_warps=WARPS,
    )  # fmt: skip
    if P > 1:
        _join[(N * n_rows,)](*shares, out, logs, H, L, **sizes, num_warps=1)
    return out.transpose(1, 2), logs


def _check(query: Tensor, keys: Tensor, values: Tensor, real: Tensor, slots: Slots) -> None:
    """Refuse shapes that do not fit, for a kernel would read beyond them; looks at no number."""
    B, H, R, D = keys.shape
    fits = (
        query.dim() == 4
        and (query.shape[0], query.shape[1] % H, query.shape[3]) == (B, 0, D)
        and query.shape[2] <= R
        and (values.shape[:3], real.shape, slots.lengths.shape) == ((B, H, R), (B, R), (B, H))
        and (slots.keys.shape[1], slots.values.shape[1]) == (D, values.shape[3])
        and len(slots.keys) == len(slots.values) == len(slots.counts)
    )
    if not fits:
        shapes = [tuple(part.shape) for part in (query, keys, values, real, slots.lengths)]
        raise ValueError(
            "queries (B, H G, L, D), keys (B, H, R, D), values (B, H, R, E), a mask (B, R) and "
            f"lengths (B, H) must fit each other, got {shapes}; the window is all R columns"
        )


def _width(size: int) -> int:
    """The least power of two that matrix units take and that has room."""
    return int(max(triton.next_power_of_2(size), 16))


def _parts(programs: int, tiles: int, device: torch.device) -> int:
    """How many programs share the tiles of a head: enough to fill the device, a power of two.

    ``tiles`` is what a head has in the mean.
    """
    wanted = max(1, WAVES * _processors(device) // programs)
    return 1 << (min(MOST, wanted, tiles).bit_length() - 1)


@cache
def _processors(device: torch.device) -> int:
    """Multiprocessors of a device; elsewhere, for tests, as if there were four."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit
def _rows(pointer, at, there, D: tl.constexpr, W: tl.constexpr):
    """Rows of D numbers that begin at some places, 0 where there is nothing."""
    d = tl.arange(0, W)[None, :]
    inside = there[:, None]
    if D < W:
        inside = inside & (d < D)
    return tl.load(pointer + at[:, None] + d, mask=inside, other=0.0)


@triton.jit
def _soften(logits, values, top, total, mean):
    """One more tile of a softmax in base two, and of the values it weighs."""
    higher = tl.maximum(top, tl.max(logits, 1))
    # A row that has seen nothing yet has no top to measure from.
    base = tl.where(higher == float("-inf"), 0.0, higher)
    power = tl.exp2(logits - base[:, None])
    fade = tl.exp2(top - base)
    total = total * fade + tl.sum(power, 1)
    mean = tl.dot(power.to(values.dtype), values, mean * fade[:, None], input_precision="ieee")
    return higher, total, mean


# What changes from token to token, or from layer to layer, must not make a kernel of its own.
@triton.jit(
    do_not_specialize=["L", "R"], do_not_specialize_on_alignment=["counts", "spans", "real"]
)
def _share(
    queries,  # (B, H G, L, D)
    slots,  # (slots of all heads, D)
    means,  # (slots of all heads, E)
    counts,  # (slots of all heads,) int32
    spans,  # (2, N) int32: where the slots of each head begin and end
    keys,  # (N, R, D): the window
    values,  # (N, R, E)
    real,  # (B, R) uint8
    tops,  # (N, L G, P)
    totals,  # (N, L G, P)
    shares,  # (N, L G, P, E)
    out,  # (B, L, H G, E)
    logs,  # (N, G, L)
    scale,  # of logits, in base two
    H,
    L,
    R,
    query_batch,
    query_head,
    query_token,
    G: tl.constexpr,
    E: tl.constexpr,
    V: tl.constexpr,
    P: tl.constexpr,
    D: tl.constexpr,
    W: tl.constexpr,
    M: tl.constexpr,
    T: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Softmax of a block of queries over some of the tiles of their head; grid (P, N, blocks)."""
    part, stream, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    batch, head = stream // H, stream % H
    # The heads of a group stand side by side, token by token.
    row = block * M + tl.arange(0, M)
    token, asked = row // G, row < G * L
    at = batch.to(tl.int64) * query_batch + token.to(tl.int64) * query_token
    query = _rows(queries, at + (head * G + row % G) * query_head, asked, D, W)
    begin = tl.load(spans + stream)
    n_slots = tl.load(spans + tl.num_programs(1) + stream) - begin
    end = tl.minimum(R, R - L + ((block + 1) * M - 1) // G + 1)  # what the last of them sees
    before = tl.cdiv(n_slots, T)
    tiles = before + tl.cdiv(end, T)
    share = tl.cdiv(tiles, P)
    first = part * share
    last = tl.minimum(first + share, tiles)
    column = tl.arange(0, T)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    mean = tl.zeros((M, V), tl.float32)
    for tile in tl.range(first, tl.minimum(last, before), num_stages=STAGES):
        slot = tile * T + column
        used = slot < n_slots
        place = begin.to(tl.int64) + slot
        key = _rows(slots, place * D, used, D, W)
        count = tl.load(counts + place, mask=used, other=1).to(tl.float32)
        bias = tl.log2(tl.maximum(count, 1.0))
        logits = tl.dot(query, key.T, input_precision="ieee") * scale + bias[None, :]
        logits = tl.where(used[None, :], logits, float("-inf"))
        value = _rows(means, place * E, used, E, V)
        top, total, mean = _soften(logits, value, top, total, mean)
    for tile in tl.range(tl.maximum(first, before), last, num_stages=STAGES):
        seat = (tile - before) * T + column
        used = seat < R
        place = stream.to(tl.int64) * R + seat
        key = _rows(keys, place * D, used, D, W)
        text = tl.load(real + batch.to(tl.int64) * R + seat, mask=used, other=0) != 0
        own = (R - L + token)[:, None]
        seen = ((seat[None, :] <= own) & text[None, :]) | (seat[None, :] == own)
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        logits = tl.where(seen & used[None, :], logits, float("-inf"))
        value = _rows(values, place * E, used, E, V)
        top, total, mean = _soften(logits, value, top, total, mean)
    e = tl.arange(0, V)[None, :]
    inside = asked[:, None] & (e < E)
    if P == 1:
        to = (batch.to(tl.int64) * L + token) * H * G + head * G + row % G
        mean = mean / tl.where(asked, total, 1.0)[:, None]
        tl.store(out + to[:, None] * E + e, mean.to(out.dtype.element_ty), mask=inside)
        to = (stream.to(tl.int64) * G + row % G) * L + token
        tl.store(logs + to, (top + tl.log2(total)) * LN2, mask=asked)
    else:
        to = (stream.to(tl.int64) * G * L + row) * P + part
        tl.store(tops + to, top, mask=asked)
        tl.store(totals + to, total, mask=asked)
        tl.store(shares + to[:, None] * E + e, mean, mask=inside)


@triton.jit(do_not_specialize=["L"])
def _join(
    tops,
    totals,
    shares,
    out,
    logs,
    H,
    L,
    G: tl.constexpr,
    E: tl.constexpr,
    V: tl.constexpr,
    P: tl.constexpr,
):
    """Parts of a softmax made whole; grid (N L G,)."""
    program = tl.program_id(0).to(tl.int64)
    stream, row = program // (G * L), program % (G * L)
    part, e = tl.arange(0, P), tl.arange(0, V)
    top = tl.load(tops + program * P + part)
    power = tl.exp2(top - tl.max(top, 0))
    total = tl.sum(power * tl.load(totals + program * P + part), 0)
    at = (program * P + part)[:, None] * E + e[None, :]
    share = tl.load(shares + at, mask=(e < E)[None, :], other=0.0)
    mean = tl.sum(power[:, None] * share, 0) / total
    to = ((stream // H) * L + row // G) * H * G + (stream % H) * G + row % G
    tl.store(out + to * E + e, mean.to(out.dtype.element_ty), mask=e < E)
    log = (tl.max(top, 0) + tl.log2(total)) * LN2
    tl.store(logs + (stream * G + row % G) * L + row // G, log)


# B streams, H key-value heads, N = B H, G query heads of each, L queries, R tokens outside
# D key size, W the same up to a power of two, M rows of queries, T columns of a tile, P parts


FEW = 4  # blocks of queries


def received(
    query: Tensor,
    keys: Tensor,
    real: Tensor,
    seen: Tensor,
    slots: Slots,
    scaling: float,
    logs: Tensor | None = None,
) -> Tensor:
    """Sums of what each of the (B, H, R, D) window got from each query that has (B, L) ``seen``."""
    B, H, R, D = keys.shape
    L, N, G = query.shape[2], B * H, query.shape[1] // H
    n_rows = G * L
    query = query if query.stride(3) == 1 else query.contiguous()
    keys, text = keys.contiguous(), real.contiguous().view(torch.uint8)
    M, T, most = _tile(D * query.element_size())
    M = min(max(triton.next_power_of_2(n_rows), 16), M)
    blocks = triton.cdiv(n_rows, M)
    told = (scaling * log2(e), H, L, R, *query.stride()[:3])
    words = {"G": G, "D": D, "W": _width(D), "M": M, "num_warps": WARPS}
    words |= {"STAGES": 3 if query.element_size() == 2 else 2}
    unit = log2(e)
    if logs is None:
        unit = 1.0
        P = _parts(N * blocks, triton.cdiv(len(slots), N * T) + triton.cdiv(R, T), query.device)
        logs = query.new_empty(P, N, n_rows, dtype=torch.float32)
        _sum[(P, N, blocks)](
            query, slots.keys, slots.counts, slots.spans(), keys, text, logs,
            *told, P=P, T=T, **words,
        )  # fmt: skip
        if P > 1:
            size = logs[0].numel()
            _unite[(triton.cdiv(size, 128),)](logs, size, P=P, T=128, num_warps=4)
    else:
        logs = logs.view(N, G, L).mT.contiguous()
    seen, ready = seen.contiguous(), blocks > FEW
    if ready:  # once for all tiles; of few rows another launch takes longer
        fades = query.new_empty(N, n_rows, dtype=torch.float32)
        _prepare[(triton.cdiv(n_rows, 512), N)](logs, seen, text, fades, unit, H, L, R, G=G, T=512)
        logs = fades
    tiles = triton.cdiv(R, most)
    P = _parts(N * tiles, blocks, query.device)
    got = query.new_empty(P, N, R, dtype=torch.float32)
    _collect[(P, N, tiles)](
        query, keys, text, logs, seen, got, unit, *told, P=P, T=most, READY=ready, **words
    )
    return (got[0] if P == 1 else got.sum(0)).view(B, H, R)


def _tile(size: int) -> tuple[int, int, int]:
    """Rows and columns for keys of so many bytes, and columns where only one number is kept."""
    if size <= 256:
        return 64, 64, 128
    return (64, 32, 64) if size <= 512 else (32, 32, 32)


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
    do_not_specialize=["L", "R"], do_not_specialize_on_alignment=["counts", "spans", "real"]
)
def _sum(
    queries,  # (B, H G, L, D)
    slots,  # (slots of all heads, D)
    counts,  # (slots of all heads,) int32
    spans,  # (2, N) int32: where the slots of each head begin and end
    keys,  # (N, R, D): the window
    real,  # (B, R) uint8
    logs,  # (P, N, L G): the sums of a part, as logarithms in base two
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
    begin = tl.load(spans + stream)
    n_slots = tl.load(spans + tl.num_programs(1) + stream) - begin
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
        bias = tl.log2(tl.maximum(count, 1.0))
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


@triton.jit
def _fade(logs, counts, real, stream, row, unit, H, L, R, G: tl.constexpr):
    """What to take from the logits of a query, so that powers are shares times what it has seen."""
    token, asked = row // G, row < G * L
    log = tl.load(logs + stream.to(tl.int64) * G * L + row, mask=asked, other=0.0) * unit
    batch = (stream // H).to(tl.int64)
    text = tl.load(real + batch * R + R - L + token, mask=asked, other=0) != 0
    count = tl.load(counts + batch * L + token, mask=asked & text, other=0).to(tl.float32)
    some = count > 0
    return tl.where(some, log - tl.log2(tl.where(some, count, 1.0)), float("inf"))


@triton.jit(do_not_specialize=["L", "R"], do_not_specialize_on_alignment=["real"])
def _prepare(logs, counts, real, fades, unit, H, L, R, G: tl.constexpr, T: tl.constexpr):
    """`_fade` of all queries, (N, L G); grid (L G / T, N)."""
    stream, row = tl.program_id(1), tl.program_id(0) * T + tl.arange(0, T)
    fade = _fade(logs, counts, real, stream, row, unit, H, L, R, G)
    tl.store(fades + stream.to(tl.int64) * G * L + row, fade, mask=row < G * L)


@triton.jit(do_not_specialize=["L", "R"], do_not_specialize_on_alignment=["real"])
def _collect(
    queries,
    keys,
    real,
    logs,  # (N, L G): sums of all parts, or what `_prepare` has made of them
    counts,  # (B, L): tokens that each query has seen
    got,  # (P, N, R): what each column got from the queries of a part, the mean over G
    unit,  # of the logs, in base two
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
    READY: tl.constexpr,
):
    """What a tile of the window got from every P-th block of queries; grid (P, N, tiles)."""
    part, stream, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    key, text, seat = _columns(keys, real, stream, tile * T, H, R, D, W, T)
    mine = logs + stream.to(tl.int64) * G * L
    total = tl.zeros((M, T), tl.float32)  # added up once: across rows it is slow
    end = tl.cdiv(G * L, M)
    # Who comes earlier does not see the tile, who comes from `whole` on sees all of it.
    first = tl.maximum(tile * T - (R - L), 0) * G // M + part
    whole = tl.cdiv(tl.maximum(tile * T + T - 1 - (R - L), 0) * G, M)
    for block in tl.range(first, tl.minimum(whole, end), P, num_stages=STAGES):
        query, row, token, asked = _asked(
            queries, stream, block, H, L, batch_step, head_step, token_step, G, D, W, M
        )
        if READY:
            fade = tl.load(mine + row, mask=asked, other=float("inf"))
        else:
            fade = _fade(logs, counts, real, stream, row, unit, H, L, R, G)
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        seen = seat[None, :] <= (R - L + token)[:, None]
        total += tl.where(seen, tl.exp2(logits - fade[:, None]), 0.0)
    for block in tl.range(first + tl.cdiv(tl.maximum(whole - first, 0), P) * P, end, P,
                          num_stages=STAGES):  # fmt: skip
        query, row, _, asked = _asked(
            queries, stream, block, H, L, batch_step, head_step, token_step, G, D, W, M
        )
        if READY:
            fade = tl.load(mine + row, mask=asked, other=float("inf"))
        else:
            fade = _fade(logs, counts, real, stream, row, unit, H, L, R, G)
        logits = tl.dot(query, key.T, input_precision="ieee") * scale
        total += tl.exp2(logits - fade[:, None])
    to = (part * tl.num_programs(1) + stream).to(tl.int64) * R + seat
    # Padding is seen by itself alone, and weighs nothing.
    tl.store(got + to, tl.where(text, tl.sum(total, 0) / G, 0.0), mask=seat < R)
