"""New slots from slots and tokens that were told where to go, all heads of all layers at once."""

# M slots or tokens, N slots after, D key size, C value size

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .. import kernels
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
    # The kernel adds in any order.
    exact = torch.are_deterministic_algorithms_enabled()
    fast = not exact and kernels.available(like.keys)
    # One row more, for what goes nowhere.
    rows = total if fast else total + 1
    sums = like.values.new_zeros(rows, like.values.shape[1], dtype=torch.float32)
    # Nothing where there is nothing of the kind; see `Slots`.
    names = ("usage", "weight", "got")
    held = {name: getattr(like, name) for name in names}
    extra = {name: part.new_zeros(rows if len(part) else 0) for name, part in held.items()}
    keys, positions = _empty(like.keys, total), _empty(like.positions, total)
    counts = like.counts.new_zeros(rows)
    made = Slots(keys, sums, counts, positions, **extra, lengths=lengths)
    for part in parts if total else ():
        if fast:
            from ..kernels.reductions import pour

            with torch.cuda.device(like.keys.device):
                pour(*part, made)
        else:
            _pour(part, made)
    counts, usage, weight, got = (
        part if fast else part[:total].clone()
        for part in (made.counts, made.usage, made.weight, made.got)
    )
    whole = got if len(got) else counts.clamp(min=1)
    means = (made.values[:total] / whole[:, None]).to(like.values.dtype)
    return Slots(made.keys, means, counts, made.positions, usage, weight, got, lengths)


def _pour(part: Part, made: Slots) -> None:
    """Add a part to the slots that are made, whose values are sums; the last row is for nothing."""
    slots, to, opens = part
    first = slice(None) if opens is None else opens.nonzero()[:, 0]
    made.keys[to[first]] = slots.keys[first]
    made.positions[to[first]] = slots.positions[first]
    at = torch.where(to >= 0, to, len(made.counts) - 1)
    made.counts.index_add_(0, at, slots.counts)
    share = slots.got if len(made.got) else slots.counts.float()
    made.values.index_add_(0, at, (slots.values * share[:, None]).float())
    if len(made.usage):
        made.usage.index_add_(0, at, slots.usage)
    if len(made.weight):
        made.weight.scatter_reduce_(0, at, slots.weight, "amax")
    if len(made.got):
        made.got.index_add_(0, at, slots.got)


def _empty(like: Tensor, total: int) -> Tensor:
    return like.new_empty(total, *like.shape[1:])
