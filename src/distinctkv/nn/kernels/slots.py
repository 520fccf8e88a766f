"""What a read needs of the slots: their keys, their mean values, the logs of their counts."""

# B streams, L tokens, H heads of keys, N = B H, S room for slots, D key size, E value size
# C tokens of a chunk, R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

PLACES = tl.constexpr(16)  # the fewest columns that the matrix units take


@triton.jit
def spot(head, token, H, batch_step, token_step, head_step):
    """Where the rows of these tokens begin, in a tensor (B, L, H, ...) with these steps."""
    at = (head // H).to(tl.int64) * batch_step + (head % H).to(tl.int64) * head_step
    return at + token.to(tl.int64) * token_step


@triton.jit
def plant(
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
    place = spot(stream, token, H, batch_step, token_step, head_step)
    row = tl.load(rows + place[:, None] + d, mask=lead[:, None], other=0.0)
    at = (stream.to(tl.int64) * S + slot)[:, None] * D + d
    tl.store(slots + at, row, mask=lead[:, None])


@triton.jit
def absorb(
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
    place = spot(stream, token, H, batch_step, token_step, head_step)
    value = tl.load(values + place[:, None] + e, mask=real[:, None], other=0.0)
    at = stream.to(tl.int64) * S + slot
    tl.atomic_add(sums + at[:, None] * E + e, value.to(tl.float32), mask=real[:, None])
    tl.atomic_add(counts + at, 1.0, mask=real)


@triton.jit
def refresh(
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
