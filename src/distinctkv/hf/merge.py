"""Old tokens of the window into slots, and slots into fewer: all layers and heads together."""

# G layers of a group, B sequences, H key-value heads, N = G B H, L tokens and S slots of each

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from .. import kernels
from .allocation import Allocation, router
from .attention import LEAST, reach, weights
from .config import Plan
from .layer import DistinctLayer
from .metric import Metric, Moments, Scale
from .slots import Part, Slots, pool

# Bytes of features at a time, five times as much is needed to make and compare them. Elsewhere half
# as much more is: so many, or half of what is held if that is more, but not beyond the last.
MOST, MOST_ELSEWHERE, MOST_EVER = 2**26, 2**28, 2**30
WIDEST = 128  # numbers of a key, and of a value, that kernels make features of
GRID = 65_535  # heads that a kernel can count


class Group:
    """Some layers, their slots end to end, and the metric of each of their heads.

    As streams there are all streams of the first layer, all of the second, and so on.
    """

    def __init__(
        self,
        layers: Sequence[DistinctLayer],
        numbers: list[int],
        metric: Metric | None,
        horizon: float | None = None,
    ) -> None:
        self.layers, self.numbers = [layers[i] for i in numbers], numbers
        first = self.layers[0]
        self.B, self.H = int(first.keys.shape[0]), int(first.keys.shape[1])
        self.device = first.keys.device
        none = Slots.none(first.keys, first.values)
        self.held = Slots.join([layer.slots or none for layer in self.layers])
        self.metric, self.horizon = metric, horizon

    @property
    def n_heads(self) -> int:
        """Heads of all streams of all layers."""
        return len(self.layers) * self.B * self.H

    def lengths(self) -> Tensor:
        """Slots of each of them, (N,), beside the slots."""
        return self.held.bounds().diff().long()

    def tokens(self) -> Tensor:
        """Tokens in the slots of each of them, (N,)."""
        held = self.held
        none = torch.zeros(self.n_heads, dtype=torch.int64, device=self.device)
        return none.index_add_(0, held.rows(), held.counts.long())

    def scale(self) -> Scale:
        """The metric of each of them."""
        if self.metric is not None:
            return self.metric.scales(self.numbers, self.B, self.device)
        return Moments.scales([m for m in (layer.moments for layer in self.layers) if m])

    def tokens_at(self, scale: Scale, tokens: Slots) -> Tensor:
        """Where as many tokens of each head stand, (N, L, F)."""
        first, L = self.layers[0], len(tokens) // self.n_heads
        assert first.positions is not None
        # Turned back all at once: the positions are those of the streams, whatever layer and head.
        keys = tokens.keys.view(len(self.layers), self.B, self.H, L, -1)
        keys = first.rotary.unrotate(keys, first.positions[:, None, :L]).view(self.n_heads, L, -1)
        places = self.places(tokens.positions.view(-1, L))
        return scale.features(keys, tokens.values.view(self.n_heads, L, -1), places)

    def slots_at(self, scale: Scale) -> Tensor:
        """Where the slots stand, (N, S, F); nowhere in particular where there is none."""
        held = self.held
        keys, values = held.wide(held.keys), held.wide(held.values)
        positions = held.wide(held.positions)
        keys = self.layers[0].rotary.unrotate(keys, positions)
        return scale.features(keys, values, self.places(positions))

    def places(self, positions: Tensor) -> Tensor | None:
        """Positions in units of the horizon, if there is one."""
        return None if self.horizon is None else positions.float() / self.horizon

    def weight(self) -> Tensor:
        """What the slots weigh, (N, S)."""
        held = self.held
        if len(held.weight):
            return held.wide(held.weight)
        return held.there().float()

    def each(self, tensor: Tensor) -> Tensor:
        """A tensor (N, ...) as (layers, B, H, ...)."""
        return tensor.view(len(self.layers), self.B, self.H, *tensor.shape[1:])

    def streams(self, tensor: Tensor) -> Tensor:
        """A tensor (B, ...) of the streams as (N, ...) of their heads."""
        wide = tensor[None, :, None].expand(len(self.layers), self.B, self.H, *(tensor.shape[1:]))
        return wide.reshape(self.n_heads, *tensor.shape[1:])

    def heads(self, each: Sequence[float]) -> Tensor:
        """A number of each stream as (N,) of their heads; the device is not waited for."""
        wide = torch.tensor(each, dtype=torch.float32)[None, :, None].expand(
            len(self.layers), self.B, self.H
        )
        return wide.flatten().to(self.device, non_blocking=True)

    def give(self, slots: Slots) -> None:
        """Let the layers have these slots."""
        for layer, part in zip(self.layers, slots.parts(len(self.layers)), strict=True):
            layer.slots = part

    def move(self, moved: Tensor) -> None:
        """Where a trace is kept: slot s of head n is ``moved`` (N, S) now, or -1 if it is gone."""
        for layer, where in zip(self.layers, self.each(moved), strict=True):
            if layer.owner is not None and where.shape[-1]:
                owner = layer.owner.long()
                found = where.gather(2, owner.clamp(min=0))
                layer.owner = found.masked_fill(owner < 0, -1).to(layer.owner.dtype)


def groups(layers: Sequence[DistinctLayer], columns: int = 0) -> list[list[int]]:
    """Numbers of layers to take together, when each head brings so many new columns."""
    found: list[list[int]] = []
    size, elsewhere = 0, _most_elsewhere(layers)
    for number, layer in enumerate(layers):
        B, H, _, D = layer.keys.shape
        cpu, slots = layer.keys.is_cpu, layer.slots
        held = 0
        if slots is not None:
            # Kernels take heads as long as they are, torch all as long as the longest.
            held = len(slots) if featured(layer) else B * H * int(slots.lengths.max())
        now = (B * H * columns + held) * (D + layer.values.shape[-1]) * 4
        most = MOST if cpu else elsewhere
        device = layer.keys.device
        fits = found and size + now <= most and (len(found[-1]) + 1) * B * H <= GRID
        if fits and layers[found[-1][-1]].keys.device == device:
            found[-1].append(number)
            size += now
        else:
            found.append([number])
            size = now
    return found


def featured(layer: DistinctLayer) -> bool:
    """Whether kernels make the features of a layer: its factor fits, and all of a key turns."""
    D, C = layer.keys.shape[-1], layer.values.shape[-1]
    whole = len(layer.rotary.frequencies) * 2 == D
    return whole and max(D, C) <= WIDEST and kernels.available(layer.keys)


def _most_elsewhere(layers: Sequence[DistinctLayer]) -> int:
    held = sum(
        part.keys.nbytes + part.values.nbytes
        for layer in layers
        for part in (layer, layer.slots)
        if part is not None
    )
    return max(MOST_ELSEWHERE, min(held // 2, MOST_EVER))


# N heads of all layers and streams, L tokens of each, S slots of each


Route = Callable[[Tensor], Allocation]


def compare(
    group: Group, tokens: Slots, present: Tensor, joinable: Tensor | None, times: int | None = None
) -> tuple[Route, Tensor]:
    """`allocation.router` of the tokens, and whether a feature of one is not finite, ().

    ``present`` (N, L) says which tokens are there; before them are the slots of the group, of which
    some are ``joinable`` (N, S), or none where that is None.
    """
    scale, rotary = group.scale(), group.layers[0].rotary
    if featured(group.layers[0]):
        from ..kernels import features

        rows = features.Rows(tokens, present)
        held = None if joinable is None else features.Rows(group.held, joinable)
        with torch.cuda.device(present.device):
            table, wrong = features.tabulate(rows, held, scale, rotary, group.horizon)

        def route(reach: Tensor) -> Allocation:
            with torch.cuda.device(present.device):
                return Allocation(*table.route(reach.float(), last=times == 1))

        return route, wrong
    again = tokens is group.held
    here = group.slots_at(scale) if again else group.tokens_at(scale, tokens)
    # Padding may hold anything.
    here.masked_fill_(~present[..., None], 0.0)
    wrong = ~torch.linalg.vector_norm(here, inf).isfinite()
    if joinable is None:
        there, joinable = here[:, :0], present[:, :0]
        lengths = torch.zeros(len(present), dtype=torch.int64, device=present.device)
    else:
        there, lengths = group.slots_at(scale), group.lengths()
    return router(here, present, there, joinable, lengths, times), wrong


# G layers of a group, B streams, H key-value heads, N = G B H, L tokens of each, S slots of each


DOUBT = 2  # not finite: perhaps no more than padding


def absorb_all(
    layers: Sequence[DistinctLayer],
    columns: int,
    plan: Plan,
    thresholds: Sequence[float | None],
    metric: Metric | None,
) -> Tensor:
    """Turn the oldest ``columns`` of each window into slots; how many heads opened one, (B, L).

    With no threshold yet, each token opens a slot of its own.
    """
    total: Tensor | None = None
    for numbers in groups(layers, columns):
        group = Group(layers, numbers, metric, plan.care.horizon)
        opened = _absorb(group, columns, plan, thresholds)
        total = opened if total is None else total + opened.to(total.device)
    assert total is not None
    return total


def _absorb(group: Group, columns: int, plan: Plan, thresholds: Sequence[float | None]) -> Tensor:
    real = group.layers[0].real
    assert real is not None
    present = group.streams(real[:, :columns])
    # The number of a token among those of its stream that are not slots yet.
    order = group.streams(real[:, :columns].cumsum(1) - 1)
    sink = present & (order + group.lengths()[:, None] < plan.sinks)
    weight = _weights(group, plan, present & ~sink)
    tokens = _tokens(group, columns, plan, weight)
    if all(at is None for at in thresholds):
        lengths = group.lengths()
        owner = torch.where(present, lengths[:, None] + order, -1)
        choice = Allocation(owner, present, lengths + present.sum(1))
        wrong = _lost(group).long() + DOUBT * _odd(tokens)
    else:
        known = [-1.0 if at is None else at for at in thresholds]
        at = group.heads(known)[:, None]
        near = at.expand(present.shape) if weight is None else reach(at, weight)
        choice, wrong = _choose(group, tokens, present, near.masked_fill(sink, -1.0), plan.sinks)
    _take(group, tokens, choice, wrong, plan.surprise.decay if plan.surprise else 1.0)
    _trace(group, choice)
    _shorten(group, columns)
    opened: Tensor = group.each(choice.opened).sum((0, 2)).float()
    return opened


def _weights(group: Group, plan: Plan, rest: Tensor) -> Tensor | None:
    """What the tokens weigh, (N, L), where attention makes them differ."""
    got = [layer.got for layer in group.layers if layer.got is not None]
    if not got or not plan.care.weighs:
        return None
    L = rest.shape[1]
    asked = group.layers[0].asking()[:, :L]
    rest = group.each(rest)
    # Every token is counted in one slot of each head; sinks were never to be spared.
    before = (group.tokens() - plan.sinks).clamp(min=0)
    before = group.each(before).sum(-1)
    weight = weights(torch.stack(got)[..., :L], asked, plan.care, rest, before)
    return torch.where(rest, weight, 1.0).flatten(0, 2)


def _tokens(group: Group, columns: int, plan: Plan, weight: Tensor | None) -> Slots:
    """The oldest tokens as slots of one, padding too."""
    layers, N, L = group.layers, group.n_heads, columns
    first = layers[0]
    assert first.positions is not None
    keys = torch.stack([layer.keys[:, :, :L] for layer in layers]).view(N * L, -1)
    values = torch.stack([layer.values[:, :, :L] for layer in layers]).view(N * L, -1)
    ones = torch.ones(N * L, dtype=torch.int32, device=group.device)
    positions = group.streams(first.positions[:, :L]).flatten()
    usage = ones.float() if first.usage else ones.new_zeros(0, dtype=torch.float32)
    heavy = usage.new_zeros(0) if weight is None else weight.flatten()
    got = _got(group, L) if plan.care.attended else heavy.new_zeros(0)
    lengths = torch.full((len(layers) * group.B, group.H), L)
    made = Slots(keys, values, ones, positions, usage, heavy, got, lengths)
    made._bounds.append(torch.arange(0, N * L + 1, L, dtype=torch.int32, device=group.device))
    return made


def _got(group: Group, columns: int) -> Tensor:
    """Attention that the oldest tokens got, (N L,), never nothing: it is divided by.

    A sum over the queries that saw them, not a mean: a mean lost more, see `Care`.
    """
    got = [layer.got[..., :columns] for layer in group.layers if layer.got is not None]
    return torch.stack(got).flatten().clamp(min=LEAST)


def _odd(tokens: Slots) -> Tensor:
    """Whether a number of some key or value is not finite, (); it may be one of the padding."""
    sizes = [torch.linalg.vector_norm(rows, inf) for rows in (tokens.keys, tokens.values)]
    odd: Tensor = ~torch.stack(sizes).isfinite().all()
    return odd


def _wrong(tokens: Slots, present: Tensor) -> bool:
    """Whether there is a key or a value that is not finite; padding may hold anything."""
    N, L = present.shape
    sizes = [
        torch.linalg.vector_norm(rows.view(N, L, -1), inf, dim=-1)
        for rows in (tokens.keys, tokens.values)
    ]
    return bool((present & ~(sizes[0].isfinite() & sizes[1].isfinite())).any())


def _lost(group: Group) -> Tensor:
    """Whether the metric that slots will merge by is not finite, ()."""
    seen = [] if group.metric else [layer.moments for layer in group.layers]
    sums = [one.queries for one in seen if one is not None]
    if not sums:
        return torch.zeros((), dtype=torch.bool, device=group.device)
    lost: Tensor = ~torch.linalg.vector_norm(torch.stack(sums), inf).isfinite()
    return lost


def _choose(
    group: Group, tokens: Slots, present: Tensor, near: Tensor, sinks: int
) -> tuple[Allocation, Tensor]:
    """Where the tokens go, and whether there was a feature that is not finite."""
    joinable = None
    if len(group.held):
        joinable = group.held.there() & group.weight().isfinite()
        joinable[:, :sinks] = False
    route, wrong = compare(group, tokens, present, joinable, times=1)
    return route(near), wrong


def _take(group: Group, tokens: Slots, choice: Allocation, wrong: Tensor, decay: float) -> None:
    """Give the layers the slots that follow from a choice."""
    # The one time that the device is waited for.
    lengths = torch.cat((choice.lengths, wrong.long()[None])).cpu()
    doubt = int(lengths[-1])
    if doubt and (doubt != DOUBT or _wrong(tokens, choice.owner >= 0)):
        raise FloatingPointError(
            "the model gave keys or values that are not finite; load it in a type of wider range, "
            "bfloat16 or float32, and reset() the cache"
        )
    held, N = group.held, group.n_heads
    if not len(held) and not len(tokens.usage) and int(lengths[:N].sum()) == len(tokens):
        # Each token is a slot of its own, and there is nothing else.
        group.give(replace(tokens, positions=tokens.positions.clone()))
        return
    starts = choice.lengths.cumsum(0) - choice.lengths
    to = torch.where(choice.owner >= 0, starts[:, None] + choice.owner, -1).flatten()
    if len(tokens.usage):
        here = choice.owner >= 0
        ages = here.flip(1).cumsum(1).flip(1) - 1
        tokens = replace(tokens, usage=(decay ** ages.float()).flatten())
        faded = decay ** here.sum(1).float()
        held = replace(held, usage=held.usage * faded[held.rows()]) if len(held) else held
    parts = [Part(tokens, to, choice.opened.flatten())]
    if len(held):
        stay = starts[held.rows()] + held.places()
        parts.append(Part(held, stay, None))
    group.give(pool(parts, lengths[:N].clone().view(held.lengths.shape)))


def _trace(group: Group, choice: Allocation) -> None:
    if not group.layers[0].trace:
        return
    for layer, new in zip(group.layers, group.each(choice.owner.to(torch.int32)), strict=True):
        layer.owner = new if layer.owner is None else torch.cat((layer.owner, new), 2)


def _shorten(group: Group, columns: int) -> None:
    """Let go of the oldest columns of the windows; copies, so that their memory goes too."""
    layers = group.layers
    first = layers[0]
    assert first.positions is not None
    assert first.real is not None
    keys = torch.stack([layer.keys[:, :, columns:] for layer in layers])
    values = torch.stack([layer.values[:, :, columns:] for layer in layers])
    positions, real = first.positions[:, columns:].clone(), first.real[:, columns:].clone()
    for layer, key, value in zip(layers, keys, values, strict=True):
        layer.keys, layer.values, layer.positions, layer.real = key, value, positions, real
    got = [layer.got[..., columns:] for layer in layers if layer.got is not None]
    if got:
        for layer, rest in zip(layers, torch.stack(got), strict=True):
            layer.got = rest


# G layers of a group, B streams, H key-value heads, N = G B H, S slots of each, M slots of all


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
