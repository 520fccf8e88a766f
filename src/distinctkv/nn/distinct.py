"""Attention that keeps distinct tokens: the paper's cache as a layer that trains."""

# B streams, L tokens, E channels, H heads, D head size, W window, T taps

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as fn

from ..policy import Concentration, check_metric
from .allocation import Allocation, allocate
from .attention import FullAttention, Heads, Projection
from .gates import Gate
from .mixer import Mixer, State
from .reading import Mode, Value, read, slot_keys
from .state import SlotState
from .stepping import step, write
from .windowed import columns, read_near_and_far, slot_reads, visible

ROOM = 64  # slots a state starts with; doubled whenever they run out
READ = 0.1  # a slot counts as read if a query gives it this much of its weight
ROWS = 4  # sequences of a batch whose reads teach the write gate


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
class DistinctState(State):
    """Slots, tokens that have not left the window, and the last inputs of the convolution."""

    past: Tensor  # (B, T - 1, 3 H D)
    slots: SlotState
    keys: Tensor  # (B, up to W - 1, H, D), tokens of the window
    values: Tensor
    open: Tensor  # (B, up to W - 1), which of them will be written
    most: int = 0  # no stream has more slots than this

    def room_for(self, n: int) -> None:
        """See to it that n more tokens find room, whatever they are."""
        if self.most + n > self.slots.capacity:
            self.most = int(self.slots.n_slots.max())
        if self.most + n > self.slots.capacity:
            self.slots = self.slots.grown(max(2 * self.slots.capacity, self.most + n))
        self.most += n

    @property
    def filled_nbytes(self) -> int:
        """Bytes without the empty room behind the slots of each head."""
        parts = self.slots[:4]  # one row for each slot
        empty = self.slots.capacity * self.slots.n_slots.numel() - int(self.slots.n_slots.sum())
        return self.nbytes - empty * sum(p[0, 0, :1].nbytes for p in parts)


class DistinctAttention(Mixer[DistinctState]):
    """Attention over slots: a token opens one where its key is novel, else joins the nearest.

    Gradients go straight through to each token's own key. ``tau`` is a buffer, so that it may be
    ramped in training and chosen anew afterwards without a recompilation. A ``gate`` stores only
    what will be read: in training it learns from the reads (`write_loss`), in evaluation tokens
    on which it is shut are not written. It needs a window of 1 or more.

    >>> mixer = DistinctAttention(width=32, concentration=Concentration.fixed(0.3))
    >>> mixer(torch.randn(1, 10, 32)).shape
    torch.Size([1, 10, 32])
    """

    tau: Tensor

    def __init__(
        self,
        width: int,
        heads: Heads | None = None,
        *,
        concentration: Concentration | None = None,
        reading: Reading | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__()
        policy = concentration or Concentration.fixed(0.15)
        if policy.bounded:
            raise ValueError(
                f"a trained layer evicts nothing, got a budget of {policy.base}; "
                "use Concentration.fixed(tau)"
            )
        check_metric("cosine", policy.tau)
        self.reading = reading or Reading()
        if gate is not None and not self.reading.window:
            raise ValueError("a gate needs a window: give reading=Reading(window=1) or more")
        self.project = Projection(width, heads or Heads())
        self.register_buffer("tau", torch.tensor(policy.tau, dtype=torch.float64))
        self.gate = gate
        self.slots_per_token: Tensor | None = None  # of the last call without a state
        self._reads: tuple[Tensor, Tensor] | None = None

    @classmethod
    def retrofit(
        cls, full: FullAttention, tau: float, reading: Reading | None = None
    ) -> DistinctAttention:
        """The cache on the weights of a trained full attention, which are shared, not copied."""
        width = full.project.leave.out_features
        fixed = Concentration.fixed(tau)
        new = cls(width, full.project.heads, concentration=fixed, reading=reading)
        new.project = full.project
        return new.to(full.like.device).train(full.training)

    def start(self, batch: int) -> DistinctState:
        """No slots, no tokens."""
        heads = self.project.heads
        wide = torch.promote_types(self.like.dtype, torch.float32)
        none = self.like.new_zeros(batch, 0, heads.count, heads.size, dtype=wide)
        shut = torch.zeros(batch, 0, dtype=torch.bool, device=none.device)
        slots = SlotState.empty(none, none, ROOM)
        return DistinctState(self.project.conv.start(batch), slots, none, none, shut)

    def forward(self, x: Tensor, state: DistinctState | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, past = self.project(x, None if state is None else state.past)
        if state is not None:
            state.past = past
        if self.reading.window:
            return self.project.out(self._windowed(x, q, k, v, state))
        mode, value = self.reading.mode, self.reading.value
        if state is not None:
            state.room_for(x.shape[1])
            y, state.slots = step(q, k, v, state.slots, self.tau, mode=mode, value=value, scale=1.0)
        else:
            found = self.allocate(k)
            self._count(found.n_slots, x.shape[1])
            y = read(q, k, v, found, mode=mode, value=value, scale=1.0)
        return self.project.out(y)

    def allocate(
        self, keys: Tensor, slots: SlotState | None = None, mask: Tensor | None = None
    ) -> Allocation:
        """The rule on keys (B, L, H, D); another rule for the same layer overrides this."""
        return allocate(keys, self.tau, state=slots, mask=mask)

    def _windowed(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, state: DistinctState | None
    ) -> Tensor:
        """What `forward` reads with an exact window, whose tokens are written as they leave it."""
        L, W = x.shape[1], self.reading.window
        open_ = self._open(x)
        if state is not None:
            k, v = torch.cat([state.keys, k], 1), torch.cat([state.values, v], 1)
            open_ = torch.cat([state.open, open_], 1)
        F = max(0, k.shape[1] - W + 1)  # tokens that the next query will find outside its window
        far, written = k[:, :F], None if self.training or self.gate is None else open_[:, :F]
        if state is not None:
            state.room_for(F)
            state.keys, state.values, state.open = k[:, F:], v[:, F:], open_[:, F:]
        slots = None if state is None else state.slots
        mask = visible(L, k.shape[1], F, W, k)
        if not F:
            return read_near_and_far(q, columns(far, k, v, slots, written), mask)
        found = self.allocate(far, slots, written)
        seen = columns(slot_keys(far, found, state=slots), k, v, slots, written)
        y = read_near_and_far(q, seen, mask)
        if slots is not None:
            write(slots, far, v[:, :F], found)
        else:
            self._count(found.n_slots, L)
            if self.training and self.gate is not None:
                few, keys, assign = (t[:ROWS].detach() for t in (q, seen.keys, found.assign))
                self._reads = slot_reads(few, keys, assign, mask), x[:ROWS]
        return y

    def _open(self, x: Tensor) -> Tensor:
        """Which tokens (B, L) the gate lets in."""
        if self.gate is None:
            return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return self.gate.logit(torch.zeros_like(x[..., 0]), x) > 0

    def _count(self, n_slots: Tensor, L: int) -> None:
        self.slots_per_token = n_slots.detach().float().mean() / L

    def write_loss(self, asked: Tensor | None = None) -> Tensor:
        """How badly the gate foretells which tokens of the last training batch were read later.

        ``asked`` (B, L) marks the queries whose answers matter; all do if it is left out.
        """
        if self.gate is None or self._reads is None:
            return self.project.scale.new_zeros(())
        (reads, x), self._reads = self._reads, None
        if asked is not None:
            reads = reads * asked[: len(reads), None, :, None]
        wanted = (reads.amax((1, 2)) > READ).to(reads)  # (B, F)
        logit = self.gate.logit(torch.zeros_like(x[..., 0]), x)[:, : wanted.shape[1]]
        return fn.binary_cross_entropy_with_logits(logit, wanted)
