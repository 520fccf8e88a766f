"""Slots into fewer slots: those that are near at a larger threshold, or those least used gone."""

# G layers of a group, B streams, H key-value heads, N = G B H, S slots of each, M slots of all

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import torch
from torch import Tensor

from .allocation import Allocation
from .comparing import Route, compare
from .grouping import Group, groups
from .layer import DistinctLayer
from .pooling import Part, pool

FAR = 3e38  # a threshold at which all is one, for streams that are not asked about


class Regrouping:
    """How the slots of some layers merge among themselves at one threshold after another."""

    def __init__(self, group: Group, sinks: int, *, alone: bool) -> None:
        self.group = group
        self.there = group.held.there()
        weight = group.weight()
        # A threshold is divided by this: what is spared, and a sink, is below 0 at any.
        self.weight = torch.where(self.there & weight.isfinite(), weight, -1.0)
        self.weight[:, :sinks] = -1.0
        self.alone = alone
        self.prepared: Route | None = None
        self.choices: list[Allocation] = []

    def look(self, thresholds: Mapping[int, float]) -> Tensor:
        """Slots that would be left of each stream, (B,), where it has a threshold."""
        group = self.group
        asked = [thresholds.get(stream, FAR) for stream in range(group.B)]
        at = group.heads(asked)[:, None]
        choice = self._router(at)(at / self.weight)
        self.choices.append(choice)
        return group.each(choice.lengths).sum((0, 2))

    def _router(self, at: Tensor) -> Route:
        if self.prepared is not None:
            return self.prepared
        if self.alone:
            self.prepared, _ = compare(self.group, self.group.held, self.there, None)
            return self.prepared
        # The features of other groups would not fit beside these: they are made again, for those
        # that are asked about.
        return compare(self.group, self.group.held, self.there & (at < FAR), None, times=1)[0]

    def coarsen(self, looks: Mapping[int, int]) -> None:
        """Merge each stream as at one of the looks, those without as they are."""
        group = self.group
        S = self.there.shape[1]
        stay = torch.arange(S, device=group.device).expand_as(self.there)
        owner, opened = torch.where(self.there, stay, -1), self.there
        which = group.heads([looks.get(stream, -1) for stream in range(group.B)])
        lengths = group.lengths()
        for number in set(looks.values()):
            mine, choice = which == number, self.choices[number]
            owner = torch.where(mine[:, None], choice.owner, owner)
            opened = torch.where(mine[:, None], choice.opened, opened)
            lengths = torch.where(mine, choice.lengths, lengths)
        starts = lengths.cumsum(0) - lengths
        # By numbers: for a mask the device would be waited for.
        held = group.held.rows() * S + group.held.places()
        to, opens = (starts[:, None] + owner).flatten()[held], opened.flatten()[held]
        new = lengths.cpu().view_as(group.held.lengths)
        group.give(pool([Part(group.held, to, opens)], new))
        group.move(owner)


def evict(group: Group, keep: Tensor) -> None:
    """Drop the slots that are not to ``keep``, (M,)."""
    held = group.held
    lengths = torch.zeros(group.n_heads, dtype=torch.int64, device=keep.device)
    lengths.index_add_(0, held.rows(), keep.long())
    starts = lengths.cumsum(0) - lengths
    group.give(held.kept(keep, lengths.cpu().view_as(held.lengths)))
    place = torch.where(keep, keep.cumsum(0) - 1 - starts[held.rows()], -1)
    group.move(held.wide(place))


def evict_least_used(layers: Sequence[DistinctLayer], extra: list[int], sinks: int) -> None:
    """Drop so many slots of each stream wherever they are used least."""
    parts = [Group(layers, part, None) for part in groups(layers)]
    device = parts[0].device
    usage = torch.cat([_usage(group, sinks).to(device) for group in parts])
    streams = [group.held.rows() // group.H % group.B for group in parts]
    stream = torch.cat([numbers.to(device) for numbers in streams])
    # Stable: of two slots used alike the older layer, head and slot goes, always the same.
    order = usage.sort(stable=True).indices
    order = order[stream[order].sort(stable=True).indices]
    n_slots = stream.bincount(minlength=len(extra))
    first = n_slots.cumsum(0) - n_slots
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=device))
    most = torch.tensor(extra, device=device)[stream]
    keep = (rank - first[stream] >= most) | usage.isinf()
    sizes = [len(group.held) for group in parts]
    for group, part in zip(parts, torch.split(keep, sizes), strict=True):
        evict(group, part.to(group.device))


def _usage(group: Group, sinks: int) -> Tensor:
    """How much each slot is used, (M,); infinitely if it is a sink."""
    return group.held.usage.masked_fill(group.held.places() < sinks, inf)
