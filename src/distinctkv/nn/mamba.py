"""State-space mixers: Mamba-2, and the diagonal S4D with the same dynamics for every token."""

# B streams, L tokens, E channels, H heads, P head size, N state size, I = H P inner channels

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .mixer import Mixer, ShortConv, State, check_sizes, rms_norm, widened
from .padding import Packing
from .ssm import diagonal, ssd


@dataclass(repr=False)
class Mamba2State(State):
    """Fixed in size: the last inputs of the convolution, and a matrix for each head."""

    writes = 0  # nothing is written in place

    past: Tensor  # (B, T - 1, I + 2 N)
    memory: Tensor  # (B, H, P, N), 32 bits


class Mamba2(Mixer[Mamba2State]):
    """Mamba-2: a gated matrix state for each head, whose decay and writes depend on the token.

    >>> Mamba2(width=64)(torch.zeros(1, 10, 64)).shape
    torch.Size([1, 10, 64])
    """

    def __init__(
        self,
        width: int,
        *,
        states: int = 64,
        head: int = 64,
        expand: int = 2,
        taps: int = 4,
        chunk: int = 64,
    ) -> None:
        super().__init__()
        check_sizes(width=width, states=states, head=head, expand=expand, chunk=chunk)
        inner = expand * width
        if inner % head:
            raise ValueError(
                f"head must divide expand * width = {inner}, got {head}; choose a divisor"
            )
        heads = inner // head
        self.inner, self.head, self.states, self.chunk = inner, head, states, chunk
        self.sizes = [inner, inner + 2 * states, heads]  # the gate; x, B and C; dt
        self.enter = nn.Linear(width, sum(self.sizes), bias=False)
        self.conv = ShortConv(inner + 2 * states, taps)
        self.log_decay = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        steps = torch.empty(heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_bias = nn.Parameter(steps.expm1().log())  # softplus of it is the step
        self.skip = nn.Parameter(torch.ones(heads))
        self.norm = nn.Parameter(torch.ones(inner))
        self.leave = nn.Linear(inner, width, bias=False)

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.enter.in_features

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"inner={self.inner}, head={self.head}, states={self.states}, taps={self.conv.taps}"

    def start(self, batch: int) -> Mamba2State:
        """Nothing seen: zeros."""
        memory = self.dt_bias.new_zeros(batch, self.sizes[-1], self.head, self.states)
        return Mamba2State(self.conv.start(batch), widened(memory)).of(self)

    def mix(
        self, x: Tensor, state: Mamba2State | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        z, mixed, dt = torch.split(self.enter(x), self.sizes, -1)
        mixed, past = self.conv(mixed, None if state is None else state.past, mask)
        if self.like.dtype.itemsize < 4:  # weights of 16 bits; autocast chooses for itself
            mixed = widened(mixed)
        inner, B, C = torch.split(fn.silu(mixed), [self.inner, self.states, self.states], -1)
        inner = inner.reshape(*x.shape[:2], -1, self.head)  # (B, L, H, P)
        dt = fn.softplus(widened(dt) + self.dt_bias)
        if mask is not None:  # a step of no length leaves the state alone
            dt = torch.where(mask[..., None], dt, 0)
        y, memory = ssd(
            inner,
            dt,
            -widened(self.log_decay).exp(),
            B[:, :, None],
            C[:, :, None],
            chunk=min(self.chunk, x.shape[1]),
            state=None if state is None else state.memory,
        )
        if state is not None:
            state.past, state.memory = past, memory
        y = (y + self.skip[:, None] * inner).flatten(-2)
        leave: Tensor = self.leave(rms_norm(y * fn.silu(z), self.norm).to(self.leave.weight))
        return leave


@dataclass(repr=False)
class DiagonalState(State):
    """Fixed in size: N complex numbers for each channel."""

    writes = 0  # nothing is written in place

    memory: Tensor  # (B, E, N), complex


class DiagonalSSM(Mixer[DiagonalState]):
    """S4D: each channel a bank of N damped oscillators, then a gate and a mix of the channels.

    >>> DiagonalSSM(width=8)(torch.zeros(1, 10, 8)).shape
    torch.Size([1, 10, 8])
    """

    def __init__(self, width: int, *, states: int = 32, chunk: int = 64) -> None:
        super().__init__()
        check_sizes(width=width, states=states, chunk=chunk)
        self.chunk = chunk
        steps = torch.empty(width, 1).uniform_(math.log(1e-3), math.log(1e-1))
        self.log_step = nn.Parameter(steps)
        # S4D-Lin: decays of 1/2, frequencies at the multiples of pi.
        self.log_decay = nn.Parameter(torch.full((width, states), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(float(states)).repeat(width, 1))
        self.read = nn.Parameter(torch.randn(width, states, 2) / math.sqrt(2))
        self.skip = nn.Parameter(torch.ones(width))
        self.leave = nn.Linear(width, 2 * width)

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.leave.in_features

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"width={self.width}, states={self.read.shape[1]}"

    def start(self, batch: int) -> DiagonalState:
        """Nothing seen: zeros."""
        zeros = widened(self.read.new_zeros(batch, *self.read.shape))
        return DiagonalState(torch.view_as_complex(zeros)).of(self)

    def mix(
        self, x: Tensor, state: DiagonalState | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        memory = (self.start(len(x)) if state is None else state).memory
        if mask is None:
            y, memory = self._run(x, memory)
        else:  # oscillators would swing on over padding, so it goes behind what is real
            packing = Packing(~mask, x.shape[1])
            y, memory = self._run(packing.moved(x), memory, mask.sum(1))
            y = packing.back(y)
        if state is not None:
            state.memory = memory
        y = fn.gelu(y + self.skip * x)
        return fn.glu(self.leave(y.to(self.leave.weight)), -1)

    def _run(
        self, x: Tensor, memory: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the oscillators give for tokens (B, L, E), and where they are then."""
        rates = torch.complex(-widened(self.log_decay).exp(), widened(self.frequency))
        A = (rates * widened(self.log_step).exp()).exp()
        held = (A - 1) / rates  # the input is held between two tokens
        read = torch.view_as_complex(widened(self.read))
        x, chunk = x.to(read.real.dtype), min(self.chunk, x.shape[1])
        return diagonal(x, A, held, read, chunk=chunk, state=memory, lengths=lengths)
