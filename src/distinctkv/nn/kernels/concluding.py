"""What follows from the decisions: slots open when a token came, its slot, each slot's opener."""

# N streams, L tokens, S room for slots, R tokens of a block

# ruff: noqa: ANN001, ANN201
# mypy: ignore-errors

import triton
import triton.language as tl

from .sieve import LEAD


@triton.jit
def look_back(
    states,  # (N, L)
    before,  # (N,): slots from before all tokens
    visible,  # (N, L): slots open when a token came go here
    L,
    R: tl.constexpr,
):
    """Count the leaders before each token; grid (N,)."""
    stream = tl.program_id(0)
    total = tl.load(before + stream)
    for start in range(0, L, R):
        token = start + tl.arange(0, R)
        place = stream.to(tl.int64) * L + token
        lead = (tl.load(states + place, mask=token < L, other=0) == LEAD).to(tl.int32)
        tl.store(visible + place, total + tl.cumsum(lead, 0) - lead, mask=token < L)
        total += tl.sum(lead, 0)


@triton.jit
def conclude(
    states,  # (N, L)
    valid,  # (N, L): 0 where padding
    found,  # (N, L): the nearest slot of those that merge
    visible,  # (N, L)
    leads,  # (N, L) int8: 1 where a token opened a slot
    slots,  # (N, L): the slot of each, -1 for padding
    openers,  # (N, S) int64: the token that opened a slot; others are left as they are
    L,
    S,
    R: tl.constexpr,
):
    """The slot of each token, and the token of each slot; grid (L / R, N)."""
    stream = tl.program_id(1)
    token = tl.program_id(0) * R + tl.arange(0, R)
    inside = token < L
    place = stream.to(tl.int64) * L + token
    lead = inside & (tl.load(states + place, mask=inside, other=0) == LEAD)
    own = tl.load(visible + place, mask=inside, other=0)
    slot = tl.where(lead, own, tl.load(found + place, mask=inside, other=-1))
    real = tl.load(valid + place, mask=inside, other=0) > 0
    tl.store(leads + place, lead.to(tl.int8), mask=inside)
    tl.store(slots + place, tl.where(real, slot, -1), mask=inside)
    tl.store(openers + stream.to(tl.int64) * S + own, token.to(tl.int64), mask=lead)
