"""Attention over all tokens or a sliding window, and the projections of every attention layer."""

# B sequences, H heads, L tokens, D head size, W window, T taps, E model width

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from ..policy import check_real
from .mixer import Mixer, Packing, S, ShortConv, State, check_sizes, upcast

RATE = 0.1  # how fast the mean key follows the batches in training
SHORT = 1e-12  # a row no longer than this has no direction


@dataclass(frozen=True, slots=True)
class Heads:
    """How queries, keys and values are made, the same in every attention mixer.

    Queries and keys have length one and their cosine is scaled by ``scale``, learned for each
    head. A short convolution over ``taps`` tokens lets a key tell what came before its token,
    without which recall hardly forms. ``centre`` takes the mean key off before the cosine, without
    which keys fall together once repeats are merged.

    With ``lag`` keys start as the token so many places before theirs, and training may move them
    from there. What answers a query often stands behind the token that is asked for: then 1 opens
    fewer slots, since a key that tells its own token as well opens one for every two tokens that
    ever stood together. With 0 they start, as queries and values do, as their own token and a
    little of those before it.
    """

    count: int = 2
    size: int = 64
    taps: int = 4
    scale: float = 16.0
    centre: bool = True
    lag: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that make no heads."""
        check_sizes(count=self.count, size=self.size, taps=self.taps)
        check_real("scale", self.scale)
        if not 0 < self.scale < inf:
            raise ValueError(
                f"scale must be above 0 and finite, got {self.scale}; 16 is a good start"
            )
        if not 0 <= self.lag < self.taps:
            most = f"0 to {self.taps - 1}" if self.taps > 1 else "0"
            raise ValueError(
                f"a convolution of {self.taps} taps sees no token {self.lag} places before; lag "
                f"must be {most}, or taps more"
            )


class Projection(nn.Module):
    """Tokens (B, L, E) to queries, keys of length one, and values, each (B, L, H, D).

    The mean key is a buffer. A training batch is centred by the mean of the batches before it, so
    no token sees a later one, and then moves it. Evaluation, and any call with a conv_state, leaves
    it alone, so that a stream may be cut anywhere. The last batch once more, as activation
    checkpointing computes it in the backward pass, is centred as it was and moves nothing; a layer
    that is used twice in a step is centred anew there.

    A key of zeros has no direction and gets the first axis, so that all such keys are repeats of
    one another; a query of zeros stays so and prefers nothing.
    """

    mean: Tensor
    batches: Tensor
    recent: Tensor

    def __init__(self, width: int, heads: Heads) -> None:
        super().__init__()
        check_sizes(width=width)
        self.heads = heads
        wide = 3 * heads.count * heads.size
        self.in_proj = nn.Linear(width, wide, bias=False)
        self.conv = ShortConv(wide, heads.taps)
        with torch.no_grad():  # the token itself, and a little of those before it
            self.conv.weight.mul_(0.2)[-1] = 1
            if heads.lag:
                keys = self.conv.weight.chunk(3, 1)[1]  # a view; of queries, keys and values
                keys.zero_()[-1 - heads.lag] = 1
        self.scale = nn.Parameter(torch.full((heads.count, 1), float(heads.scale)))
        self.register_buffer("mean", torch.zeros(heads.count, heads.size))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("recent", _none_yet(self.mean), persistent=False)
        self.out_proj = nn.Linear(heads.count * heads.size, width, bias=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast, but keep the mean in 32 bits or more: many batches add up in it."""
        before = self.mean
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        kind = torch.promote_types(self.mean.dtype, torch.float32)
        if self.mean.dtype != kind:
            source = self.mean if before.is_meta else before
            self.mean = source.to(self.mean.device, kind)
        if self.recent.dtype != kind or before.is_meta:
            self.recent = _none_yet(self.mean)
        return self

    def forward(
        self, x: Tensor, conv_state: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (times their scale), keys, values, and the conv_state of the next tokens."""
        mixed, now = self.conv(self.in_proj(x), conv_state, mask)
        mixed = mixed.reshape(*x.shape[:2], 3, self.heads.count, self.heads.size)
        q, k, v = (upcast(t) for t in mixed.unbind(2))  # cosines decide: not in 16 bits
        if self.heads.centre:
            follows = self.training and conv_state is None
            k = k - (self._follow(k, mask) if follows else self.mean)
        q, blank = directions(q)
        return torch.where(blank, 0, q) * self.scale, directions(k)[0], v, now

    @torch.no_grad()
    def _follow(self, keys: Tensor, mask: Tensor | None) -> Tensor:
        """The mean for these keys, after which it moves towards theirs.

        The first batches count in full; a batch that is not finite not at all.
        """
        batch = keys.mean((0, 1))
        if mask is not None:
            batch = (keys * mask[..., None, None]).sum((0, 1)) / mask.sum()
        batch = batch.to(self.mean)
        if self.recent.device != batch.device:  # weights came without it
            self.recent = _none_yet(batch)
        again = (self.recent[0] == batch).all()
        centre = torch.where(again, self.recent[1], self.mean)
        moves = batch.isfinite().all() & ~again
        self.batches += moves
        rate = (1 / self.batches.clamp(min=1)).clamp(min=RATE).to(self.mean)
        self.recent.copy_(torch.where(moves, torch.stack([batch, centre]), self.recent))
        self.mean.copy_(torch.where(moves, torch.lerp(centre, batch, rate), self.mean))
        return centre

    def out(self, y: Tensor) -> Tensor:
        """Reads (B, L, H, D) back to channels (B, L, E)."""
        out: Tensor = self.out_proj(y.flatten(-2).to(self.out_proj.weight.dtype))
        return out


def _none_yet(mean: Tensor) -> Tensor:
    """Room for the mean of a batch and what centred it (2, H, D): nan, like none."""
    return torch.full((2, *mean.shape), torch.nan, dtype=mean.dtype, device=mean.device)


def directions(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of length one, and which were zeros: those are the first axis, without a gradient.

    `normalize` alone would leave them zeros, with a slope of 1e12.
    """
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    none = length.detach() <= SHORT
    first = torch.zeros_like(rows[(0,) * (rows.ndim - 1)]).index_fill(
        0, none.new_zeros(1, dtype=torch.long), 1
    )
    return fn.normalize(torch.where(none, first, rows), dim=-1), none


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
        return attend(q, k, v, None if real is None else causal_mask(real[:, -before - 1 :], 1))
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

    conv_state: Tensor  # (B, T - 1, 3 H D)
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
        return self.project.in_proj.in_features

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
        none = upcast(self.like.new_zeros(batch, 0, heads.count, heads.size))
        return TokenState(self.project.conv.start(batch), none, none).of(self)

    def mix(self, x: Tensor, state: TokenState | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, conv_state = self.project(x, None if state is None else state.conv_state, mask)
        real = mask
        if state is not None:
            k, v, real = state.joined(k, v, mask)
        y = self.project.out(attend(q, k, v, causal_mask(real, x.shape[1])))
        if state is not None:
            state.conv_state, state.keys, state.values, state.real = conv_state, k, v, real
        return y


def causal_mask(real: Tensor | None, n: int) -> Tensor | None:
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
        check_sizes(window=window)
        self.window = window

    def extra_repr(self) -> str:
        """Its heads and its window."""
        return f"{super().extra_repr()}, window={self.window}"

    def mix(self, x: Tensor, state: TokenState | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        q, k, v, conv_state = self.project(x, None if state is None else state.conv_state, mask)
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
            state.conv_state, state.keys, state.values = (
                conv_state,
                k[:, last].clone(),
                v[:, last].clone(),
            )
            state.real = None if real is None else real[:, last].clone()
        return y
