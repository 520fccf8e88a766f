"""Slots of all layers at once, from where each token went."""

# N layers, H key-value heads, T tokens, M slots of all heads, D key size

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from distinctkv.hf.attention import MIN_SHARE
from distinctkv.hf.merge import Allocation

from .kv_states import Held
from .recipe import SINKS, Recipe

if TYPE_CHECKING:
    from .ours import Prepared


class Flat(NamedTuple):
    """Slots of all heads of all layers end to end, and of each of (N, H) the first and how many."""

    keys: Tensor  # (M, D)
    values: Tensor  # (M, D)
    bias: Tensor  # (M,)
    starts: Tensor  # (N, H)
    lengths: Tensor  # (N, H)
    widths: list[int]  # of the longest head of each layer

    def layer(self, number: int) -> Held:
        """One layer, its heads side by side."""
        columns = torch.arange(self.widths[number], device=self.keys.device)
        hidden = columns >= self.lengths[number, :, None]
        at = (columns + self.starts[number, :, None]).masked_fill_(hidden, 0)
        return Held(self.keys[at], self.values[at], self.bias[at].masked_fill_(hidden, -inf))


def slots(prepared: Prepared, recipe: Recipe, choice: Allocation) -> Flat:
    """Sinks are slots of one token and come first; so are the newest tokens, which come last."""
    first = torch.arange(SINKS, device=choice.owner.device).expand(len(choice.owner), -1)
    last = torch.arange(recipe.newest, device=first.device) + choice.lengths[:, None]
    lengths = choice.lengths + recipe.newest
    starts = lengths.cumsum(0) - lengths
    to = (torch.cat((first, choice.owner, last), 1) + starts[:, None]).flatten()  # (N H T)
    n = len(prepared.context.layers)
    each = lengths.view(n, -1)
    sizes = each.tolist()
    total = sum(map(sum, sizes))
    weight = prepared.shares.clamp(min=MIN_SHARE) if _attends(recipe) else None
    stands = _stands(recipe, to, weight, total)
    ones = torch.ones_like(to, dtype=torch.float32)
    counts = ones.new_zeros(total).index_add_(0, to, ones)
    if recipe.value == "own":
        values = prepared.values[stands]
    else:
        share = weight if recipe.merge.attention_mean and weight is not None else ones
        sums = ones.new_zeros(total).index_add_(0, to, share)
        summed = ones.new_zeros(total, prepared.values.shape[1])
        summed.index_add_(0, to, prepared.values.float() * share[:, None])
        values = (summed / sums[:, None]).to(prepared.values.dtype)
    added = recipe.count * counts.clamp(min=1).log()
    widths = [max(row) for row in sizes]
    return Flat(prepared.keys[stands], values, added, starts.view(n, -1), each, widths)


def _attends(recipe: Recipe) -> bool:
    return recipe.key == "heaviest" or recipe.merge.attention_mean


def _stands(recipe: Recipe, to: Tensor, weight: Tensor | None, total: int) -> Tensor:
    """The token whose key stands for each slot, (M,)."""
    tokens = torch.arange(len(to), device=to.device)
    none = tokens.new_zeros(total)
    if recipe.key == "last":
        return none.scatter_reduce(0, to, tokens, "amax", include_self=False)
    if recipe.key == "heaviest" and weight is not None:
        heaviest = weight.new_zeros(total).scatter_reduce(0, to, weight, "amax")
        tokens = tokens.masked_fill(weight < heaviest[to], len(to))
    return none.scatter_reduce(0, to, tokens, "amin", include_self=False)
