"""Queries, keys and values as every attention mixer makes them."""

# B streams, L tokens, E channels, H heads, D head size

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import inf, nan
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from ..policy import check_real
from .door import least
from .mixer import ShortConv, check_sizes, check_whole, widened

RATE = 0.1  # how fast the mean key follows the batches in training
PENDING = 64  # batches that may wait for a backward pass which computes them again
SHORT = 1e-12  # a row no longer than this has no direction


@dataclass(frozen=True)  # no slots: what an old pickle lacks is then as it comes
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
        if not isinstance(self.centre, bool):
            raise TypeError(f"centre must be True or False, got {self.centre!r}")
        check_whole(lag=self.lag)
        if not 0 <= self.lag < self.taps:
            most = f"0 to {self.taps - 1}" if self.taps > 1 else "0"
            raise ValueError(
                f"a convolution of {self.taps} taps sees no token {self.lag} places before; lag "
                f"must be {most}, or taps more"
            )

    def __setstate__(self, held: dict[str, object] | list[object]) -> None:
        """Be as pickled; older versions pickled a list, and knew no lag."""
        named = zip((field.name for field in fields(self)), held, strict=False)
        vars(self).update(held if isinstance(held, dict) else named)


class Projection(nn.Module):
    """Tokens (B, L, E) to queries, keys of length one, and values, each (B, L, H, D).

    The mean key is a buffer. A training batch is centred by the mean of the batches before it, so
    no token sees a later one, and then moves it. Evaluation, and any call with a past, leaves it
    alone, so that a stream may be cut anywhere. What a backward pass computes again, for activation
    checkpointing, is centred as it was the first time, and moves nothing; compiled code cannot ask
    where it runs, so there it is the last batch once more.

    A key of zeros has no direction and gets the first axis, so that all such keys are repeats of
    one another; a query of zeros stays so and prefers nothing.
    """

    mean: Tensor
    batches: Tensor
    recent: Tensor

    def __init__(self, width: int, heads: Heads) -> None:
        super().__init__()
        check_sizes(width=width)
        if not isinstance(heads, Heads):
            raise TypeError(f"heads must be Heads(count=...), got {heads!r}")
        self.heads = heads
        wide = 3 * heads.count * heads.size
        self.enter = nn.Linear(width, wide, bias=False)
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
        self.leave = nn.Linear(heads.count * heads.size, width, bias=False)

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
        self, x: Tensor, past: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (times their scale), keys, values, and the past of the next tokens."""
        mixed, now = self.conv(self.enter(x), past, mask)
        mixed = mixed.reshape(*x.shape[:2], 3, self.heads.count, self.heads.size)
        q, k, v = (widened(t) for t in mixed.unbind(2))  # cosines decide: not in 16 bits
        if self.heads.centre:
            follows = self.training and past is None
            k = k - (self._follow(k, mask) if follows else self.mean)
        (q, blank), (k, _) = directions(q), directions(k)
        q = q if blank is None else torch.where(blank, 0, q)
        return q * self.scale, k, v, now

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
        recent = self.recent
        far = (recent[0] - batch).square().sum((1, 2)).nan_to_num(inf, inf)
        if _in_backward():
            # The nearest, not the same: other kernels may have made its tokens then. Once only, as
            # the newest comes first: a batch may wait twice.
            nearest = far.argmin()[None]
            old = recent[1].index_select(0, nearest)[0]
            recent[0].index_fill_(0, nearest, nan)
            return torch.where(far.isfinite().any(), old, self.mean)
        again = (far[0] == 0) & torch.compiler.is_compiling()
        centre = torch.where(again, recent[1, 0], self.mean)
        moves = batch.isfinite().all() & ~again
        self.batches += moves
        rate = (1 / self.batches.clamp(min=1)).clamp(min=RATE).to(self.mean)
        newest = torch.stack([batch, centre])[:, None]
        recent.copy_(torch.where(moves, torch.cat([newest, recent[:, :-1]], 1), recent))
        self.mean.copy_(torch.where(moves, torch.lerp(centre, batch, rate), self.mean))
        return centre

    def out(self, y: Tensor) -> Tensor:
        """Reads (B, L, H, D) back to channels (B, L, E)."""
        leave: Tensor = self.leave(y.flatten(-2).to(self.leave.weight.dtype))
        return leave


def _none_yet(mean: Tensor) -> Tensor:
    """Room for batches and what centred them (2, PENDING, H, D), newest first: nan, like none."""
    return torch.full((2, PENDING, *mean.shape), torch.nan, dtype=mean.dtype, device=mean.device)


def _in_backward() -> bool:
    """Whether a backward pass asks, which computes again what was computed before."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() >= 0


def directions(rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """Rows of length one, and which were zeros: those are the first axis, without a gradient.

    `normalize` alone would leave them zeros, with a slope of 1e12. None if it is seen that none is.
    """
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    if least(length) > SHORT:
        return rows / length, None
    none = length.detach() <= SHORT
    first = torch.zeros_like(rows[(0,) * (rows.ndim - 1)]).index_fill(
        0, none.new_zeros(1, dtype=torch.long), 1
    )
    return fn.normalize(torch.where(none, first, rows), dim=-1), none
