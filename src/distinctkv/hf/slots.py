"""Ragged slots of many heads, and tokens pooled into slots."""

# B sequences, H heads, S slots of all heads end to end, D key size, C value size

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from .. import kernels

# B streams, H heads, N slots of all of them, S most slots of a head, D key size, C value size


FLAT = ("keys", "values", "counts", "positions", "usage", "weight", "got")
HELD = (*FLAT, "lengths")


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """The slots, or the tokens, of one stream with every head as long as the longest."""

    keys: Tensor  # (H, S, D) as the model made them, rotated to their position
    values: Tensor  # (H, S, C)
    counts: Tensor  # (H, S), 0 where there is none
    positions: Tensor  # (H, S)
    usage: Tensor  # (H, S)
    weight: Tensor  # (H, S), what distances are multiplied by; infinite if nothing may join
    got: Tensor  # (H, S)

    @property
    def lengths(self) -> Tensor:
        """Slots of each head."""
        return (self.counts > 0).sum(1)

    def widen(self, width: int) -> Padded:
        """The same with room for more."""
        return Padded(*(_widen(getattr(self, name), width) for name in FLAT))


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Slots end to end, stream by stream and head by head: what is held is what is there."""

    keys: Tensor  # (N, D)
    values: Tensor  # (N, C)
    counts: Tensor  # (N,) int32, the tokens of each slot
    positions: Tensor  # (N,) int32, of the first token
    usage: Tensor  # (N,) float32, or (0,) where nothing is ever evicted
    weight: Tensor  # (N,) float32, or (0,) where all tokens weigh the same
    got: Tensor  # (N,) float32, attention by which values are meant, or (0,) where it is not
    lengths: Tensor  # (B, H) int64, on the CPU
    _bounds: list[Tensor] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def none(cls, keys: Tensor, values: Tensor) -> Self:
        """No slots, for (B, H, L, D) keys and (B, H, L, C) values."""
        B, H, _, D = keys.shape
        return cls(
            keys.new_zeros(0, D),
            values.new_zeros(0, values.shape[-1]),
            torch.zeros(0, dtype=torch.int32, device=keys.device),
            torch.zeros(0, dtype=torch.int32, device=keys.device),
            torch.zeros(0, dtype=torch.float32, device=keys.device),
            torch.zeros(0, dtype=torch.float32, device=keys.device),
            torch.zeros(0, dtype=torch.float32, device=keys.device),
            torch.zeros(B, H, dtype=torch.int64),
        )

    @classmethod
    def join(cls, streams: Iterable[Slots]) -> Self:
        """Streams one after the other."""
        parts = list(streams)
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in HELD))

    def __len__(self) -> int:
        """Slots of all streams and heads."""
        return len(self.keys)

    def starts(self) -> Tensor:
        """Where each stream and head begins, (B, H), on the CPU."""
        ends = self.lengths.flatten().cumsum(0)
        return (ends - self.lengths.flatten()).view_as(self.lengths)

    def segments(self) -> list[list[slice]]:
        """The rows of each head of each stream."""
        starts, lengths = self.starts().tolist(), self.lengths.tolist()
        return [
            [slice(a, a + n) for a, n in zip(*row, strict=True)]
            for row in zip(starts, lengths, strict=True)
        ]

    def bounds(self) -> Tensor:
        """Where each head begins and the last one ends, (B H + 1,) int32, beside the slots."""
        if not self._bounds:
            ends = self.lengths.flatten().cumsum(0).to(torch.int32)
            bounds = torch.cat((ends.new_zeros(1), ends))
            self._bounds.append(bounds.to(self.keys.device, non_blocking=True))
        return self._bounds[0]

    def parts(self, count: int) -> list[Slots]:
        """As many Slots of as many streams each, that share this memory."""
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

    def rows(self) -> Tensor:
        """The head of each slot, of B H, (N,)."""
        heads = torch.arange(self.lengths.numel(), device=self.keys.device)
        counts = self.bounds().diff().long()
        return heads.repeat_interleave(counts, output_size=len(self))

    def places(self) -> Tensor:
        """The number of each slot within its head, (N,)."""
        begins = self.bounds()[:-1].long()
        return torch.arange(len(self), device=self.keys.device) - begins[self.rows()]

    def there(self) -> Tensor:
        """Which of S columns hold a slot when every head is as long as the longest, (B H, S)."""
        columns = torch.arange(int(self.lengths.max()), device=self.keys.device)
        return columns < self.bounds().diff()[:, None]

    def wide(self, tensor: Tensor) -> Tensor:
        """A tensor (N, ...) of the slots as (B H, S, ...); what is not `there` means nothing."""
        there = self.there()
        if not len(tensor):
            return tensor.new_zeros(*there.shape, *tensor.shape[1:])
        columns = torch.arange(there.shape[1], device=tensor.device)
        rows = self.bounds()[:-1, None].long() + columns
        # Whole rows at a time, which an index of two dimensions is not.
        rows = rows.clamp_(max=len(tensor) - 1)
        return tensor.index_select(0, rows.flatten()).view(*rows.shape, *tensor.shape[1:])

    def stream(self, index: int) -> Slots:
        """The slots of one stream."""
        return self.select(torch.tensor([index]))

    def select(self, streams: Tensor) -> Slots:
        """Keep, repeat or reorder streams."""
        streams = streams.cpu()
        sizes, begins = self.lengths.sum(1)[streams], self.starts()[streams, 0]
        # Row i of the result comes from begin + i - (rows before its stream).
        device, total = self.keys.device, int(sizes.sum())
        shift = (begins - (sizes.cumsum(0) - sizes)).to(device)
        shift = shift.repeat_interleave(sizes.to(device), output_size=total)
        rows = torch.arange(total, device=device) + shift
        flat = {name: part[rows] if len(part) else part for name, part in self.tensors().items()}
        return Slots(**flat, lengths=self.lengths[streams])

    def kept(self, keep: Tensor, lengths: Tensor) -> Slots:
        """Those to ``keep`` (N,), which makes so many of each head."""
        rows = keep.nonzero()[:, 0]
        flat = {name: part[rows] if len(part) else part for name, part in self.tensors().items()}
        return Slots(**flat, lengths=lengths)

    def padded(self, stream: int) -> Padded:
        """One stream with every head as long as the longest."""
        lengths, starts = self.lengths[stream], self.starts()[stream]
        columns = torch.arange(int(lengths.max()))
        there = (columns < lengths[:, None]).to(self.keys.device)
        rows = (starts[:, None] + columns).clamp(max=max(len(self) - 1, 0)).to(self.keys.device)
        gathered = {name: tensor[rows] for name, tensor in self.tensors().items() if len(tensor)}
        if len(self) == 0:
            shape = there.shape
            gathered = {n: t.new_zeros(*shape, *t.shape[1:]) for n, t in self.tensors().items()}
        for name, number in (("usage", 0.0), ("weight", 1.0), ("got", 0.0)):
            held = gathered.get(name, torch.full(there.shape, number, device=self.keys.device))
            gathered[name] = torch.where(there, held, 0.0)
        return replace(Padded(**gathered), counts=gathered["counts"] * there)

    def tensors(self) -> dict[str, Tensor]:
        """All that is held on the device, by name."""
        return {name: getattr(self, name) for name in FLAT}


def _widen(tensor: Tensor, width: int) -> Tensor:
    extra = width - tensor.shape[1]
    shape = (tensor.shape[0], extra, *tensor.shape[2:])
    return torch.cat((tensor, tensor.new_zeros(shape)), 1)


# M slots or tokens, N slots after, D key size, C value size


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
