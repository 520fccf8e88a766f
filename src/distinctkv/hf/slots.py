"""Slots of all heads end to end or in a buffer with room, and the reductions that make them."""

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
    """Slots sequence by sequence and head by head, each head's one after the other.

    They lie end to end, without padding; or, with ``begins``, somewhere in tensors of several
    layers, of which a `SlotBuffer` leaves room behind each head.
    """

    keys: Tensor  # (S, D) rotated, of the first token
    values: Tensor  # (S, C) means
    counts: Tensor  # (S,) int32, tokens merged
    positions: Tensor  # (S,) int32, of the first token
    weight: Tensor  # (S,) float32, factor of distances; or (0,) if importance is off
    received: Tensor  # (S,) float32, attention received; or (0,) if values are plain means
    lengths: Tensor  # (B, H) int64, on the CPU
    begins: Tensor | None = None  # (B, H) int64, on the CPU, the first row of each head
    _spans: list[Tensor] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def none(cls, keys: Tensor, values: Tensor) -> Self:
        """No slots, for (B, H, L, D) keys and (B, H, L, C) values; does not synchronise."""
        B, H, _, D = keys.shape
        whole = torch.zeros(0, dtype=torch.int32, device=keys.device)
        real = torch.zeros(0, dtype=torch.float32, device=keys.device)
        lengths = torch.zeros(B, H, dtype=torch.int64)
        empty = keys.new_zeros(0, D), values.new_zeros(0, values.shape[-1])
        made = cls(*empty, whole, whole, real, real, lengths)
        made._spans.append(torch.zeros(2, B * H, dtype=torch.int32, device=keys.device))
        return made

    @classmethod
    def join(cls, parts: Iterable[Slots]) -> Self:
        """Sequences one after the other; rows of one buffer stay where they are."""
        each = list(parts)
        lengths = torch.cat([part.lengths for part in each])
        if any(part.begins is None or part.keys is not each[0].keys for part in each):
            each = [part.compact() for part in each]
            flat = {name: torch.cat([getattr(part, name) for part in each]) for name in FLAT}
            return cls(**flat, lengths=lengths)
        begins = torch.cat([part.begins for part in each if part.begins is not None])
        made = cls(**each[0].tensors(), lengths=lengths, begins=begins)
        made._spans.append(torch.cat([part.spans() for part in each], 1))
        return made

    def __len__(self) -> int:
        """Slots of all sequences and heads."""
        return len(self.keys) if self.begins is None else int(self.lengths.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values of the slots, without room."""
        size: int = self.keys.shape[1] + self.values.shape[1]
        return len(self) * size * self.keys.element_size()

    def tensors(self) -> dict[str, Tensor]:
        """The tensors on the device, by name."""
        return {name: getattr(self, name) for name in FLAT}

    def compact(self) -> Slots:
        """The same end to end: a view, or a copy if there is room between them."""
        if self.begins is None:
            return self
        first = int(self.begins.flatten()[0])
        if not torch.equal(self.begins - first, _starts(self.lengths)):
            return self._take(self.rows(), self.lengths)
        rows = slice(first, first + len(self))
        flat = {name: part[rows] if len(part) else part for name, part in self.tensors().items()}
        made = Slots(**flat, lengths=self.lengths)
        made._spans.append(self.spans() - first if first else self.spans())
        return made

    def _take(self, rows: Tensor, lengths: Tensor) -> Slots:
        """Slots of so many of each head, which stand in these rows."""
        flat = {name: part[rows] if len(part) else part for name, part in self.tensors().items()}
        return Slots(**flat, lengths=lengths)

    def starts(self) -> Tensor:
        """The first row of each sequence and head, (B, H), on the CPU."""
        return _starts(self.lengths) if self.begins is None else self.begins

    def segments(self) -> list[list[slice]]:
        """The rows of each head of each sequence."""
        starts, lengths = self.starts().tolist(), self.lengths.tolist()
        return [
            [slice(a, a + n) for a, n in zip(*row, strict=True)]
            for row in zip(starts, lengths, strict=True)
        ]

    def spans(self) -> Tensor:
        """The first row of each head, and where it ends, (2, B H) int32, on the device."""
        if not self._spans:
            starts = self.starts().flatten()
            spans = torch.stack((starts, starts + self.lengths.flatten())).to(torch.int32)
            self._spans.append(spans.to(self.keys.device, non_blocking=True))
        return self._spans[0]

    def sizes(self) -> Tensor:
        """Slots of each head, (B H,) int32, on the device."""
        sizes: Tensor = self.spans().diff(dim=0)[0]
        return sizes

    def parts(self, count: int) -> list[Slots]:
        """So many Slots of equally many sequences, in the same tensors: `join` gives these back."""
        spans = self.spans().view(2, count, -1).transpose(0, 1).contiguous()
        found = []
        for lengths, begins, span in zip(
            self.lengths.chunk(count), self.starts().chunk(count), spans, strict=True
        ):
            found.append(Slots(**self.tensors(), lengths=lengths, begins=begins))
            found[-1]._spans.append(span)
        return found

    def of_heads(self, heads: Sequence[int]) -> Slots:
        """Some heads of each sequence, in the same tensors."""
        some = list(heads)
        starts, lengths = self.starts()[:, some], self.lengths[:, some]
        made = Slots(**self.tensors(), lengths=lengths, begins=starts)
        made._spans.append(self.spans().view(2, *self.lengths.shape)[..., some].flatten(1))
        return made

    def heads(self) -> Tensor:
        """The head of each slot, of B H, (slots,)."""
        heads = torch.arange(self.lengths.numel(), device=self.keys.device)
        return heads.repeat_interleave(self.sizes().long(), output_size=len(self))

    def indices(self) -> Tensor:
        """The number of each slot within its head, (slots,)."""
        counts = self.sizes().long()
        first = counts.cumsum(0) - counts
        return torch.arange(len(self), device=counts.device) - first[self.heads()]

    def rows(self) -> Tensor:
        """The row of each slot, (slots,)."""
        return self.spans()[0].long()[self.heads()] + self.indices()

    def mask(self) -> Tensor:
        """Which of W columns hold a slot if every head is padded to the longest, (B H, W)."""
        columns = torch.arange(int(self.lengths.max()), device=self.keys.device)
        return columns < self.sizes()[:, None]

    def padded(self, tensor: Tensor) -> Tensor:
        """A tensor (S, ...) of the slots as (B H, W, ...); undefined outside `mask`."""
        mask = self.mask()
        if not len(tensor):
            return tensor.new_zeros(*mask.shape, *tensor.shape[1:])
        columns = torch.arange(mask.shape[1], device=tensor.device)
        rows = (self.spans()[0][:, None].long() + columns).clamp_(max=len(tensor) - 1)
        # index_select copies whole rows; an index of two dimensions does not.
        return tensor.index_select(0, rows.flatten()).view(*rows.shape, *tensor.shape[1:])

    def select(self, sequences: Tensor) -> Slots:
        """Keep, repeat or reorder sequences."""
        lengths, device = self.lengths[sequences.cpu()], self.keys.device
        # Row i of the result is row begin + i - (rows of earlier heads).
        shift = (self.starts()[sequences.cpu()] - _starts(lengths)).flatten().to(device)
        total = int(lengths.sum())
        shift = shift.repeat_interleave(lengths.flatten().to(device), output_size=total)
        return self._take(torch.arange(total, device=device) + shift, lengths)


def _starts(lengths: Tensor) -> Tensor:
    """The first row of each head if heads of these lengths lie end to end."""
    return lengths.flatten().cumsum(0).view_as(lengths) - lengths


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
    fast = not exact and kernels.takes("pool", like.keys)
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


def absorb(tokens: Slots, owner: Tensor, opened: Tensor, into: Slots) -> None:
    """Merge tokens, slots of one, into slots of a buffer, where these lie; `pool` in place.

    Token l of head p merges into slot ``owner[p, l]`` of that head, -1 drops it; one that has
    ``opened`` its slot, behind those that are, brings key and position.
    """
    if kernels.takes("absorb", into.keys):
        from ..kernels.reductions import absorb as kernel

        with torch.cuda.device(into.keys.device):
            kernel(tokens, owner, opened, into)
        return
    rows, first = (into.spans()[0][:, None] + owner).flatten(), (opened & (owner >= 0)).flatten()
    for name, tensor in into.tensors().items():
        if len(tensor):
            brings = name in ("keys", "positions")
            tensor[rows[first]] = getattr(tokens, name)[first] if brings else 0
    real = (owner >= 0).flatten()
    rows = rows[real]
    touched, place = torch.unique(rows, return_inverse=True)
    attended = len(into.received) > 0
    shares, held = (into.received, tokens.received) if attended else (into.counts, tokens.counts)
    sums = into.values[touched].float() * shares[touched].float()[:, None]
    sums.index_add_(0, place, tokens.values[real].float() * held[real].float()[:, None])
    into.counts.index_add_(0, rows, tokens.counts[real])
    if len(into.weight):
        into.weight.scatter_reduce_(0, rows, tokens.weight[real], "amax")
    if attended:
        into.received.index_add_(0, rows, tokens.received[real])
    into.values[touched] = (sums / shares[touched].float()[:, None]).to(into.values.dtype)


class SlotBuffer:
    """Slots of all layers in tensors that stay in place, with room behind each head.

    A CUDA graph that reads the slots stays valid while they grow: it takes the lengths from
    ``spans``, on the device.
    """

    def __init__(self, layers: Sequence[Slots], room: int) -> None:
        B, N = len(layers[0].lengths), len(layers)
        self.lengths = torch.cat([part.lengths for part in layers])  # (N B, H), on the CPU
        self.capacity = self.lengths + room
        begins = _starts(self.capacity)
        total, like = int(self.capacity.sum()), layers[0].tensors()
        flat = {
            name: like[name].new_zeros(total if len(like[name]) else 0, *like[name].shape[1:])
            for name in FLAT
        }
        spans = torch.stack((begins, begins + self.lengths)).view(2, N, -1).transpose(0, 1)
        device = layers[0].keys.device
        self.spans = spans.to(device, torch.int32).contiguous()  # (N, 2, B H)
        self.layers: list[Slots] = []
        for part, lengths, start, span in zip(
            layers, torch.split(self.lengths, B), torch.split(begins, B), self.spans, strict=True
        ):
            made = Slots(**flat, lengths=lengths, begins=start)
            made._spans.append(span)
            to = made.rows()
            for name, tensor in part.compact().tensors().items():
                if len(tensor):
                    flat[name][to] = tensor
            self.layers.append(made)

    def has_room(self, tokens: int) -> bool:
        """Whether each head has room for so many new slots."""
        return int((self.capacity - self.lengths).min()) >= tokens

    def grow(self, lengths: Tensor) -> None:
        """Hold so many slots of each head, (N B H,) on the device."""
        self.spans[:, 1] = self.spans[:, 0] + lengths.view(len(self.spans), -1)

    def count(self, lengths: Tensor) -> None:
        """The same on the CPU."""
        self.lengths.copy_(lengths.view_as(self.lengths))
