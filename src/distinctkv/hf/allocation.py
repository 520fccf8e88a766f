"""The rule of the paper for a whole chunk: which tokens open a slot, and whose slot the rest join.

A token opens a slot when no slot before it is near. Token by token this is the leader algorithm;
all at once it is the lexicographically first maximal independent set of the graph of near pairs
(`distinctkv.nn.leaders`). Here near is a squared distance of features at or below a threshold. On
CUDA the same is done by `kernels.features`.
"""

# H heads, L tokens, S slots, F feature size

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from .. import kernels
from ..kernels.limits import OFF, TIE, placed
from ..nn.leaders import leaders, product_type

# Tokens that are settled together: few on a CPU, where work counts; on others, waiting does.
CHUNK, CHUNK_ELSEWHERE = 128, 512
WIDEST = 513  # feature size that the kernels take: a power of two, and one more


class Allocation(NamedTuple):
    """For each token the slot it went to and whether it opened it; slots of each head after it."""

    owner: Tensor  # (H, L), -1 for a token that is not there
    opened: Tensor  # (H, L)
    lengths: Tensor  # (H,)


def allocate(
    tokens: Tensor,
    present: Tensor,
    slots: Tensor,
    joinable: Tensor,
    lengths: Tensor,
    reach: float | Tensor,
) -> Allocation:
    """Send (H, L, F) tokens, in order, to (H, S, F) slots or to new ones after them.

    ``present`` (H, L) says which tokens exist. Head h has ``lengths[h]`` slots along S, of which
    those not ``joinable`` (H, S) stay as they are: they are sinks. New slots follow the last. A
    token opens a slot when its squared distance from every slot is greater than its ``reach``, one
    for all or (H, L); with a reach below 0 it opens one whatever is near, and nothing joins it. A
    distance that is no further above the reach than rounding puts it (`TIE`) equals it, and is not
    greater: so a tie is the same on every device and however a text is cut. Where F is odd, the
    last feature is taken for a place (`placed`): it may be large, and only gaps of it are squared.

    >>> at = torch.tensor([[[0.0], [9.0], [0.5], [9.5], [5.0]]])
    >>> none, empty = torch.zeros(1, 0, 1), torch.zeros(1).long()
    >>> allocate(at, torch.ones(1, 5).bool(), none, none[..., 0].bool(), empty, 1.0).owner
    tensor([[0, 1, 0, 1, 2]])
    """
    return router(tokens, present, slots, joinable, lengths, times=1)(reach)


def router(
    tokens: Tensor,
    present: Tensor,
    slots: Tensor,
    joinable: Tensor,
    lengths: Tensor,
    times: int | None = None,
) -> Callable[[float | Tensor], Allocation]:
    """`allocate` for one reach after another, so many times: what they share is done once."""
    if tokens.shape[2] <= WIDEST and kernels.available(tokens):
        from ..kernels.features import Table

        # Kernels start on the device that is current, whatever they are given.
        with torch.cuda.device(tokens.device):
            table = Table.of(tokens, present, slots, joinable, lengths)

        # Not the tokens themselves: they would be held beside the table.
        shape, device = tokens.shape[:2], tokens.device

        def route(reach: float | Tensor) -> Allocation:
            near = torch.as_tensor(reach, dtype=torch.float32, device=device).expand(shape)
            with torch.cuda.device(device):
                owner, opened, lengths = table.route(near, last=times == 1)
            return Allocation(owner.long(), opened, lengths.long())

        return route
    # Distances do not see a common shift, but float32 does: keys share a large mean. Places stay.
    centre = (tokens * present[..., None]).sum(1, keepdim=True)
    centre = centre / present.sum(1).clamp(min=1)[:, None, None]
    centre[..., placed(tokens.shape[2]) :] = 0.0
    kind = product_type(tokens)
    tokens, slots = (tokens - centre).to(kind), (slots - centre).to(kind)
    return lambda reach: _allocate(tokens, present, slots, joinable, lengths, _reach(reach, tokens))


def band(reach: Tensor, own: Tensor, places: Tensor | None) -> Tensor:
    """How far above the reach rounding puts a distance, (H, L), for tokens of squared length own.

    Less than from one position to the next, for 4 million positions.
    """
    wide = TIE * (reach + own)
    if places is None:
        return wide
    return wide + OFF * places.abs() * reach.clamp(0.0, torch.finfo(reach.dtype).max).sqrt()


def _reach(reach: float | Tensor, tokens: Tensor) -> Tensor:
    H, L, _ = tokens.shape
    return torch.as_tensor(reach, dtype=tokens.dtype, device=tokens.device).expand(H, L)


def _allocate(
    tokens: Tensor,
    present: Tensor,
    slots: Tensor,
    joinable: Tensor,
    lengths: Tensor,
    reach: Tensor,
) -> Allocation:
    """`allocate` in torch, for rows about a centre."""
    H, L, F = tokens.shape
    D = placed(F)
    sizes = slots[..., :D].square().sum(-1).masked_fill(~joinable, inf)
    owner = torch.full((H, L), -1, device=tokens.device)
    opened = torch.zeros((H, L), dtype=torch.bool, device=tokens.device)
    step = CHUNK if tokens.is_cpu else CHUNK_ELSEWHERE
    for start in range(0, L, step):
        part = slice(start, start + step)
        here, there = tokens[:, part], present[:, part]
        own = here[..., :D].square().sum(-1)
        near = reach[:, part]
        alone = near < 0
        # Scores are squared distances less the token's own size.
        bar = (near + band(near, own, here[..., D] if D < F else None) - own)[..., None]
        bar = bar.clamp(max=torch.finfo(bar.dtype).max)  # what is infinitely far is not near
        old, slot = _nearest(scores(here, slots, sizes))
        inside = scores(here, here, own.masked_fill(alone, inf))
        candidate = there & ((old > bar[..., 0]) | alone)
        lead = leaders(candidate, ((inside <= bar) & ~alone[..., None]).tril(-1))
        new = lengths[:, None] + lead.cumsum(1) - 1
        earlier = torch.ones_like(inside[0], dtype=torch.bool).tril(-1) & lead[:, None]
        close, leader = _nearest(inside.masked_fill_(~earlier, inf))
        joined = torch.where(close < old, new.gather(1, leader), slot)
        owner[:, part] = torch.where(there, torch.where(lead, new, joined), -1)
        opened[:, part] = lead
        lengths = lengths + lead.sum(1)
        if start + step < L:
            slots, sizes = _append(slots, sizes, here, own.masked_fill(alone, inf), lead, new)
    return Allocation(owner, opened, lengths)


def scores(tokens: Tensor, slots: Tensor, sizes: Tensor) -> Tensor:
    """Squared distances less the token's own size, (H, L, S); infinite to infinite size.

    Sizes are without the place.
    """
    D = placed(tokens.shape[2])
    found = torch.baddbmm(sizes[:, None], tokens[..., :D], slots[..., :D].mT, alpha=-2)
    for column in range(D, tokens.shape[2]):
        gap = tokens[..., column, None] - slots[:, None, :, column]
        found.addcmul_(gap, gap)
    return found


def _nearest(far: Tensor) -> tuple[Tensor, Tensor]:
    if far.shape[-1] == 0:
        shape, device = far.shape[:-1], far.device
        return torch.full(shape, inf, device=device), torch.full(shape, -1, device=device)
    found = far.min(-1)
    return found.values, found.indices


def _append(
    slots: Tensor, sizes: Tensor, here: Tensor, own: Tensor, lead: Tensor, new: Tensor
) -> tuple[Tensor, Tensor]:
    grow = int(new.max()) + 1 - slots.shape[1]
    if grow > 0:
        H, _, F = slots.shape
        slots = torch.cat((slots, slots.new_zeros(H, grow, F)), 1)
        sizes = torch.cat((sizes, sizes.new_full((H, grow), inf)), 1)
    head, at = lead.nonzero(as_tuple=True)
    slots[head, new[head, at]] = here[head, at]
    sizes[head, new[head, at]] = own[head, at]
    return slots, sizes
