"""State-space layers: the scans, Mamba-2 and the diagonal layer."""

# B sequences, L tokens, H heads in G groups of R, P head size, N state size, Q chunk, M chunks,
# E model width, I = H P inner channels

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .mixer import Mixer, Packing, ShortConv, State, check_sizes, rms_norm, upcast

SPAN = 512  # chunks whose states come from one product; its cost grows with their square


def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk: int = 64,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Mamba-2: ``h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t``, ``y_t = h_t C_t``, by chunks.

    ``x`` is (B, L, H, P), ``dt`` (B, L, H) and positive, ``A`` (H,) and negative, ``B`` and ``C``
    (B, L, G, N), where G divides H. Returns ``y`` like ``x``, and the state (B, H, P, N) after
    the last token.

    >>> one = torch.ones(1, 3, 1, 1)
    >>> y, h = ssd(one, torch.ones(1, 3, 1), torch.tensor([0.5]).log(), one, one)
    >>> y.flatten()  # each step keeps half and adds one
    tensor([1.0000, 1.5000, 1.7500])
    """
    _check_ssd(x, dt, A, B, C)
    batch, L, H, P = x.shape
    if state is not None:
        _check_state(state, batch, H, P, B.shape[3])
    G = B.shape[2]
    if L == 0:
        return x, dt.new_zeros(batch, H, P, B.shape[3]) if state is None else state.clone()
    if L > (span := SPAN * chunk) > 0:
        parts = []
        for x_, dt_, B_, C_ in zip(*(torch.split(t, span, 1) for t in (x, dt, B, C)), strict=True):
            y, state = ssd(x_, dt_, A, B_, C_, chunk=chunk, state=state)
            parts.append(y)
        assert state is not None
        return torch.cat(parts, 1), state
    # A token of dt = 0 changes nothing, so it can fill the last chunk.
    x, dt, B, C = (chunks(t, chunk) for t in (x, dt, B, C))
    moves = torch.unflatten(dt * A, 3, (G, -1)).movedim(2, 4)  # (B, M, G, R, Q), log decays
    pulse = torch.unflatten(x * dt[..., None], 3, (G, -1)).movedim(2, 4)  # (B, M, G, R, Q, P)
    B, C = B.movedim(2, 3), C.movedim(2, 3)  # (B, M, G, Q, N)
    total, table = moves.cumsum(-1), decays(moves)  # (B, M, G, R, Q, Q)

    scores = (C @ B.mT).unsqueeze(3) * table
    within = scores @ pulse
    left = table[..., -1, :, None] * pulse
    adds = left.mT @ B.unsqueeze(3)  # (B, M, G, R, P, N): what each chunk adds to the state
    start = None if state is None else torch.unflatten(state, 1, (G, -1))
    # Sums over all chunks: in 16 bits they would lose the early tokens.
    with torch.autocast(x.device.type, enabled=False):
        before, last = _carry(adds.to(moves.dtype), total[..., -1], start)
    between = total.exp()[..., None] * (C.unsqueeze(3) @ before.mT)
    y = (within + between).movedim(4, 2).flatten(3, 4).flatten(1, 2)
    return y[:, :L], last.flatten(1, 2).clone()  # a view would hold the states of all chunks


def selective_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, *, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The selective recurrence as it is defined, token by token: slow, for reference.

    ``h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t`` and ``y_t = h_t C_t``, with a decay for each
    channel and state: ``x`` and ``dt`` are (B, L, E), ``A`` (E, N), ``B`` and ``C`` (B, L, N).
    Returns ``y`` (B, L, E) and the state (B, E, N).
    """
    _check_scan(x, dt, A, B, C)
    if state is None:
        state = x.new_zeros(x.shape[0], x.shape[2], A.shape[1])
    _check_state(state, x.shape[0], *A.shape)
    rows = []
    for t in range(x.shape[1]):
        decay = (dt[:, t, :, None] * A).exp()
        state = decay * state + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]
        rows.append((state * C[:, t, None]).sum(-1))
    return torch.stack(rows, 1) if rows else x, state


def diagonal(
    x: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk: int = 64,
    state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S4D: ``h_t = A h_{t-1} + B x_t``, ``y_t = 2 Re(C h_t)``, with the same A, B, C at all times.

    ``x`` is (B, L, E) and real, ``A``, ``B`` and ``C`` (E, N) and complex, already discrete.
    Returns ``y`` (B, L, E) and the complex state (B, E, N), with ``lengths`` (B,) that after so
    many tokens of a stream, whatever stands behind them.

    >>> half, one = torch.tensor([[0.5 + 0j]]), torch.ones(1, 1) + 0j
    >>> diagonal(torch.ones(1, 3, 1), half, one, one / 2)[0].flatten()
    tensor([1.0000, 1.5000, 1.7500])
    """
    _check_diagonal(x, A, B, C)
    if state is not None:
        _check_state(state, x.shape[0], *A.shape)
    L = x.shape[1]
    if L == 0:
        return x, A.new_zeros(len(x), *A.shape) if state is None else state.clone()
    x = chunks(x, chunk).movedim(3, 2)  # (B, M, E, Q)
    times = torch.arange(chunk + 1, device=x.device)
    powers = _powers(A, chunk + 1)
    kernel = 2 * ((B * C)[..., None] * powers[..., :-1]).sum(1).real  # (E, Q)
    lag = times[:-1, None] - times[:-1]
    toeplitz = kernel[:, lag.clamp_min(0)] * (lag >= 0)  # (E, Q, Q)
    within = torch.einsum("eqk,bmek->bmeq", toeplitz, x)
    if state is None:
        state = A.new_zeros(x.shape[0], *A.shape)
    if lengths is None:
        lengths = torch.full((x.shape[0],), L, device=x.device)
    rows = []
    for m in range(x.shape[1]):
        rows.append(2 * torch.einsum("ben,en,enq->beq", state, C, powers[..., 1:]).real)
        q = (lengths - m * chunk).clamp(0, chunk)  # what stands behind must not age the state
        tokens = _last(x[:, m], q).to(A.dtype)
        pulse = torch.einsum("beq,enq->ben", tokens, powers[..., :-1].flip(-1))
        state = powers.movedim(-1, 0)[q] * state + pulse * B
    y = within + torch.stack(rows, 1)
    return y.movedim(3, 2).flatten(1, 2)[:, :L], state


def _powers(A: Tensor, n: int) -> Tensor:
    """A to the power of 0 to n - 1 (..., n), by products alone: 0 to the 0 is 1."""
    powers = torch.ones_like(A)[..., None]
    while powers.shape[-1] < n:
        more = powers[..., : n - powers.shape[-1]] * (powers[..., -1] * A)[..., None]
        powers = torch.cat([powers, more], -1)
    return powers


def _last(tokens: Tensor, q: Tensor) -> Tensor:
    """The first q (B,) of tokens (B, E, Q) moved to the end, with zeros before them."""
    Q = tokens.shape[-1]
    place = torch.arange(Q, device=q.device) - Q + q[:, None, None]
    moved = tokens.gather(-1, place.clamp_min(0).expand(tokens.shape))
    return torch.where(place >= 0, moved, 0)


def decays(moves: Tensor) -> Tensor:
    """From (..., Q) log decays the (..., Q, Q) table of what is left at t of a token at s <= t.

    Each sum from s to t is added up by itself. A difference of two sums from the beginning would
    lose what is small beside a reset that both hold.
    """
    Q = moves.shape[-1]
    place = torch.arange(Q, device=moves.device)
    since = place[:, None] > place  # t after s
    total = torch.where(since, moves[..., :, None], 0).cumsum(-2)
    return total.masked_fill(place[:, None] < place, -torch.inf).exp()


def _carry(adds: Tensor, moves: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """States before each chunk and after the last, from what chunks add (B, M, ...) and decay."""
    first = torch.zeros_like(adds[:, :1]) if start is None else start[:, None].to(adds.dtype)
    adds = torch.cat([first, adds], 1).movedim(1, -3)  # (B, G, R, M + 1, P, N)
    left = decays(fn.pad(moves.movedim(1, -1), (1, 0)))  # (B, G, R, M + 1, M + 1)
    states = torch.unflatten(left @ adds.flatten(-2), -1, adds.shape[-2:]).movedim(-3, 1)
    return states[:, :-1], states[:, -1]


def chunks(tokens: Tensor, chunk: int) -> Tensor:
    """(B, L, ...) as (B, M, Q, ...), the last chunk filled with zeros."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1 token, got {chunk}")
    fill = -tokens.shape[1] % chunk
    tokens = fn.pad(tokens, [0, 0] * (tokens.ndim - 2) + [0, fill])
    return torch.unflatten(tokens, 1, (-1, chunk))


def _check_ssd(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> None:
    if x.ndim != 4 or B.ndim != 4:
        raise ValueError(
            f"x must be (B, L, H, P) and B (B, L, G, N), got {tuple(x.shape)} and {tuple(B.shape)}"
        )
    batch, L, H, _ = x.shape
    if dt.shape != x.shape[:3] or A.shape != (H,):
        raise ValueError(
            f"x has {H} heads: dt must be {(batch, L, H)} and A {(H,)}, "
            f"got {tuple(dt.shape)} and {tuple(A.shape)}"
        )
    if B.shape != C.shape or B.shape[:2] != (batch, L) or H % B.shape[2]:
        raise ValueError(
            f"B and C must both be ({batch}, {L}, G, N) with G a divisor of {H}, "
            f"got {tuple(B.shape)} and {tuple(C.shape)}"
        )


def _check_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> None:
    fits = x.ndim == 3 and A.ndim == 2 and dt.shape == x.shape and A.shape[0] == x.shape[2]
    if not fits or not B.shape == C.shape == (*x.shape[:2], A.shape[1]):
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, dt, A, B, C))
        raise ValueError("x and dt must be (B, L, E), A (E, N), B and C (B, L, N), got " + shapes)


def _check_diagonal(x: Tensor, A: Tensor, B: Tensor, C: Tensor) -> None:
    fits = x.ndim == 3 and A.ndim == 2 and A.shape[0] == x.shape[2]
    if not fits or not A.shape == B.shape == C.shape:
        shapes = ", ".join(str(tuple(t.shape)) for t in (x, A, B, C))
        raise ValueError(f"x must be (B, L, E) and A, B, C must all be (E, N), got {shapes}")


def _check_state(state: Tensor, *shape: int) -> None:
    if state.shape != shape:
        raise ValueError(f"state must be {shape}, as was given back, got {tuple(state.shape)}")


@dataclass(repr=False)
class Mamba2State(State):
    """Fixed in size: the last inputs of the convolution, and a matrix for each head."""

    conv_state: Tensor  # (B, T - 1, I + 2 N)
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
        self.in_proj = nn.Linear(width, sum(self.sizes), bias=False)
        self.conv = ShortConv(inner + 2 * states, taps)
        self.log_decay = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        steps = torch.empty(heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_bias = nn.Parameter(steps.expm1().log())  # softplus of it is the step
        self.skip = nn.Parameter(torch.ones(heads))
        self.norm = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.in_proj.in_features

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"inner={self.inner}, head={self.head}, states={self.states}, taps={self.conv.taps}"

    def start(self, batch: int) -> Mamba2State:
        """Nothing seen: zeros."""
        memory = self.dt_bias.new_zeros(batch, self.sizes[-1], self.head, self.states)
        return Mamba2State(self.conv.start(batch), upcast(memory)).of(self)

    def mix(
        self, x: Tensor, state: Mamba2State | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        z, mixed, dt = torch.split(self.in_proj(x), self.sizes, -1)
        mixed, conv_state = self.conv(mixed, None if state is None else state.conv_state, mask)
        if self.like.dtype.itemsize < 4:  # weights of 16 bits; autocast chooses for itself
            mixed = upcast(mixed)
        inner, B, C = torch.split(fn.silu(mixed), [self.inner, self.states, self.states], -1)
        inner = inner.reshape(*x.shape[:2], -1, self.head)  # (B, L, H, P)
        dt = fn.softplus(upcast(dt) + self.dt_bias)
        if mask is not None:  # a step of no length leaves the state alone
            dt = torch.where(mask[..., None], dt, 0)
        y, memory = ssd(
            inner,
            dt,
            -upcast(self.log_decay).exp(),
            B[:, :, None],
            C[:, :, None],
            chunk=min(self.chunk, x.shape[1]),
            state=None if state is None else state.memory,
        )
        if state is not None:
            state.conv_state, state.memory = conv_state, memory
        y = (y + self.skip[:, None] * inner).flatten(-2)
        out: Tensor = self.out_proj(rms_norm(y * fn.silu(z), self.norm).to(self.out_proj.weight))
        return out


@dataclass(repr=False)
class DiagonalState(State):
    """Fixed in size: N complex numbers for each channel."""

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
        self.out_proj = nn.Linear(width, 2 * width)

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.out_proj.in_features

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"width={self.width}, states={self.read.shape[1]}"

    def start(self, batch: int) -> DiagonalState:
        """Nothing seen: zeros."""
        zeros = upcast(self.read.new_zeros(batch, *self.read.shape))
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
        return fn.glu(self.out_proj(y.to(self.out_proj.weight)), -1)

    def _run(
        self, x: Tensor, memory: Tensor, lengths: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the oscillators give for tokens (B, L, E), and where they are then."""
        rates = torch.complex(-upcast(self.log_decay).exp(), upcast(self.frequency))
        A = (rates * upcast(self.log_step).exp()).exp()
        held = (A - 1) / rates  # the input is held between two tokens
        read = torch.view_as_complex(upcast(self.read))
        x, chunk = x.to(read.real.dtype), min(self.chunk, x.shape[1])
        return diagonal(x, A, held, read, chunk=chunk, state=memory, lengths=lengths)
