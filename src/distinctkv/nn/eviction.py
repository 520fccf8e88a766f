"""One token at a time: a gate decides which open slots, a budget evicts the least used.

Approach II inside a layer. With `above` the decisions are those of `distinctkv.rule.Rule`, for
every head of every sequence at once: what a token finds depends on what was evicted before it.
"""

# B sequences, H heads, S slots, D key size, C value size

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from ..policy import Concentration
from ..rule import MAX_USE_WEIGHT
from .allocation import Allocation
from .leaders import squared
from .mixer import reads_without_sync
from .slot_attention import Value
from .slot_state import SlotState
from .slot_update import finite, write_one


class Usage(NamedTuple):
    """What eviction knows of the slots, row for row as in their `SlotState`; sums in float64."""

    usage: Tensor  # (B, H, S)
    last_seen: Tensor  # (B, H, S), the token that used the slot last
    ids: Tensor  # (B, H, S), numbers of the slots in the order in which they opened
    temperature: Tensor  # (B, H)
    use_weight: Tensor  # (B, H), what a use adds now: (1/decay)^t
    n_tokens: Tensor  # (B, H)
    n_opened: Tensor  # (B, H)

    @classmethod
    def empty(cls, slots: SlotState) -> Usage:
        """For slots of which none is open yet."""
        per_slot, count = torch.zeros_like(slots.counts, dtype=torch.float64), slots.n_slots
        whole, real = torch.zeros_like(per_slot, dtype=torch.int64), per_slot[..., 0]
        return cls(
            per_slot, whole, whole.clone(), real.clone(), torch.ones_like(real),
            torch.zeros_like(count), torch.zeros_like(count),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(x.nbytes for x in self)

    def resized(self, capacity: int) -> Usage:
        """A copy with room for this many slots."""
        more = capacity - self.usage.shape[2]
        parts = (torch.nn.functional.pad(x, (0, more)) for x in self[:3])
        return Usage(*parts, *(x.clone() for x in self[3:]))

    def clone(self) -> Usage:
        """A copy that later tokens do not touch."""
        return Usage(*(x.clone() for x in self))

    def detach(self) -> Usage:
        """A copy: no gradient passes to these numbers."""
        return self.clone()

    def index_select(self, rows: Tensor) -> Usage:
        """A copy with these rows of the batch."""
        return Usage(*(x.index_select(0, rows) for x in self))


@torch.no_grad()
def write(
    k: Tensor,
    v: Tensor,
    slots: SlotState,
    usage: Usage,
    opens: Callable[[Tensor, Tensor], Tensor],
    concentration: Concentration,
    *,
    mask: Tensor | None = None,
    value: Value = "mean",
    embed: Callable[[Tensor], Tensor] = lambda keys: keys,
) -> tuple[Allocation, Usage]:
    """Write one token (B, 1, H, D) of each sequence and evict; buffers of ``slots`` in place.

    There must be room for one more slot. ``opens`` takes the novelty (B, H) and the key (B, H, D)
    of a token; a first token opens a slot whatever it says. Novelty is measured after ``embed``.
    The rows of the allocation are those before eviction.
    """
    real = finite(v)[:, 0] & finite(k)[:, 0]  # (B, H)
    given = torch.ones_like(real) if mask is None else mask.expand_as(real)
    refused, real = (given & ~real).long(), given & real
    usage = _tick(usage, real, concentration.decay)
    nearest, novelty = _nearest(embed(k[:, 0]), embed(slots.keys), slots.used)
    opened = real & ((slots.n_slots == 0) | opens(novelty, k[:, 0]))
    row = torch.where(opened, slots.n_slots, nearest)
    assign = row.masked_fill(~real, -1)[:, None]
    lead, none = opened[:, None], torch.zeros_like(refused)
    n_slots = slots.n_slots + opened
    found = Allocation(lead, assign, assign, n_slots, none, refused, mask)
    write_one(slots, k, v, found, value)
    usage = _use(usage, row, real, opened, concentration.rate)
    budget = concentration.base + concentration.gain * usage.temperature
    excess = (slots.n_slots - budget.floor()).clamp(min=0)
    if not reads_without_sync(excess) or bool((excess > 0).any()):
        usage = _evict(slots, usage, row.masked_fill(~opened, -1), excess)
    return found, usage


def above(tau: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The rule: a slot opens where the novelty is above ``tau`` (B, H), in float64."""
    return lambda novelty, key: novelty > tau


def _tick(usage: Usage, real: Tensor, decay: float) -> Usage:
    """One token later: instead of decaying every usage, the next use weighs more."""
    weight = usage.use_weight
    weight = torch.where(real & (usage.n_tokens > 0), weight * (1 / decay), weight)
    large = weight > MAX_USE_WEIGHT
    return usage._replace(
        use_weight=torch.where(large, weight / MAX_USE_WEIGHT, weight),
        usage=torch.where(large[..., None], usage.usage / MAX_USE_WEIGHT, usage.usage),
    )


def _nearest(key: Tensor, slots: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """The row of the slot nearest to keys (B, H, D), the oldest of equals, and its novelty."""
    gaps = squared(key[:, :, None], slots).masked_fill(~used, inf)
    least = gaps.amin(-1, keepdim=True)
    return (gaps == least).to(torch.uint8).argmax(-1), (least[..., 0] / 2).clamp(max=2)


def _use(usage: Usage, row: Tensor, real: Tensor, opened: Tensor, rate: float) -> Usage:
    """Count a use of these rows (B, H), and follow how often slots open."""
    at = real[..., None] & (torch.arange(usage.ids.shape[2], device=row.device) == row[..., None])
    before = usage.usage.masked_fill(at & opened[..., None], 0)
    temperature = (1 - rate) * usage.temperature + rate * opened.double()
    return Usage(
        usage=torch.where(at, before + usage.use_weight[..., None], before),
        last_seen=torch.where(at, usage.n_tokens[..., None], usage.last_seen),
        ids=torch.where(at & opened[..., None], usage.n_opened[..., None], usage.ids),
        temperature=torch.where(real, temperature, usage.temperature),
        use_weight=usage.use_weight,
        n_tokens=usage.n_tokens + real,
        n_opened=usage.n_opened + opened,
    )


def _evict(slots: SlotState, usage: Usage, keep: Tensor, excess: Tensor) -> Usage:
    """Drop the ``excess`` (B, H) least used slots: of equals the one idle longest, then oldest.

    The row ``keep`` (B, H), -1 for none, was opened by this token and stays. The slots that stay
    keep their order.
    """
    place = torch.arange(slots.capacity, device=keep.device)
    stays = ~slots.used | (place == keep[..., None])
    by_age = usage.last_seen.argsort(dim=-1, stable=True)  # rows are in the order of their ids
    score = usage.usage.masked_fill(stays, inf).gather(2, by_age)
    order = by_age.gather(2, score.argsort(dim=-1, stable=True))
    evicted = order.argsort(-1) < excess[..., None]
    order = evicted.to(torch.uint8).argsort(dim=-1, stable=True)
    for buffer in slots[:3]:
        wide = order if buffer.ndim == 3 else order[..., None].expand_as(buffer)
        buffer.copy_(buffer.gather(2, wide))
    slots.n_slots.sub_(excess.long())
    return usage._replace(
        usage=usage.usage.gather(2, order),
        last_seen=usage.last_seen.gather(2, order),
        ids=usage.ids.gather(2, order),
    )
