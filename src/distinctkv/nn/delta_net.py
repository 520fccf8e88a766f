"""Gated DeltaNet: a matrix state that corrects what it recalls."""

# B sequences, L tokens, H heads, D key size, C value size, Q chunk, E model width

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .mixer import Mixer, ShortConv, State, check_sizes, rms_norm, upcast
from .ssm import chunks, decays


def delta_scan(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, rate: Tensor, *, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gated delta rule as it is defined, token by token: slow, for reference.

    ``S = exp(decay_t) S``, then ``S += rate_t (v_t - S k_t) k_t^T``, then ``y_t = S q_t``.
    ``q`` and ``k`` are (B, L, H, D), ``v`` (B, L, H, C), ``decay`` (a logarithm, 0 or less) and
    ``rate`` (B, L, H). Returns ``y`` like ``v`` and the state S (B, H, C, D).
    """
    S = k.new_zeros(*v.shape[:1], *v.shape[2:], k.shape[3]) if state is None else state
    rows = []
    for t in range(k.shape[1]):
        S = decay[:, t, :, None, None].exp() * S
        wrong = v[:, t] - (S @ k[:, t, ..., None]).squeeze(-1)
        S = S + rate[:, t, :, None, None] * wrong[..., None] * k[:, t, :, None]
        rows.append((S @ q[:, t, ..., None]).squeeze(-1))
    return torch.stack(rows, 1), S


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    rate: Tensor,
    *,
    chunk: int = 64,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`delta_scan` by chunks: one triangular system for each, then matrix products.

    With g_t the decay since the chunk began, the corrections u of a chunk solve
    ``u_t = rate_t (v_t - g_t S k_t - sum_{s<t} (g_t / g_s) (k_s . k_t) u_s)``.

    >>> e = torch.eye(2)[None, :, None]  # two keys, each also its own query
    >>> zero, one = torch.zeros(1, 2, 1), torch.ones(1, 2, 1)
    >>> delta_rule(e, e, torch.tensor([5.0, 7.0]).reshape(1, 2, 1, 1), zero, one)[0].flatten()
    tensor([5., 7.])
    """
    L = q.shape[1]
    # A token of rate 0 and decay 0 changes nothing, so it can fill the last chunk.
    q, k, v = (chunks(t, chunk).movedim(3, 2) for t in (q, k, v))  # (B, M, H, Q, D)
    moves, rate = (chunks(t, chunk).movedim(3, 2) for t in (decay, rate))  # (B, M, H, Q)
    left = decays(moves)  # (B, M, H, Q, Q)
    since = moves.cumsum(-1).exp()[..., None]
    eye = torch.eye(chunk, dtype=k.dtype, device=k.device)
    system = eye + (rate[..., None] * left * (k @ k.mT)).tril(-1)
    given = rate[..., None] * torch.cat([v, since * k], -1)
    solved = torch.linalg.solve_triangular(system, given, upper=False, unitriangular=True)
    own, seen = torch.split(solved, [v.shape[-1], k.shape[-1]], -1)
    to_end = left[..., -1, :, None] * k
    S = k.new_zeros(*own[:, 0, :, 0].shape, k.shape[-1]) if state is None else state
    before, last = _carry(own.mT @ to_end, since[..., -1:, :], seen.mT @ to_end, S)
    u = own - seen @ before.mT  # the corrections of all chunks at once
    y = (since * q) @ before.mT + (left * (q @ k.mT)) @ u
    return y.movedim(3, 2).flatten(1, 2)[:, :L], last


def _carry(adds: Tensor, keeps: Tensor, erases: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """States before each chunk (B, M, H, C, D) and after the last, two launches for each chunk.

    A chunk takes S to ``keeps S - S erases + adds``: (B, M, H, 1, 1), (B, M, H, D, D) and like S.
    """
    B, M, H = adds.shape[:3]
    # Chunks first, and taken apart at once: the slope of a slice is as large as all chunks.
    add, keep, erase = (
        t.movedim(1, 0).flatten(1, 2).unbind(0) for t in (adds, keeps, erases)
    )  # (B H, ...) each
    states = [start.flatten(0, 1)]
    for m in range(M):
        S = states[-1]
        states.append(torch.baddbmm(torch.addcmul(add[m], keep[m], S), S, erase[m], alpha=-1))
    *before, last = states
    return (
        torch.unflatten(torch.stack(before), 1, (B, H)).movedim(0, 1),
        torch.unflatten(last, 0, (B, H)),
    )


@dataclass(repr=False)
class DeltaState(State):
    """Fixed in size: the last inputs of the convolution, and a matrix for each head."""

    conv_state: Tensor  # (B, T - 1, H (2 D + C))
    memory: Tensor  # (B, H, C, D), 32 bits


class GatedDeltaNet(Mixer[DeltaState]):
    """The gated delta rule with projections, a short convolution and a gated norm.

    ``key`` and ``value`` are sizes for each of ``heads`` heads.

    >>> GatedDeltaNet(width=32, heads=2, key=8, value=16)(torch.zeros(1, 10, 32)).shape
    torch.Size([1, 10, 32])
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 2,
        key: int = 64,
        value: int = 128,
        taps: int = 4,
        chunk: int = 64,
    ) -> None:
        super().__init__()
        check_sizes(width=width, heads=heads, key=key, value=value, chunk=chunk)
        self.heads, self.key, self.value, self.chunk = heads, key, value, chunk
        mixed = heads * (2 * key + value)
        self.sizes = [mixed, heads * value, heads, heads]  # q, k and v; the gate; decay; rate
        self.in_proj = nn.Linear(width, sum(self.sizes), bias=False)
        self.conv = ShortConv(mixed, taps)
        self.log_decay = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        steps = torch.empty(heads).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_bias = nn.Parameter(steps.expm1().log())
        self.norm = nn.Parameter(torch.ones(value))
        self.out_proj = nn.Linear(heads * value, width, bias=False)

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.in_proj.in_features

    def extra_repr(self) -> str:
        """Its sizes."""
        return f"heads={self.heads}, key={self.key}, value={self.value}, taps={self.conv.taps}"

    def start(self, batch: int) -> DeltaState:
        """Nothing seen: zeros."""
        memory = self.dt_bias.new_zeros(batch, self.heads, self.value, self.key)
        return DeltaState(self.conv.start(batch), upcast(memory)).of(self)

    def mix(self, x: Tensor, state: DeltaState | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        mixed, z, dt, rate = torch.split(self.in_proj(x), self.sizes, -1)
        mixed, conv_state = self.conv(mixed, None if state is None else state.conv_state, mask)
        mixed = upcast(fn.silu(mixed).reshape(*x.shape[:2], self.heads, -1))
        q, k, v = torch.split(mixed, [self.key, self.key, self.value], -1)
        decay = -upcast(self.log_decay).exp() * fn.softplus(upcast(dt) + self.dt_bias)
        rate = upcast(rate).sigmoid()
        if mask is not None:  # nothing fades and nothing is written
            decay, rate = (torch.where(mask[..., None], t, 0) for t in (decay, rate))
        # The triangular solve has no 16-bit form, and the state must not round away old tokens.
        with torch.autocast(x.device.type, enabled=False):
            y, memory = delta_rule(
                fn.normalize(q, dim=-1),
                fn.normalize(k, dim=-1),
                v,
                decay,
                rate,
                chunk=min(self.chunk, x.shape[1]),
                state=None if state is None else state.memory,
            )
        if state is not None:
            state.conv_state, state.memory = conv_state, memory
        y = rms_norm(y, self.norm).flatten(-2) * fn.silu(z)
        out: Tensor = self.out_proj(y.to(self.out_proj.weight))
        return out
