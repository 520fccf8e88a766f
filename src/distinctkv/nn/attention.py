"""Attention mixers: full, and over a window."""

# B streams, L tokens, E channels, H heads, D head size, W window, T taps

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as fn

from .mixer import Mixer, S, State, check_whole, widened
from .padding import Packing
from .projection import Heads as Heads
from .projection import Projection as Projection


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention over (B, L, H, D), causal if there is no mask and as many keys as queries.

    Fewer queries than keys are the last tokens. ``mask`` is true where a query sees a key.
    """
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    L, N = q.shape[2], k.shape[2]
    if mask is None and 1 < L < N:
        mask = torch.ones(L, N, dtype=torch.bool, device=q.device).tril(N - L)
    causal = False
    if mask is None and L > 1:  # by a branch: what a compiler has compared is no bool
        causal = True
    y = fn.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=1.0)
    return y.transpose(1, 2)


def attend_near(q: Tensor, k: Tensor, v: Tensor, window: int, real: Tensor | None = None) -> Tensor:
    """Attention of (B, L, H, D) queries to the last ``window`` tokens, their own among them.

    ``k`` and ``v`` may start with tokens before the first query. Blocks of ``window`` queries
    meet their own block of keys and the one before it, so the cost is linear in L. Keys that are
    not ``real`` (B, tokens) are seen by those alone.
    """
    B, L, H, D = q.shape
    before = min(k.shape[1] - L, window - 1)
    k, v = k[:, k.shape[1] - L - before :], v[:, v.shape[1] - L - before :]
    if L == 1:
        return attend(q, k, v, None if real is None else _seen(real[:, -before - 1 :], 1))
    fill = -L % window
    q = fn.pad(q, (0, 0, 0, 0, 0, fill)).reshape(-1, window, H, D)
    k, v = (_with_block_before(t, window, window - before, fill) for t in (k, v))
    row = torch.arange(window, device=q.device)[:, None]
    column = torch.arange(2 * window, device=q.device)
    mask = ((column > row) & (column <= row + window)).repeat(len(q), 1, 1, 1)
    mask.reshape(B, -1, window, 2 * window)[:, 0, :, : window - before] = False
    if real is not None:
        seen = real[:, real.shape[1] - L - before :, None, None]
        seen = _with_block_before(seen, window, window - before, fill)[:, :, 0, 0]
        mask &= seen[:, None, None] | ~seen[:, None, window:, None]
    return attend(q, k, v, mask).reshape(B, -1, H, D)[:, :L]


def _with_block_before(tokens: Tensor, window: int, front: int, back: int) -> Tensor:
    """Blocks of ``window`` tokens, each behind the block before it: (B blocks, 2 window, H, D)."""
    padded = fn.pad(tokens, (0, 0, 0, 0, front, back))
    blocks = padded.reshape(len(tokens), -1, window, *tokens.shape[2:])
    return torch.cat([blocks[:, :-1], blocks[:, 1:]], 2).flatten(0, 1)


@dataclass(repr=False)
class TokenState(State):
    """The keys and values of tokens as they came, and the last inputs of the convolution."""

    writes = 0  # nothing is written in place

    past: Tensor  # (B, T - 1, 3 H D)
    keys: Tensor  # (B, tokens held, H, D)
    values: Tensor
    # (B, tokens held), None if there was never padding
    real: Tensor | None = field(default=None, kw_only=True)

    def joined(
        self, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and which are real, of what is held and of these tokens behind it."""
        keys, values = torch.cat([self.keys, k], 1), torch.cat([self.values, v], 1)
        if mask is None and self.real is None:
            return keys, values, None
        real = torch.ones(keys.shape[:2], dtype=torch.bool, device=k.device)
        if self.real is not None:
            real[:, : self.real.shape[1]] = self.real
        if mask is not None:
            real[:, -mask.shape[1] :] = mask
        return keys, values, real


class Attention(Mixer[S]):
    """A mixer whose queries, keys and values come from a `Projection`."""

    project: Projection

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.project.enter.in_features

    def extra_repr(self) -> str:
        """Its heads."""
        heads = self.project.heads
        return f"heads={heads.count}, size={heads.size}, taps={heads.taps}"


class FullAttention(Attention[TokenState]):
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
        none = widened(self.like.new_zeros(batch, 0, heads.count, heads.size))
        return TokenState(self.project.conv.start(batch), none, none).of(self)

    def mix(self, x: Tensor, state: TokenState | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, past = self.project(x, None if state is None else state.past, mask)
        real = mask
        if state is not None:
            k, v, real = state.joined(k, v, mask)
        y = self.project.out(attend(q, k, v, _seen(real, x.shape[1])))
        if state is not None:
            state.past, state.keys, state.values, state.real = past, k, v, real
        return y


def _seen(real: Tensor | None, n: int) -> Tensor | None:
    """Which of N keys the last n see, (B, 1, n, N): real ones up to their own; padding sees all."""
    if real is None:
        return None
    N = real.shape[1]
    causal = torch.ones(n, N, dtype=torch.bool, device=real.device).tril(N - n)
    return causal & (real[:, None, None] | ~real[:, None, N - n :, None])


class SlidingWindowAttention(FullAttention):
    """Causal attention to the last ``window`` tokens, the present one among them.

    >>> SlidingWindowAttention(width=32, window=4)(torch.randn(1, 10, 32)).shape
    torch.Size([1, 10, 32])
    """

    def __init__(self, width: int, heads: Heads | None = None, *, window: int = 128) -> None:
        super().__init__(width, heads)
        check_whole(window=window)
        if window < 1:
            raise ValueError(f"window must be at least 1 token, got {window}")
        self.window = window

    def extra_repr(self) -> str:
        """Its heads and its window."""
        return f"{super().extra_repr()}, window={self.window}"

    def mix(self, x: Tensor, state: TokenState | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, past = self.project(x, None if state is None else state.past, mask)
        L, real, packing = x.shape[1], mask, None
        if state is not None:
            k, v, real = state.joined(k, v, mask)
        if real is not None:
            packing = Packing(real, L)
            k, v, real = packing.moved(k), packing.moved(v), packing.mask
            q = packing.moved(fn.pad(q, (0, 0, 0, 0, k.shape[1] - L, 0)))[:, -L:]
        y = attend_near(q, k, v, self.window, real)
        y = self.project.out(y if packing is None else packing.back(y))
        if state is not None:  # copies: views would hold on to all tokens
            last = slice(max(0, k.shape[1] - self.window + 1), None)
            state.past, state.keys, state.values = past, k[:, last].clone(), v[:, last].clone()
            state.real = None if real is None else real[:, last].clone()
        return y
