"""Slots of all heads end to end, without padding, and the segment reduction that makes them."""

# B sequences, H key-value heads, S slots of all heads end to end, D key size, C value size
# M slots or tokens that are merged, W the most slots of a head

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import torch
from torch import Tensor

from .. import kernels

FLAT = ("keys", "values", "counts", "positions", "weight", "received")


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Slots end to end, sequence by sequence and head by head: no byte is held for padding."""

    keys: Tensor  # (S, D) rotated, of the first token
    values: Tensor  # (S, C) means
    counts: Tensor  # (S,) int32, tokens merged
    positions: Tensor  # (S,) int32, of the first token
    weight: Tensor  # (S,) float32, factor of distances; or (0,) if importance is off
    received: Tensor  # (S,) float32, attention received; or (0,) if values are plain means
    lengths: Tensor  # (B, H) int64, on the CPU
    _bounds: list[Tensor] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def none(cls, keys: Tensor, values: Tensor) -> Self:
        """No slots, for (B, H, L, D) keys and (B, H, L, C) values."""
        B, H, _, D = keys.shape
        whole = torch.zeros(0, dtype=torch.int32, device=keys.device)
        real = torch.zeros(0, dtype=torch.float32, device=keys.device)
        lengths = torch.zeros(B, H, dtype=torch.int64)
        empty = keys.new_zeros(0, D), values.new_zeros(0, values.shape[-1])
        return cls(*empty, whole, whole, real, real, lengths)

    @classmethod
    def join(cls, parts: Iterable[Slots]) -> Self:
        """Sequences one after the other."""
        each = list(parts)
        names = (*FLAT, "lengths")
        return cls(*(torch.cat([getattr(part, name) for part in each]) for name in names))

    def __len__(self) -> int:
        """Slots of all sequences and heads."""
        return len(self.keys)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors on the device, by name."""
        return {name: getattr(self, name) for name in FLAT}

    def starts(self) -> Tensor:
        """The first row of each sequence and head, (B, H), on the CPU."""
        ends = self.lengths.flatten().cumsum(0)
        return (ends - self.lengths.flatten()).view_as(self.lengths)

    def segments(self) -> list[list[slice]]:
        """The rows of each head of each sequence."""
        starts, lengths = self.starts().tolist(), self.lengths.tolist()
        return [
            [slice(a, a + n) for a, n in zip(*row, strict=True)]
            for row in zip(starts, lengths, strict=True)
        ]

    def bounds(self) -> Tensor:
        """The first row of each head, and the end of the last, (B H + 1,) int32, on the device."""
        if not self._bounds:
            ends = self.lengths.flatten().cumsum(0).to(torch.int32)
            bounds = torch.cat((ends.new_zeros(1), ends))
            self._bounds.append(bounds.to(self.keys.device, non_blocking=True))
        return self._bounds[0]

    def parts(self, count: int) -> list[Slots]:
        """Views: so many Slots of equally many sequences."""
        lengths = self.lengths.view(count, -1, self.lengths.shape[1])
        ends = [0, *lengths.sum((1, 2)).cumsum(0).tolist()]
        heads = lengths[0].numel()
        begins = self.bounds()[:-1].view(count, heads)
        last = self.bounds()[heads::heads, None]
        bounds = torch.cat((begins, last), 1) - begins[:, :1]
        found = []
        for start, end, own, bound in zip(ends, ends[1:], lengths, bounds, strict=False):
            flat = {n: t[start:end] if len(t) else t for n, t in self.tensors().items()}
            found.append(Slots(**flat, lengths=own))
            found[-1]._bounds.append(bound)
        return found

    def heads(self) -> Tensor:
        """The head of each slot, of B H, (S,)."""
        heads = torch.arange(self.lengths.numel(), device=self.keys.device)
        counts = self.bounds().diff().long()
        return heads.repeat_interleave(counts, output_size=len(self))

    def indices(self) -> Tensor:
        """The number of each slot within its head, (S,)."""
        begins = self.bounds()[:-1].long()
        return torch.arange(len(self), device=self.keys.device) - begins[self.heads()]

    def mask(self) -> Tensor:
        """Which of W columns hold a slot if every head is padded to the longest, (B H, W)."""
        columns = torch.arange(int(self.lengths.max()), device=self.keys.device)
        return columns < self.bounds().diff()[:, None]

    def padded(self, tensor: Tensor) -> Tensor:
        """A tensor (S, ...) of the slots as (B H, W, ...); undefined outside `mask`."""
        mask = self.mask()
        if not len(tensor):
            return tensor.new_zeros(*mask.shape, *tensor.shape[1:])
        columns = torch.arange(mask.shape[1], device=tensor.device)
        rows = (self.bounds()[:-1, None].long() + columns).clamp_(max=len(tensor) - 1)
        # index_select copies whole rows; an index of two dimensions does not.
        return tensor.index_select(0, rows.flatten()).view(*rows.shape, *tensor.shape[1:])

    def select(self, sequences: Tensor) -> Slots:
        """Keep, repeat or reorder sequences."""
        sequences = sequences.cpu()
        sizes, begins = self.lengths.sum(1)[sequences], self.starts()[sequences, 0]
        # Row i of the result is row begin + i - (rows of earlier sequences).
        device, total = self.keys.device, int(sizes.sum())
        shift = (begins - (sizes.cumsum(0) - sizes)).to(device)
        shift = shift.repeat_interleave(sizes.to(device), output_size=total)
        rows = torch.arange(total, device=device) + shift
        flat = {name: part[rows] if len(part) else part for name, part in self.tensors().items()}
        return Slots(**flat, lengths=self.lengths[sequences])


class Source(NamedTuple):
    """Slots, or tokens as slots of one, that are merged into new slots."""

    slots: Slots
    to: Tensor  # (M,) the new slot of each, of all heads; -1 drops it
    opens: Tensor | None  # (M,) whether it is the first of its slot; None: all are


def pool(sources: Sequence[Source], lengths: Tensor) -> Slots:
    """The slots, ``lengths`` (B, H) of each head, that sources merge into.

    A slot keeps the key and position of its first token. Its value is the mean over tokens, or
    that weighted by the attention received; its weight is the largest of its tokens'.
    """
    like = sources[0].slots
    total = int(lengths.sum())
    # The kernel adds in no fixed order.
    exact = torch.are_deterministic_algorithms_enabled()
    fast = not exact and kernels.available(like.keys)
    rows = total if fast else total + 1  # the last row of torch takes what is dropped
    sums = like.values.new_zeros(rows, like.values.shape[1], dtype=torch.float32)
    weight, received = (
        part.new_zeros(rows if len(part) else 0) for part in (like.weight, like.received)
    )
    keys = like.keys.new_empty(total, *like.keys.shape[1:])
    positions = like.positions.new_empty(total)
    made = Slots(keys, sums, like.counts.new_zeros(rows), positions, weight, received, lengths)
    for source in sources if total else ():
        if fast:
            from ..kernels.reductions import pour

            with torch.cuda.device(like.keys.device):
                pour(*source, made)
        else:
            add(source, made)
    counts, weight, received = (
        part if fast else part[:total].clone() for part in (made.counts, made.weight, made.received)
    )
    share = received if len(received) else counts.clamp(min=1)
    means = (made.values[:total] / share[:, None]).to(like.values.dtype)
    return Slots(made.keys, means, counts, made.positions, weight, received, lengths)


def add(source: Source, made: Slots) -> None:
    """Add a source to the slots that are made, whose values are sums."""
    slots, to, opens = source
    first = slice(None) if opens is None else opens.nonzero()[:, 0]
    made.keys[to[first]] = slots.keys[first]
    made.positions[to[first]] = slots.positions[first]
    row = torch.where(to >= 0, to, len(made.counts) - 1)
    made.counts.index_add_(0, row, slots.counts)
    share = slots.received if len(made.received) else slots.counts.float()
    made.values.index_add_(0, row, (slots.values * share[:, None]).float())
    if len(made.weight):
        made.weight.scatter_reduce_(0, row, slots.weight, "amax")
    if len(made.received):
        made.received.index_add_(0, row, slots.received)
