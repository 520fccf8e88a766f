"""Attention mixers: queries, keys and values as all of them make them; full, and over a window."""

# B streams, L tokens, E channels, H heads, D head size, W window, T taps

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .mixer import Mixer, ShortConv, State

RATE = 0.1  # how fast the mean key follows the batches in training


@dataclass(frozen=True, slots=True)
class Heads:
    """How queries, keys and values are made, the same in every attention mixer.

    Queries and keys have length one and their cosine is scaled by ``scale``, learned for each
    head. A short convolution over ``taps`` tokens lets a key tell what came before its token,
    without which recall hardly forms. ``centre`` takes the mean key off before the cosine, without
    which keys fall together once repeats are merged.
    """

    count: int = 2
    size: int = 64
    taps: int = 4
    scale: float = 16.0
    centre: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that make no heads."""
        for name in ("count", "size", "taps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.scale > 0:
            raise ValueError(f"scale must be above 0, got {self.scale}; 16 is a good start")


class Projection(nn.Module):
    """Tokens (B, L, E) to queries, keys of length one, and values, each (B, L, H, D).

    The mean key is a buffer. A training batch is centred by the mean of the batches before it, so
    no token sees a later one, and then moves it. Evaluation, and any call with a past, leaves it
    alone, so that a stream may be cut anywhere.
    """

    mean: Tensor
    batches: Tensor

    def __init__(self, width: int, heads: Heads) -> None:
        super().__init__()
        self.heads = heads
        wide = 3 * heads.count * heads.size
        self.enter = nn.Linear(width, wide, bias=False)
        self.conv = ShortConv(wide, heads.taps)
        with torch.no_grad():  # the token itself, and a little of those before it
            self.conv.weight.mul_(0.2)[-1] = 1
        self.scale = nn.Parameter(torch.full((heads.count, 1), heads.scale))
        self.register_buffer("mean", torch.zeros(heads.count, heads.size))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.leave = nn.Linear(heads.count * heads.size, width, bias=False)

    def forward(
        self, x: Tensor, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (times their scale), keys, values, and the past of the next tokens."""
        mixed, now = self.conv(self.enter(x), past)
        mixed = mixed.reshape(*x.shape[:2], 3, self.heads.count, self.heads.size)
        q, k, v = mixed.unbind(2)
        wide = torch.promote_types(k.dtype, torch.float32)  # cosines decide: not in 16 bits
        q, k = q.to(wide), k.to(wide)
        if self.heads.centre:
            raw, k = k, k - self.mean
            if self.training and past is None:
                self._follow(raw)
        return fn.normalize(q, dim=-1) * self.scale, fn.normalize(k, dim=-1), v.to(wide), now

    @torch.no_grad()
    def _follow(self, keys: Tensor) -> None:
        """Move the mean towards that of these keys; the first batches count in full."""
        self.batches += 1
        rate = (1 / self.batches).clamp_min(RATE).to(self.mean)
        self.mean.lerp_(keys.detach().mean((0, 1)).to(self.mean), rate)

    def out(self, y: Tensor) -> Tensor:
        """Reads (B, L, H, D) back to channels (B, L, E)."""
        leave: Tensor = self.leave(y.flatten(-2).to(self.leave.weight.dtype))
        return leave


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention over (B, L, H, D), causal if there is no mask and as many keys as queries.

    Fewer queries than keys are the last tokens. ``mask`` is true where a query sees a key.
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    L, N = q.shape[2], k.shape[2]
    if mask is None and 1 < L < N:
        mask = torch.ones(L, N, dtype=torch.bool, device=q.device).tril(N - L)
    causal = mask is None and L > 1
    y = fn.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=1.0)
    return y.transpose(1, 2)


def attend_near(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attention of (B, L, H, D) queries to the last ``window`` tokens, their own among them.

    ``k`` and ``v`` may start with tokens before the first query. Blocks of ``window`` queries
    meet their own block of keys and the one before it, so the cost is linear in L.
    """
    B, L, H, D = q.shape
    before = min(k.shape[1] - L, window - 1)
    k, v = k[:, k.shape[1] - L - before :], v[:, v.shape[1] - L - before :]
    if L == 1:
        return attend(q, k, v)
    fill = -L % window
    q = fn.pad(q, (0, 0, 0, 0, 0, fill)).reshape(-1, window, H, D)
    k, v = (_with_block_before(t, window, window - before, fill) for t in (k, v))
    row = torch.arange(window, device=q.device)[:, None]
    column = torch.arange(2 * window, device=q.device)
    mask = ((column > row) & (column <= row + window)).repeat(len(q), 1, 1, 1)
    mask.reshape(B, -1, window, 2 * window)[:, 0, :, : window - before] = False
    return attend(q, k, v, mask).reshape(B, -1, H, D)[:, :L]


def _with_block_before(tokens: Tensor, window: int, front: int, back: int) -> Tensor:
    """Blocks of ``window`` tokens, each behind the block before it: (B blocks, 2 window, H, D)."""
    padded = fn.pad(tokens, (0, 0, 0, 0, front, back))
    blocks = padded.reshape(len(tokens), -1, window, *tokens.shape[2:])
    return torch.cat([blocks[:, :-1], blocks[:, 1:]], 2).flatten(0, 1)


@dataclass
class TokenState(State):
    """The keys and values of tokens as they came, and the last inputs of the convolution."""

    past: Tensor  # (B, T - 1, 3 H D)
    keys: Tensor  # (B, tokens held, H, D)
    values: Tensor

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values held, with these behind them."""
        self.keys = torch.cat([self.keys, k.to(self.keys)], 1)
        self.values = torch.cat([self.values, v.to(self.values)], 1)
        return self.keys, self.values


class FullAttention(Mixer[TokenState]):
    """Causal attention to every token, which all stay in the state.

    >>> FullAttention(width=32)(torch.randn(1, 10, 32)).shape
    torch.Size([1, 10, 32])
    """

    def __init__(self, width: int, heads: Heads | None = None) -> None:
        super().__init__()
        self.project = Projection(width, heads or Heads())

    def start(self, batch: int) -> TokenState:
        """No tokens."""
        heads = self.project.heads
        none = self.like.new_zeros(batch, 0, heads.count, heads.size)
        return TokenState(self.project.conv.start(batch), none, none)

    def forward(self, x: Tensor, state: TokenState | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, past = self.project(x, None if state is None else state.past)
        if state is not None:
            state.past = past
            k, v = state.add(k, v)
        return self.project.out(attend(q, k, v))


class SlidingWindowAttention(FullAttention):
    """Causal attention to the last ``window`` tokens, the present one among them.

    >>> SlidingWindowAttention(width=32, window=4)(torch.randn(1, 10, 32)).shape
    torch.Size([1, 10, 32])
    """

    def __init__(self, width: int, heads: Heads | None = None, *, window: int = 128) -> None:
        super().__init__(width, heads)
        if window < 1:
            raise ValueError(f"window must be at least 1 token, got {window}")
        self.window = window

    def forward(self, x: Tensor, state: TokenState | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, past = self.project(x, None if state is None else state.past)
        if state is not None:
            state.past = past
            k, v = state.add(k, v)
            last = slice(max(0, k.shape[1] - self.window + 1), None)
            state.keys, state.values = k[:, last], v[:, last]
        return self.project.out(attend_near(q, k, v, self.window))
