"""`PackedSlots`: slots that wait, one stream behind the other and without room."""

# B sequences, H heads, S slots of a stream, N slots of all streams, D key size, C value size

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .slot_attention import Value
from .slot_state import SlotState


class PackedSlots(NamedTuple):
    """The slots of a `SlotState` in as few bytes as they need while no token comes.

    A stream takes room for its own slots alone, not for those of the fullest, and sums of values
    are held as means of fewer bits. To go on, `unpacked` makes buffers again.

    >>> state = SlotState.empty(torch.zeros(2, 1, 4, 8), torch.zeros(2, 1, 4, 16), capacity=32)
    >>> state.nbytes, pack(state).nbytes
    (25856, 256)
    """

    keys: Tensor  # (N, D)
    values: Tensor  # (N, C), means where there were sums
    counts: Tensor  # (N,)
    n_slots: Tensor  # (B, H), as the next three
    overflow: Tensor
    seen: Tensor
    refused: Tensor
    wide: torch.dtype  # of the values in a `SlotState`
    value: Value

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(part.nbytes for part in self if isinstance(part, Tensor))

    def unpacked(self, capacity: int | None = None) -> SlotState:
        """Buffers with room for this many slots of a stream; as many as the fullest has, at least.

        Waits for the device.
        """
        least = max(1, int(self.n_slots.max())) if self.n_slots.numel() else 1
        room = least if capacity is None else capacity
        if room < least:
            raise ValueError(f"{least} slots are filled, got a capacity of {room}")
        used = _filled(self.n_slots, room)
        values = self.values.to(self.wide)
        if self.value == "mean":
            values = values * self.counts[:, None]
        whole = []
        for rows in (self.keys, values, self.counts):
            buffer = rows.new_zeros(*used.shape, *rows.shape[1:])
            buffer[used] = rows
            whole.append(buffer)
        return SlotState(*whole, *(part.clone() for part in self[3:7] if isinstance(part, Tensor)))


def pack(
    state: SlotState, dtype: torch.dtype = torch.bfloat16, value: Value = "mean"
) -> PackedSlots:
    """The slots of a layer that holds this ``value``, values as ``dtype``; waits for the device.

    Keys stay as they are: what later tokens find must not change (``slot_dtype`` of the layer holds
    them in 16 bits from the start). Means are rounded, once each time a state is packed.
    """
    used = _filled(state.n_slots, state.capacity)
    keys, values, counts = (part[used] for part in state[:3])
    if value == "mean":
        values = values / counts.clamp(min=1)[:, None]
    n_slots, overflow, seen, refused = (part.clone() for part in state[3:])
    return PackedSlots(
        keys, values.to(dtype), counts, n_slots, overflow, seen, refused, state.values.dtype, value
    )


def _filled(n_slots: Tensor, capacity: int) -> Tensor:
    """Which rows (B, H, S) hold a slot."""
    return torch.arange(capacity, device=n_slots.device) < n_slots[..., None]
