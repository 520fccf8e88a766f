"""How a layer with slots reads, and what it holds."""

# B streams, W window

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from .attention import TokenState
from .reading import Mode, Value
from .state import SlotState

ROOM = 16  # slots a state starts with, and by whose multiples it grows


@dataclass(frozen=True, slots=True)
class Reading:
    """How slots are read.

    ``mass`` weighs a slot by its tokens, which makes the layer attention with each key replaced
    by its slot's; ``distinct`` counts every slot once (paper, eq. 3). ``value`` is what a slot
    answers. ``window`` tokens, the present one among them, are read as they are and written into
    the slots only when they leave it.
    """

    mode: Mode = "mass"
    value: Value = "mean"
    window: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown words, and a window where there is no joint read."""
        if self.mode not in get_args(Mode) or self.value not in get_args(Value):
            raise ValueError(
                f"mode is one of {get_args(Mode)} and value one of {get_args(Value)}, "
                f"got {self.mode!r} and {self.value!r}"
            )
        if self.window < 0:
            raise ValueError(f"window must be 0 or more tokens, got {self.window}")
        if self.window and (self.mode, self.value) != ("mass", "mean"):
            raise ValueError(
                f"a window is read together with the mass and the mean, got mode={self.mode!r} "
                f"and value={self.value!r}; leave the window out"
            )


@dataclass
class DistinctState(TokenState):
    """Slots, tokens that have not left the window, and the last inputs of the convolution."""

    slots: SlotState
    open: Tensor  # (B, up to W - 1), which tokens of the window will be written
    most: int = 0  # no stream has more slots than this

    def room_for(self, n: int) -> None:
        """See to it that n more tokens find room, whatever they are."""
        if self.most + n > self.slots.capacity:
            self.most = int(self.slots.n_slots.max())
        if self.most + n > self.slots.capacity:
            self.slots = self.slots.resized(_roomy(self.most + n))
        self.most += n

    def fit(self) -> None:
        """Give back the room that many tokens might have needed and did not; waits for them."""
        if torch.compiler.is_compiling():
            return
        self.most = int(self.slots.n_slots.max())
        if self.slots.capacity > _roomy(self.most):
            self.slots = self.slots.resized(_roomy(self.most))

    def check(self) -> DistinctState:
        """Raise if the slots refused a key or had no room; reads the device."""
        self.slots.check()
        return self


def _roomy(n: int) -> int:
    """Room for n slots, a quarter of them again, and one more."""
    return ROOM * -(-(n + n // 4 + 1) // ROOM)
