"""Kernels that make features from keys and values, for `tabulating`.

`survey` finds the mean and the largest key and value of each head, `feature` turns keys back, takes
the mean away, measures and halves. Nothing else of the size of the keys is written.
"""

# N heads of all layers and streams, M rows of all of them, L the most rows of a head
# D key size, H = D / 2, C value size, F = D + C, T rows at a time
# W is H up to a power of two, X is C, V is F

# ruff: noqa: ANN001, ANN201, ANN202
# mypy: ignore-errors

import triton
import triton.language as tl

from ..nn.kernels.halves import halves


@triton.jit
def _turned(keys, positions, row, there, turns, stretch, H: tl.constexpr, W: tl.constexpr):
    """Keys without the turn of their positions, in two halves (T, W)."""
    d = tl.arange(0, W)
    inside = there[:, None] & (d < H)[None, :]
    at = tl.load(positions + row, mask=there, other=0).to(tl.float32)
    by = tl.load(turns + d, mask=d < H, other=0.0)
    # Rounded as the model rounds it; what is left of whole quarters is then exact.
    angle = (at[:, None] * by[None, :]).to(tl.float64)
    quarters = tl.floor(angle * 0.6366197723675814 + 0.5)
    rest = (angle - quarters * 1.5707963267948966).to(tl.float32)
    z = rest * rest
    sine = rest * (1 + z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z / 362880))))
    cosine = 1 + z * (-1 / 2 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320 - z / 3628800))))
    quarter = quarters.to(tl.int32) & 3
    odd = (quarter & 1) == 1
    cos = tl.where(odd, sine, cosine) / stretch
    sin = tl.where(odd, cosine, sine) / stretch
    cos = tl.where((quarter == 1) | (quarter == 2), -cos, cos)
    sin = tl.where(quarter >= 2, -sin, sin)
    mine = keys + row.to(tl.int64)[:, None] * 2 * H + d[None, :]
    first = tl.load(mine, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(mine + H, mask=inside, other=0.0).to(tl.float32)
    return first * cos + second * sin, second * cos - first * sin


@triton.jit(
    do_not_specialize=["L"], do_not_specialize_on_alignment=["positions", "bounds", "ends", "there"]
)
def survey(
    keys,  # (M, D)
    values,  # (M, C)
    positions,  # (M,) int32
    bounds,  # (N + 1,) int32: where the rows of each head begin,
    ends,  # (N,) int32: and how many are read
    there,  # (N, L) int8
    turns,  # (H,): of a position
    sums,  # (L / S, N, F): of the keys turned back, and of the values
    tops,  # (L / S, N, 2): the largest squared length of a key, and of a value
    L,
    stretch,
    SUMS: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    X: tl.constexpr,
    T: tl.constexpr,
    S: tl.constexpr,
):
    """S rows of a head; grid (L / S, N)."""
    part, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    begin = tl.load(bounds + head)
    length = tl.load(ends + head)
    d, x = tl.arange(0, W), tl.arange(0, X)
    ones, twos = tl.zeros((W,), tl.float32), tl.zeros((W,), tl.float32)
    means = tl.zeros((X,), tl.float32)
    longest, largest = tl.zeros((T,), tl.float32), tl.zeros((T,), tl.float32)
    for start in range(part * S, tl.minimum(part * S + S, length), T):
        at = start + tl.arange(0, T)
        used = tl.load(there + head * L + at, mask=at < length, other=0) > 0
        one, two = _turned(keys, positions, begin + at, used, turns, stretch, H, W)
        longest = tl.maximum(longest, tl.sum(one * one + two * two, 1))
        mine = (begin + at).to(tl.int64)[:, None] * C + x[None, :]
        value = tl.load(values + mine, mask=used[:, None] & (x < C)[None, :], other=0.0)
        value = value.to(tl.float32)
        largest = tl.maximum(largest, tl.sum(value * value, 1))
        if SUMS:
            ones += tl.sum(one, 0)
            twos += tl.sum(two, 0)
            means += tl.sum(value, 0)
    to = part * tl.num_programs(1) + head
    tl.store(tops + to * 2, tl.max(longest, 0))
    tl.store(tops + to * 2 + 1, tl.max(largest, 0))
    if SUMS:
        tl.store(sums + to * (2 * H + C) + d, ones, mask=d < H)
        tl.store(sums + to * (2 * H + C) + H + d, twos, mask=d < H)
        tl.store(sums + to * (2 * H + C) + 2 * H + x, means, mask=x < C)


@triton.jit(
    do_not_specialize=["L"],
    do_not_specialize_on_alignment=["positions", "bounds", "ends", "there", "wrong"],
)
def feature(
    keys,
    values,
    positions,
    bounds,
    ends,
    there,
    turns,
    means,  # (N, F)
    factors,  # (N, D, D)
    spans,  # (N,): of the values
    powers,  # (N,): of two, to multiply by
    highs,  # rows of V float16
    lows,
    sizes,  # of each: squared length, infinite where nothing can join
    places,  # the number beside, if there is one
    starts,  # (N,): the row of the first of each head
    wrong,  # (1,) int32: becomes 1 if something is not finite
    L,
    stretch,
    horizon,
    BESIDE: tl.constexpr,
    FIRST: tl.constexpr,
    V: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    X: tl.constexpr,
    T: tl.constexpr,
):
    """T rows of a head; grid (L / T, N)."""
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(bounds + head)
    length = tl.load(ends + head)
    if tl.program_id(0) * T < length:
        D: tl.constexpr = 2 * H
        at = tl.program_id(0) * T + tl.arange(0, T)
        known = at < length
        used = tl.load(there + head * L + at, mask=known, other=0) > 0
        to = tl.load(starts + head) + at
        # Bits of a float32 that is a power of two.
        scale = ((tl.load(powers + head) + 127) << 23).to(tl.float32, bitcast=True)
        d, x = tl.arange(0, W), tl.arange(0, X)
        mean = means + head * (D + C)
        one, two = _turned(keys, positions, begin + at, used, turns, stretch, H, W)
        one = tl.where(used[:, None], one - tl.load(mean + d, mask=d < H, other=0.0)[None, :], 0.0)
        two -= tl.load(mean + H + d, mask=d < H, other=0.0)[None, :]
        two = tl.where(used[:, None], two, 0.0)
        mine = (begin + at).to(tl.int64)[:, None] * C + x[None, :]
        value = tl.load(values + mine, mask=used[:, None] & (x < C)[None, :], other=0.0)
        value = value.to(tl.float32) - tl.load(mean + D + x, mask=x < C, other=0.0)[None, :]
        value = tl.where(used[:, None], value / tl.load(spans + head), 0.0) * scale
        high, low = halves(value)
        cell = to[:, None] * V + D + x[None, :]
        inside = known[:, None] & (x < C)[None, :]
        tl.store(highs + cell, high, mask=inside)
        tl.store(lows + cell, low, mask=inside)
        size = tl.sum(value * value, 1)
        q = tl.arange(0, 2 * W)
        inside = (d < H)[:, None] & (q < D)[None, :]
        factor = factors + head * D * D + d[:, None] * D + q[None, :]
        upper = tl.load(factor, mask=inside, other=0.0)
        lower = tl.load(factor + H * D, mask=inside, other=0.0)
        made = tl.dot(one, upper, input_precision="tf32x3")
        made = tl.dot(two, lower, made, input_precision="tf32x3") * scale
        size += tl.sum(made * made, 1)
        high, low = halves(made)
        cell = to[:, None] * V + q[None, :]
        fits = known[:, None] & (q < D)[None, :]
        tl.store(highs + cell, high, mask=fits)
        tl.store(lows + cell, low, mask=fits)
        if FIRST:
            odd = used & ~(size < float("inf"))
            tl.store(wrong + 0 * at, 1, mask=odd)
        tl.store(sizes + to, tl.where(used, size, float("inf")), mask=known)
        if BESIDE:
            place = tl.load(positions + begin + at, mask=known, other=0).to(tl.float32) / horizon
            tl.store(places + to, place * scale, mask=known)
