"""Which of a chunk's novel tokens are within tau of each other, a bit for each pair."""

# N streams, L tokens, D key size, C tokens of a chunk, W = C / 32 words of bits
# R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from .halves import halves, product
from .law import pick, squares


@triton.jit
def decided(keys, mine, theirs, valid, tau, slack, D: tl.constexpr, R: tl.constexpr):
    """Which pairs (R, R) are within tau: by products to 22 bits where they tell, or by the law.

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
        exact = squares(keys + pick(row, chosen, mine), keys, theirs, D) / 2 <= tau
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
def pairs(
    keys,  # (N, L, D) float32
    halved,  # (N, L, D) float16
    queues,  # (N, C): the chunk's novel tokens
    sizes,  # (N,): how many
    taus,  # (N,) float64
    strays,  # (N,): from `prepare`
    within,  # (N, C, W): a bit for each earlier token of the queue
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
        queue = queues + stream.to(tl.int64) * W * 32
        tau = tl.load(taus + stream)
        edge = (1 - tau).to(tl.float32)
        stray = tl.load(strays + stream)
        off = rough * (1 + 4 * stray) + 2 * stray
        row = tl.arange(0, R)
        d = tl.arange(0, D)
        at = block * R + row
        base = stream.to(tl.int64) * L
        mine = (base + tl.load(queue + tl.minimum(at, total - 1))) * D
        rows = tl.load(halved + mine[:, None] + d[None, :])
        table = (stream.to(tl.int64) * W * 32 + at) * W
        words = tl.arange(0, R // 32)
        for start in range(0, (block + 1) * R, R):
            theirs = (base + tl.load(queue + tl.minimum(start + row, total - 1))) * D
            sims = tl.dot(rows, tl.load(halved + theirs[:, None] + d[None, :]).T)
            found = tl.zeros((R, R // 32), tl.int32)
            # Most tiles hold no pair; only the last compares a token with itself.
            if (tl.max(sims) >= edge - off) | (start == block * R):
                valid = (start + row)[None, :] < at[:, None]
                near = sims >= edge
                if tl.sum((valid & (tl.abs(sims - edge) <= off)).to(tl.int32)) > 0:
                    near = decided(keys, mine, theirs, valid, tau, fine, D, R)
                found = pack(valid & near, R)
            tl.store(within + table[:, None] + (start // 32 + words)[None, :], found)
