"""Which of a chunk's novel tokens open a slot, in the order in which they came.

The tokens that lead are the first maximal independent set of the graph that joins tokens within
tau of each other, which is what the rule gives token by token. `settle` finds it: block by block
against the leaders so far, and within a block in rounds, few for most data and right for any.
`append` copies the leaders' keys to the slots.
"""

# N streams, L tokens, S room for slots, D key size, C tokens of a chunk, W = C / 32 words of bits
# R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from .halves import halves
from .sieve import DONE, LEAD, NEAR


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
def sole(hits, inside, start, W: tl.constexpr, R: tl.constexpr):
    """Whether one leader alone covers a token, and its place in the queue.

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
def settle(
    within,
    queues,
    sizes,
    counts,  # (N,): slots in use
    lost,  # (N,): tokens that found no room
    states,  # (N, L)
    found,  # (N, L): the nearest slot
    given,  # (N, C): the slot that a token of the queue opened
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
        table = within + (base + at) * W
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
        one, who = sole(hits, inside, start, W, R)
        one = one & (lead == 0) & real
        place = stream.to(tl.int64) * L + tl.load(queues + base + at, mask=real, other=0)
        tl.store(found + place, tl.load(given + base + who, mask=one, other=0), mask=one)
        state = tl.where(lead, LEAD, tl.where(one, DONE, NEAR))
        tl.store(states + place, state.to(tl.int8), mask=real)

        now += tl.sum(lead.to(tl.int32), 0)
        bit = lead.to(tl.int32) << (row % 32)
        for group in tl.static_range(R // 32):
            word = tl.sum(tl.where(row // 32 == group, bit, 0), 0)
            leaders = tl.where(words == start // 32 + group, word, leaders)
    tl.store(counts + stream, now)
    tl.store(lost + stream, missed)


@triton.jit
def append(
    keys,  # (N, L, D) float32
    queues,
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
        queue = stream.to(tl.int64) * C + at
        token = tl.load(queues + queue, mask=at < total, other=0)
        place = stream.to(tl.int64) * L + token
        lead = (tl.load(states + place) == LEAD) & (at < total)
        slot = stream.to(tl.int64) * S + tl.load(given + queue, mask=lead, other=0)
        d = tl.arange(0, D)[None, :]
        mine = tl.load(keys + place[:, None] * D + d, mask=lead[:, None], other=0.0)
        high, low = halves(mine)
        tl.store(slots + slot[:, None] * D + d, mine, mask=lead[:, None])
        tl.store(highs + slot[:, None] * D + d, high, mask=lead[:, None])
        tl.store(lows + slot[:, None] * D + d, low, mask=lead[:, None])
        tl.store(shifts + slot, (1 - tl.sum(mine * mine, 1)) / 2, mask=lead)
