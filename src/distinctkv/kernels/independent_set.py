"""Which of a chunk's novel tokens open a slot: pairs within reach, and the leaders among them."""

# N sequences (batch and head), L tokens, S room for slots, D key size, C tokens of a chunk,
# W = C / 32 words of bits, R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from .fp16_split import halves, product
from .nearest import COVERED, LEADER, SETTLED, pick, squared_distances


@triton.jit
def decided(keys, mine, theirs, valid, tau, slack, D: tl.constexpr, R: tl.constexpr):
    """Which pairs (R, R) are within tau: by 22-bit products where they tell, or by the reference.

    ``mine`` and ``theirs`` (R,) say where the rows stand behind ``keys``.
    """
    d = tl.arange(0, D)
    a = tl.load(keys + mine[:, None] + d[None, :])
    b = tl.load(keys + theirs[:, None] + d[None, :])
    lengths = (tl.sum(a * a, 1) - 1)[:, None] / 2 + (tl.sum(b * b, 1) - 1)[None, :] / 2
    a_high, a_low = halves(a)
    b_high, b_low = halves(b)
    over = product(a_high, a_low, b_high, b_low) - lengths - (1 - tau).to(tl.float32)
    near = over >= 0
    todo = tl.max((valid & (tl.abs(over) < slack)).to(tl.int32), 1)
    row = tl.arange(0, R)
    left = tl.sum(todo, 0)
    while left > 0:
        chosen = tl.min(tl.where(todo > 0, row, R), 0)
        exact = squared_distances(keys + pick(row, chosen, mine), keys, theirs, D) / 2 <= tau
        near = tl.where((row == chosen)[:, None], exact[None, :], near)
        todo = tl.where(row == chosen, 0, todo)
        left -= 1
    return near


@triton.jit
def pack(near, R: tl.constexpr):
    """Rows of R truths as words of 32 bits (R, R / 32)."""
    bits = near.to(tl.int32) << (tl.arange(0, R) % 32)[None, :]
    return tl.sum(tl.reshape(bits, (R, R // 32, 32)), 2)


@triton.jit
def adjacency(
    keys,  # (N, L, D) float32
    halved,  # (N, L, D) float16
    indices,  # (N, C): the chunk's novel tokens
    sizes,  # (N,): how many
    taus,  # (N,) float64
    deviations,  # (N,): from `prepare`
    adjacent,  # (N, C, W): a bit for each earlier token of the list
    rough,  # how wrong a product to 11 bits can be
    fine,  # and one to 22
    L,
    D: tl.constexpr,
    R: tl.constexpr,
    W: tl.constexpr,
):
    """Which novel tokens are within tau of an earlier one; grid (C / R, N)."""
    # The last blocks have the most to do: they begin first.
    block, stream = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    total = tl.load(sizes + stream)
    if block * R < total:
        index_list = indices + stream.to(tl.int64) * W * 32
        tau = tl.load(taus + stream)
        edge = (1 - tau).to(tl.float32)
        deviation = tl.load(deviations + stream)
        off = rough * (1 + 4 * deviation) + 2 * deviation
        row = tl.arange(0, R)
        d = tl.arange(0, D)
        at = block * R + row
        base = stream.to(tl.int64) * L
        mine = (base + tl.load(index_list + tl.minimum(at, total - 1))) * D
        rows = tl.load(halved + mine[:, None] + d[None, :])
        table = (stream.to(tl.int64) * W * 32 + at) * W
        words = tl.arange(0, R // 32)
        for start in range(0, (block + 1) * R, R):
            theirs = (base + tl.load(index_list + tl.minimum(start + row, total - 1))) * D
            sims = tl.dot(rows, tl.load(halved + theirs[:, None] + d[None, :]).T)
            found = tl.zeros((R, R // 32), tl.int32)
            # Most tiles hold no pair; only the last compares a token with itself.
            if (tl.max(sims) >= edge - off) | (start == block * R):
                valid = (start + row)[None, :] < at[:, None]
                near = sims >= edge
                if tl.sum((valid & (tl.abs(sims - edge) <= off)).to(tl.int32)) > 0:
                    near = decided(keys, mine, theirs, valid, tau, fine, D, R)
                found = pack(valid & near, R)
            tl.store(adjacent + table[:, None] + (start // 32 + words)[None, :], found)


@triton.jit
def rounds(joined, waiting):
    """Leaders among ``waiting`` (R,): those that no earlier leader is ``joined`` (R, R) to."""
    # 2: leads; 1: waits for an earlier token; 0: covered.
    rank = waiting.to(tl.int32)
    left = tl.sum(rank, 0)
    while left > 0:
        above = tl.max(tl.where(joined, rank[None, :], 0), 1)
        settled = tl.where(above == 0, 2, tl.where(above == 2, 0, 1))
        rank = tl.where(rank == 1, settled, rank)
        left = tl.sum((rank == 1).to(tl.int32), 0)
    return rank == 2


@triton.jit
def single_cover(hits, inside, start, W: tl.constexpr, R: tl.constexpr):
    """Whether one leader alone covers a token, and its place in the index_list.

    ``hits`` (R, W) are bits of leaders before this block, ``inside`` (R, R) those within it.
    """
    some = (hits != 0).to(tl.int32)
    n_words = tl.sum(some, 1)
    n_inside = tl.sum(inside.to(tl.int32), 1)
    word = tl.sum(hits, 1)
    one = (n_words + n_inside == 1) & ((n_words == 0) | ((word & (word - 1)) == 0))
    # The exponent of a power of two is the place of its bit.
    bit = (word.to(tl.uint32, bitcast=True).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    before = 32 * tl.sum(some * tl.arange(0, W)[None, :], 1) + bit
    here = start + tl.sum(tl.where(inside, tl.arange(0, R)[None, :], 0), 1)
    return one, tl.where(n_words > 0, before, here)


@triton.jit
def resolve(
    adjacent,
    indices,
    sizes,
    counts,  # (N,): slots in use
    lost,  # (N,): tokens that found no room
    states,  # (N, L)
    found,  # (N, L): the nearest slot
    given,  # (N, C): the slot that a token of the list opened
    L,
    S,
    R: tl.constexpr,
    W: tl.constexpr,
):
    """Choose the leaders of a chunk; grid (N,)."""
    stream = tl.program_id(0)
    base = stream.to(tl.int64) * W * 32
    row = tl.arange(0, R)
    words = tl.arange(0, W)
    total = tl.load(sizes + stream)
    now = tl.load(counts + stream)
    missed = tl.load(lost + stream)
    leaders = tl.zeros((W,), tl.int32)
    for start in range(0, total, R):
        at = start + row
        real = at < total
        table = adjacent + (base + at) * W
        old = real[:, None] & (words < start // 32)[None, :]
        hits = tl.load(table[:, None] + words[None, :], mask=old, other=0) & leaders[None, :]
        waiting = real & (tl.max((hits != 0).to(tl.int32), 1) == 0)
        bits = tl.load(table[:, None] + (at // 32)[None, :], mask=real[:, None], other=0)
        near = ((bits >> (row % 32)[None, :]) & 1) > 0
        lead = rounds(near & waiting[None, :] & waiting[:, None], waiting)
        slot = now + tl.cumsum(lead.to(tl.int32), 0) - 1
        lead = lead & (slot < S)
        inside = near & lead[None, :]
        reached = tl.max(inside.to(tl.int32), 1) > 0
        missed += tl.sum((waiting & (lead == 0) & (reached == 0)).to(tl.int32), 0)

        tl.store(given + base + at, slot, mask=lead)
        tl.debug_barrier()
        one, who = single_cover(hits, inside, start, W, R)
        one = one & (lead == 0) & real
        place = stream.to(tl.int64) * L + tl.load(indices + base + at, mask=real, other=0)
        tl.store(found + place, tl.load(given + base + who, mask=one, other=0), mask=one)
        state = tl.where(lead, LEADER, tl.where(one, SETTLED, COVERED))
        tl.store(states + place, state.to(tl.int8), mask=real)

        now += tl.sum(lead.to(tl.int32), 0)
        bit = lead.to(tl.int32) << (row % 32)
        for group in tl.static_range(R // 32):
            word = tl.sum(tl.where(row // 32 == group, bit, 0), 0)
            leaders = tl.where(words == start // 32 + group, word, leaders)
    tl.store(counts + stream, now)
    tl.store(lost + stream, missed)


@triton.jit
def append_slots(
    keys,  # (N, L, D) float32
    indices,
    sizes,
    states,
    given,
    slots,  # (N, S, D) float32
    highs,  # (N, S, D) float16, the two halves of a slot's key
    lows,
    shifts,  # (N, S): a half less half a slot's squared length
    C,
    L,
    S,
    D: tl.constexpr,
    R: tl.constexpr,
):
    """Copy the leaders' keys to their slots; grid (C / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    total = tl.load(sizes + stream)
    at = block * R + tl.arange(0, R)
    if block * R < total:
        index_list = stream.to(tl.int64) * C + at
        token = tl.load(indices + index_list, mask=at < total, other=0)
        place = stream.to(tl.int64) * L + token
        lead = (tl.load(states + place) == LEADER) & (at < total)
        slot = stream.to(tl.int64) * S + tl.load(given + index_list, mask=lead, other=0)
        d = tl.arange(0, D)[None, :]
        mine = tl.load(keys + place[:, None] * D + d, mask=lead[:, None], other=0.0)
        high, low = halves(mine)
        tl.store(slots + slot[:, None] * D + d, mine, mask=lead[:, None])
        tl.store(highs + slot[:, None] * D + d, high, mask=lead[:, None])
        tl.store(lows + slot[:, None] * D + d, low, mask=lead[:, None])
        tl.store(shifts + slot, (1 - tl.sum(mine * mine, 1)) / 2, mask=lead)
