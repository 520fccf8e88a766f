"""Which tokens of a chunk the old slots cover: most by 16 bits, the rest by the law."""

# N streams, L tokens, S room for slots, D key size, C tokens of a chunk
# R tokens of a block, T slots of a tile, P parts that the slots were dealt to

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from .law import closest, pick
from .nearest import similarity

# What is known of a token.
DONE = tl.constexpr(0)  # it merges, and its nearest slot is certain
NEAR = tl.constexpr(1)  # it merges; which slot is nearest must be looked at again
NOVEL = tl.constexpr(2)  # no slot open before its chunk covers it
LEAD = tl.constexpr(3)  # it opened a slot
DEAD = tl.constexpr(4)  # padding


@triton.jit
def join(tops, tiles, seconds, place, step, T: tl.constexpr, P: tl.constexpr):
    """The best over all parts: similarity, slot, tile, and the best similarity of other tiles."""
    top = tl.load(tops + place)
    tile = tl.load(tiles + place)
    second = tl.load(seconds + place)
    for part in tl.static_range(1, P):
        other = tl.load(tops + place + part * step)
        rest = tl.load(seconds + place + part * step)
        second = tl.maximum(tl.maximum(second, rest), tl.minimum(other, top))
        tile = tl.where(other > top, tl.load(tiles + place + part * step), tile)
        top = tl.maximum(other, top)
    slot = tile + T - 1 - (top & (T - 1))
    return similarity(top, T), slot, tile, similarity(second, T)


@triton.jit
def sieve(
    tops,  # (P, N, C), from `nearest`, with the next two
    tiles,
    seconds,
    keys,  # (N, L, D) float32
    slots,  # (N, S, D) float32
    counts,  # (N,): slots in use
    taus,  # (N,) float64
    certain,  # (N,): a token less novel than this is nearest to one slot alone
    strays,  # (N,): from `prepare`
    valid,  # (N, L): 0 where padding
    states,  # (N, L)
    found,  # (N, L): the nearest slot
    slack,
    begin,
    C,
    L,
    S,
    D: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    P: tl.constexpr,
):
    """Sort a chunk's tokens into done, near and novel; grid (C / R, N)."""
    block, stream = tl.program_id(0), tl.program_id(1)
    row = tl.arange(0, R)
    token = begin + block * R + row
    place = stream.to(tl.int64) * L + token
    n_slots = tl.load(counts + stream)
    tau = tl.load(taus + stream)
    edge = (1 - tau).to(tl.float32)
    stray = tl.load(strays + stream)
    off = slack * (1 + 4 * stray) + 2 * stray
    step = tl.num_programs(1).to(tl.int64) * C
    here = stream.to(tl.int64) * C + block * R + row
    top, slot, tile, second = join(tops, tiles, seconds, here, step, T, P)
    alive = tl.load(valid + place, mask=token < L, other=0) > 0
    sure = top - off > 1 - tl.load(certain + stream)
    state = tl.where((top >= edge) & (n_slots > 0), tl.where(sure, DONE, NEAR), NOVEL)

    todo = (alive & (n_slots > 0) & (top + off >= edge) & (top - off < edge)).to(tl.int32)
    # One tile holds all that could cover the token, or else every slot is asked.
    alone = (second + off < edge).to(tl.int32)
    table = slots + stream.to(tl.int64) * S * D
    left = tl.sum(todo, 0)
    while left > 0:
        chosen = tl.min(tl.where(todo > 0, row, R), 0)
        one = pick(row, chosen, alone)
        first = pick(row, chosen, tile) * one
        last = tl.where(one > 0, tl.minimum(first + T, n_slots), n_slots)
        far, _ = closest(keys + pick(row, chosen, place) * D, table, first, last, D, T)
        state = tl.where(row == chosen, tl.where(far / 2 > tau, NOVEL, NEAR), state)
        todo = tl.where(row == chosen, 0, todo)
        left -= 1

    state = tl.where(alive, state, DEAD)
    tl.store(states + place, state.to(tl.int8), mask=token < L)
    tl.store(found + place, tl.where(alive & (n_slots > 0), slot, -1), mask=token < L)


@triton.jit
def line_up(states, queues, sizes, wanted, begin, C, L, R: tl.constexpr):
    """Line up the tokens of a chunk in these states, and count them; grid (N,).

    ``wanted`` has a bit for each state that is wanted.
    """
    stream = tl.program_id(0)
    total = tl.full((), 0, tl.int32)
    for start in range(0, C, R):
        token = begin + start + tl.arange(0, R)
        inside = (start + tl.arange(0, R) < C) & (token < L)
        state = tl.load(states + stream.to(tl.int64) * L + token, mask=inside, other=0).to(tl.int32)
        chosen = inside & (((wanted >> state) & 1) > 0)
        rank = total + tl.cumsum(chosen.to(tl.int32), 0) - 1
        tl.store(queues + stream.to(tl.int64) * C + rank, token, mask=chosen)
        total += tl.sum(chosen.to(tl.int32), 0)
    tl.store(sizes + stream, total)
