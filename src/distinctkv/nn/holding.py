"""How a layer with slots reads, what it holds, and what it may be told."""

# B streams, W window

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from ..policy import Concentration, check_metric
from .attention import TokenState
from .gates import Gate
from .mixer import check_whole
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
        check_whole(window=self.window)
        if self.window < 0:
            raise ValueError(f"window must be 0 or more tokens, got {self.window}")
        if self.window and (self.mode, self.value) != ("mass", "mean"):
            raise ValueError(
                f"a window is read together with the mass and the mean, got mode={self.mode!r} "
                f"and value={self.value!r}; leave the window out"
            )


@dataclass(repr=False)
class DistinctState(TokenState):
    """Slots, tokens that have not left the window, and the last inputs of the convolution."""

    slots: SlotState
    open: Tensor  # (B, up to W - 1), which tokens of the window will be written
    most: int = 0  # no stream has more slots than this
    room: int = ROOM  # slots that there is always room for

    def room_for(self, n: int) -> None:
        """See to it that n more tokens find room, whatever they are.

        Compiled, nothing grows: a token that finds no room is counted, and `check` raises.
        """
        if torch.compiler.is_compiling():
            self.most = self.slots.capacity
            return
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
        if self.slots.capacity > (least := max(self.room, _roomy(self.most))):
            self.slots = self.slots.resized(least)

    def check(self) -> DistinctState:
        """Raise if the slots refused a key or had no room; reads the device."""
        super().check()
        self.slots.check()
        return self


def _roomy(n: int) -> int:
    """Room for n slots, a quarter of them again, and one more."""
    return ROOM * -(-(n + n // 4 + 1) // ROOM)


def check_settings(concentration: Concentration | None, reading: Reading) -> float:
    """Tau, .15 if nothing is said; what a layer with slots cannot be told is refused."""
    policy = Concentration.fixed(0.15) if concentration is None else concentration
    if not isinstance(policy, Concentration):
        raise TypeError(f"concentration must be Concentration.fixed(tau), got {policy!r}")
    if not isinstance(reading, Reading):
        raise TypeError(f"reading must be Reading(...), got {reading!r}")
    if policy.bounded:
        raise ValueError(
            f"a trained layer evicts nothing, got a budget of {policy.base}; "
            "use Concentration.fixed(tau)"
        )
    check_metric("cosine", policy.tau)
    return policy.tau


def check_gate(gate: Gate, reading: Reading, width: int) -> None:
    """Refuse a gate without a window, one that asks for novelty, one for other tokens."""
    if not isinstance(gate, Gate):
        raise TypeError(f"gate must be one of distinctkv.nn, as WriteGate({width}), got {gate!r}")
    if not reading.window:
        raise ValueError("a gate needs a window: give reading=Reading(window=1) or more")
    if gate.needs_novelty:
        raise TypeError(
            f"{type(gate).__name__} asks how novel a token is, which depends on what this gate "
            "let in before; use a gate on the token alone, as distinctkv.nn.WriteGate and KeyGate"
        )
    token = next(gate.parameters(), torch.zeros(())).new_zeros(1, width)
    try:
        with torch.no_grad():
            gate.logit(token[:, 0], token)
    except RuntimeError as wrong:
        raise ValueError(
            f"{type(gate).__name__} does not take tokens of {width} channels ({wrong}); build it "
            "with the width of the layer"
        ) from wrong
