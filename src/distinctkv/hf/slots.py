"""The slots of a layer: of each stream and head as many as it needs, end to end in flat tensors."""

# B streams, H heads, N slots of all of them, S most slots of a head, D key size, C value size

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from .allocation import Allocation

FLAT = ("keys", "values", "counts", "positions", "usage", "weight")


@dataclass(frozen=True, slots=True, eq=False)
class Padded:
    """The slots, or the tokens, of one stream with every head as long as the longest."""

    keys: Tensor  # (H, S, D) as the model made them, rotated to their position
    values: Tensor  # (H, S, C)
    counts: Tensor  # (H, S), 0 where there is none
    positions: Tensor  # (H, S)
    usage: Tensor  # (H, S)
    weight: Tensor  # (H, S), what distances are multiplied by; infinite if nothing may join

    @property
    def lengths(self) -> Tensor:
        """Slots of each head."""
        return (self.counts > 0).sum(1)

    def part(self, columns: slice) -> Padded:
        """Some of the columns."""
        return Padded(*(getattr(self, name)[:, columns] for name in FLAT))

    def widen(self, width: int) -> Padded:
        """The same with room for more."""
        return Padded(*(_widen(getattr(self, name), width) for name in FLAT))

    def take(self, tokens: Padded, choice: Allocation, decay: float = 1.0) -> Padded:
        """These slots after tokens, or other slots, joined them or opened new ones.

        A slot keeps the key and position of its first token; its value is the mean of all. Usage
        fades by ``decay`` with each column.
        """
        wide = self.widen(max(int(choice.lengths.max()), self.keys.shape[1]))
        head, column = choice.opened.nonzero(as_tuple=True)
        slot = choice.owner[head, column]
        keys, positions = wide.keys.clone(), wide.positions.clone()
        keys[head, slot] = tokens.keys[head, column]
        positions[head, slot] = tokens.positions[head, column]
        owner = choice.owner.clamp(min=0)  # what is not there has a count of 0
        counts = wide.counts.scatter_add(1, owner, tokens.counts)
        total = wide.values.float() * wide.counts[..., None]
        added = tokens.values.float() * tokens.counts[..., None]
        total = total.scatter_add(1, owner[..., None].expand_as(added), added)
        values = (total / counts.clamp(min=1)[..., None]).to(wide.values.dtype)
        L = owner.shape[1]
        ages = decay ** torch.arange(L - 1, -1, -1, device=keys.device)
        usage = (wide.usage * decay**L).scatter_add(1, owner, tokens.usage * ages)
        # A slot weighs what the weightiest of its tokens does.
        heavy = torch.where(tokens.counts > 0, tokens.weight, 0.0)
        weight = wide.weight.scatter_reduce(1, owner, heavy, "amax")
        return Padded(keys, values, counts, positions, usage, weight)

    def flat(self, keep: Tensor | None = None) -> Slots:
        """The slots end to end, those to ``keep`` (H, S) if not all."""
        there = self.counts > 0 if keep is None else (self.counts > 0) & keep
        lengths = there.sum(1)[None].cpu()
        return Slots(**{name: getattr(self, name)[there] for name in FLAT}, lengths=lengths)


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Slots end to end, stream by stream and head by head: what is held is what is there."""

    keys: Tensor  # (N, D)
    values: Tensor  # (N, C)
    counts: Tensor  # (N,) int32, the tokens of each slot
    positions: Tensor  # (N,) int32, of the first token
    usage: Tensor  # (N,) float32, or (0,) where nothing is ever evicted
    weight: Tensor  # (N,) float32, or (0,) where all tokens weigh the same
    lengths: Tensor  # (B, H) int64, on the CPU

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
            torch.zeros(B, H, dtype=torch.int64),
        )

    @classmethod
    def join(cls, streams: Iterable[Slots]) -> Self:
        """Streams one after the other."""
        parts = list(streams)
        return cls(
            *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls))
        )

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

    def stream(self, index: int) -> Slots:
        """The slots of one stream."""
        return self.select(torch.tensor([index]))

    def select(self, streams: Tensor) -> Slots:
        """Keep, repeat or reorder streams."""
        streams = streams.cpu()
        sizes, begins = self.lengths.sum(1)[streams], self.starts()[streams, 0]
        # Row i of the result comes from begin + i - (rows before its stream).
        before = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        rows = torch.arange(int(sizes.sum())) - before + begins.repeat_interleave(sizes)
        rows = rows.to(self.keys.device)
        flat = {name: part[rows] if len(part) else part for name, part in self.tensors().items()}
        return Slots(**flat, lengths=self.lengths[streams])

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
        for name, number in (("usage", 0.0), ("weight", 1.0)):
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
