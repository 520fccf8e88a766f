"""`SlotState`: the slots of a layer between calls."""

# B sequences, H heads, L tokens, S slots, D key size, C value size

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class SlotState(NamedTuple):
    """Slots of every stream, in buffers whose shapes never change.

    A head's slots lie together, since a read walks over them: ``keys`` (B, H, S, D) of length one,
    ``values`` (B, H, S, C), which are sums for the mean, ``counts`` (B, H, S) of tokens,
    ``n_slots``, and ``overflow``, ``seen`` and ``refused`` (B, H): tokens that found no room, that
    were written, that were left out: their keys were no rows of length one, their values not
    finite, or they were allocated for other slots. What lies behind ``n_slots`` is never read.

    >>> state = SlotState.empty(torch.zeros(2, 1, 4, 8), torch.zeros(2, 1, 4, 16), capacity=32)
    >>> state.keys.shape, state.values.shape, state.nbytes
    (torch.Size([2, 4, 32, 8]), torch.Size([2, 4, 32, 16]), 25856)
    """

    keys: Tensor
    values: Tensor
    counts: Tensor
    n_slots: Tensor
    overflow: Tensor
    seen: Tensor
    refused: Tensor

    @classmethod
    def empty(cls, k: Tensor, v: Tensor, capacity: int) -> SlotState:
        """No slots yet, for keys and values like these (B, L, H, D) and (B, L, H, C).

        Keys are kept in the type of ``k``; values, which are added up, in float32 or better.
        """
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 slot, got {capacity}")
        B, _, H, D = k.shape
        wide = torch.promote_types(v.dtype, torch.float32)
        n_slots = torch.zeros(B, H, dtype=torch.int64, device=k.device)
        return cls(
            torch.zeros(B, H, capacity, D, dtype=k.dtype, device=k.device),
            torch.zeros(B, H, capacity, v.shape[-1], dtype=wide, device=k.device),
            torch.zeros(B, H, capacity, dtype=torch.int32, device=k.device),
            n_slots,
            torch.zeros_like(n_slots),
            torch.zeros_like(n_slots),
            torch.zeros_like(n_slots),
        )

    @property
    def capacity(self) -> int:
        """Slots that each stream has room for."""
        return self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, filled or not."""
        return sum(x.nbytes for x in self)

    def __repr__(self) -> str:
        """Streams, slots and bytes; waits for the device."""
        B, H, S, _ = self.keys.shape
        # A compiler's tensors hold no numbers, nor do those of the meta device.
        known = type(self.n_slots) is Tensor and not self.n_slots.is_meta
        most = int(self.n_slots.max()) if known and B * H else 0
        return f"SlotState({B} x {H} streams, up to {most} of {S} slots, {self.nbytes} bytes)"

    @property
    def used(self) -> Tensor:
        """Which slots hold a token (B, H, S)."""
        slot = torch.arange(self.capacity, device=self.keys.device)
        return (slot < self.n_slots[..., None]) & (self.counts > 0)

    def grown(self, capacity: int) -> SlotState:
        """A copy with room for more slots."""
        more = capacity - self.capacity
        if more < 0:
            raise ValueError(f"capacity is {self.capacity} already, got {capacity}")
        wider = [
            torch.cat([x, x.new_zeros((*x.shape[:2], more, *x.shape[3:]))], 2) for x in self[:3]
        ]
        return SlotState(*wider, *(x.clone() for x in self[3:]))

    def resized(self, capacity: int) -> SlotState:
        """A copy with room for this many slots, which must not be fewer than are filled."""
        if capacity >= self.capacity:
            return self.grown(capacity)
        if (most := int(self.n_slots.max())) > capacity:
            raise ValueError(f"{most} slots are filled, got a capacity of {capacity}")
        parts = (x[:, :, :capacity].clone() for x in self[:3])
        return SlotState(*parts, *(x.clone() for x in self[3:]))

    def clone(self) -> SlotState:
        """A copy that later steps do not touch."""
        return SlotState(*(x.clone() for x in self))

    def detach(self) -> SlotState:
        """A copy without a way back for gradients: slots are written in place."""
        return SlotState(*(x.detach().clone() for x in self))

    def index_select(self, rows: Tensor) -> SlotState:
        """A copy with these rows of the batch, as beam search asks for."""
        return SlotState(*(x.index_select(0, rows) for x in self))

    def check(self) -> SlotState:
        """Raise if a token was refused or found no room; waits for the device."""
        if n := int(self.refused.sum()):
            raise ValueError(
                f"{n} keys were not finite rows of length one, had values that were not finite or "
                "were allocated for other slots, and were left out; use "
                "distinctkv.nn.functional.unit, mask padding, and allocate with this state"
            )
        if n := int(self.overflow.sum()):
            raise ValueError(
                f"{n} novel tokens found all {self.capacity} slots taken; raise tau, capacity, or "
                "the room a layer starts with"
            )
        return self
