"""Old tokens of the window into slots: all layers, streams and heads in a few steps."""

# G layers of a group, B streams, H key-value heads, N = G B H, L tokens of each, S slots of each

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from .allocation import Allocation
from .comparing import compare
from .grouping import Group, groups
from .importance import LEAST, reach, weights
from .layer import DistinctLayer
from .metric import Metric
from .plan import Plan
from .pooling import Part, pool
from .slots import Slots

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
