"""Ours at every size at once: the slots of `distinct_cache`, with all layers in one look.

A context is read once, and the cache is made at many sizes and in many ways. What they share is
made once: features, attention, and the looks of each search. A test holds these slots equal to
those of the cache. A `Recipe` can also do what the cache cannot: it is here to find out what helps.
"""

# N layers, H key-value heads, T tokens, L of them that may merge, S slots, D key size, F feature

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from math import exp, log
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distinctkv.hf.attention import MIN_SHARE
from distinctkv.hf.budget import least_threshold
from distinctkv.hf.merge import Allocation, assigner
from distinctkv.hf.metric import Moments
from distinctkv.hf.model_support import ModelSpec

from .kv_states import Context, Held, Layer
from .pool import slots
from .recipe import SINKS, Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Prepared:
    """A context with what all recipes need of it."""

    def __init__(self, model: PreTrainedModel, context: Context) -> None:
        self.context = context
        rotary = ModelSpec.of(model).rotary
        self.positions = torch.arange(len(context), device=context.ids.device)
        made = []
        for layer in context.layers:
            queries = rotary.unrotate(layer.queries, self.positions[None, None])
            real = torch.ones_like(context.ids, dtype=torch.bool)
            moments = Moments.of(queries, layer.values, real, layer.module.scaling)
            places = self.positions.expand(layer.keys.shape[1], -1)
            keys = rotary.unrotate(layer.keys[0], places)
            made.append(moments.scale(0).features(keys, layer.values[0]))
        self.features = torch.cat(made)  # (N H, T, F)
        self.keys = torch.cat([layer.keys[0] for layer in context.layers]).flatten(0, 1)
        self.values = torch.cat([layer.values[0] for layer in context.layers]).flatten(0, 1)
        self.looks: dict[tuple[float | None, ...], dict[float, Allocation]] = {}
        self.ended: dict[int, float] = {}
        self.weights: dict[tuple[float | None, ...], Tensor] = {}
        self.routers: dict[tuple[float | None, int], Callable[[Tensor], Allocation]] = {}

    def rest(self, recent: int) -> slice:
        """The tokens that may merge."""
        return slice(SINKS, len(self.context) - recent)

    @cached_property
    def shares(self) -> Tensor:
        """Attention that every token got, (N H T)."""
        return torch.cat([layer.received.shares.flatten() for layer in self.context.layers])

    def weight(self, recipe: Recipe) -> Tensor:
        """By what the distances of the tokens that may merge are multiplied, (N H, L)."""
        if recipe.near not in self.weights:
            asked = torch.flip(self.positions + 1, (0,))
            self.weights[recipe.near] = torch.cat(
                [self._layer_weight(layer, asked, recipe) for layer in self.context.layers]
            )
        return self.weights[recipe.near]

    def _layer_weight(self, layer: Layer, asked: Tensor, recipe: Recipe) -> Tensor:
        rest = self.rest(recipe.newest)
        if recipe.peak:
            paid = layer.received.peak[:, rest]
            # Relative to what is usual in this layer, or the threshold would mean something else.
            return (paid / paid.mean()).clamp(min=MIN_SHARE) ** recipe.peak
        mean = (layer.received.shares[:, rest] / asked[rest]).clamp(min=MIN_SHARE)
        return mean**recipe.merge.importance

    def look(self, recipe: Recipe, threshold: float) -> Allocation:
        """Where tokens go at a threshold."""
        there = self.looks.setdefault(recipe.near, {})
        if threshold not in there:
            near = threshold / self.weight(recipe)
            there[threshold] = self._router(recipe.merge.horizon, recipe.newest)(near)
        return there[threshold]

    def _router(self, horizon: float | None, recent: int) -> Callable[[Tensor], Allocation]:
        if (horizon, recent) not in self.routers:
            self.routers.clear()  # one is as large as the context
            features = self.features
            if horizon is not None:
                place = (self.positions / horizon).expand(len(features), -1)
                features = torch.cat((features, place[..., None]), -1)
            sinks, tokens = features[:, :SINKS], features[:, self.rest(recent)]
            none = torch.zeros_like(sinks[..., 0], dtype=torch.bool)
            lengths = torch.full((len(features),), SINKS, device=features.device)
            present = torch.ones_like(tokens[..., 0], dtype=torch.bool)
            self.routers[horizon, recent] = assigner(tokens, present, sinks, none, lengths)
        return self.routers[horizon, recent]

    def search(self, recipe: Recipe, part: float) -> float:
        """The least threshold that leaves this part."""
        n_heads = len(self.features)
        each = part * len(self.context) - recipe.newest
        goal = max(int(each * n_heads), n_heads * (SINKS + 1))

        def slots(at: float) -> int:
            return int(self.look(recipe, at).lengths.sum())

        # A threshold of zero or below merges nothing and has no logarithm to guess by.
        found = [(at, slots(at)) for at in self.looks.get(recipe.near, {}) if at > 0]
        # Before it has looked, a recipe begins where the one before it ended.
        start = _guess(sorted(found), goal) if found else self.ended.get(goal, 1.0)
        self.ended[goal] = least_threshold(slots, goal, start)
        return self.ended[goal]


def _guess(found: Sequence[tuple[float, int]], goal: int) -> float:
    """Where the looks so far say that the goal is met: on the line of their logarithms.

    >>> round(_guess([(1.0, 1000), (4.0, 250)], 500), 3)
    2.0
    """
    if len(found) < 2:
        return found[0][0] * found[0][1] / goal if found else 1.0
    over = max([i for i, (_, n) in enumerate(found) if n > goal], default=0)
    (a, many), (b, few) = found[min(over, len(found) - 2) : min(over, len(found) - 2) + 2]
    if many == few:
        return b
    steep = min(max(log(b / a) / log(many / few), 0.25), 4.0)
    return min(max(a * exp(steep * log(many / goal)), a / 16), b * 16)


@lru_cache(maxsize=1)
def prepare(model: PreTrainedModel, context: Context) -> Prepared:
    """Once for a context; the one before it is let go."""
    return Prepared(model, context)


def held(prepared: Prepared, recipe: Recipe, threshold: float) -> list[Held]:
    """Slots, sinks and newest tokens of every layer."""
    made = slots(prepared, recipe, prepared.look(recipe, threshold))
    return [made.layer(number) for number in range(len(prepared.context.layers))]


def by_part(recipe: Recipe) -> Callable[..., list[list[Held]]]:
    """A way that is told what part to keep."""

    def hold(model: PreTrainedModel, context: Context, parts: Sequence[float]) -> list[list[Held]]:
        made, found = prepare(model, context), []
        for part in parts:
            sized = recipe.sized(len(context), part)
            found.append(held(made, sized, made.search(sized, part)))
        return found

    return hold


def by_threshold(recipe: Recipe, threshold: float) -> Callable[..., list[list[Held]]]:
    """A way that sizes itself."""

    def hold(model: PreTrainedModel, context: Context, parts: Sequence[float]) -> list[list[Held]]:
        made, sized = prepare(model, context), recipe.sized(len(context))
        at = recipe.threshold(threshold, len(context))
        return [held(made, sized, at) for _ in parts]

    return hold
