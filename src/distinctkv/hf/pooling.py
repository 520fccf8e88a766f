"""New slots from slots and tokens that were told where to go, all heads of all layers at once."""

# M slots or tokens, N slots after, D key size, C value size

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .slots import Slots


class Part(NamedTuple):
    """Slots, or tokens as slots of one; where each goes of all new slots; whether it is first."""

    slots: Slots
    to: Tensor  # (M,), -1 if it goes nowhere
    opens: Tensor | None  # (M,), all if None


def pool(parts: Sequence[Part], lengths: Tensor) -> Slots:
    """The slots, ``lengths`` (B, H) of each head, that parts make together.

    A slot keeps the key and position of its first token; its value is the mean of all, or that by
    the attention they got. It weighs what the weightiest of its tokens does.
    """
    like = parts[0].slots
    total = int(lengths.sum())
    keys, positions = _empty(like.keys, total), _empty(like.positions, total)
    # One row more, for what goes nowhere.
    counts = like.counts.new_zeros(total + 1)
    values = like.values.new_zeros(total + 1, like.values.shape[1], dtype=torch.float32)
    # Nothing where there is nothing of the kind; see `Slots`.
    usage = like.usage.new_zeros(total + 1 if len(like.usage) else 0)
    weight = like.weight.new_zeros(total + 1 if len(like.weight) else 0)
    got = like.got.new_zeros(total + 1 if len(like.got) else 0)
    for slots, to, opens in parts if total else ():
        first = slice(None) if opens is None else opens.nonzero()[:, 0]
        keys[to[first]] = slots.keys[first]
        positions[to[first]] = slots.positions[first]
        at = torch.where(to >= 0, to, total)
        counts.index_add_(0, at, slots.counts)
        share = slots.got if len(got) else slots.counts.float()
        values.index_add_(0, at, (slots.values * share[:, None]).float())
        if len(usage):
            usage.index_add_(0, at, slots.usage)
        if len(weight):
            weight.scatter_reduce_(0, at, slots.weight, "amax")
        if len(got):
            got.index_add_(0, at, slots.got)
    counts, usage, weight, got = (rows[:total].clone() for rows in (counts, usage, weight, got))
    whole = got if len(got) else counts.clamp(min=1)
    means = (values[:total] / whole[:, None]).to(like.values.dtype)
    return Slots(keys, means, counts, positions, usage, weight, got, lengths)


def _empty(like: Tensor, total: int) -> Tensor:
    return like.new_empty(total, *like.shape[1:])
