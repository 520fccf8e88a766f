"""The rules of KVM and OVQ on the same layer."""

# B sequences, L tokens, H heads, D head size, S slots, E model width, c tokens of a chunk,
# n opened now

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as fn

from .attention import Attention, Heads, Projection
from .mixer import State, check_sizes


@dataclass(repr=False)
class ScheduledState(State):
    """Sums and counts of the slots, and the tokens of the unfinished chunk."""

    conv_state: Tensor  # (B, T - 1, 3 H D)
    keys: Tensor  # (B, H, S, D), sums
    values: Tensor  # (B, H, S, D), sums
    counts: Tensor  # (B, H, S)
    tail_keys: Tensor  # (B, H, less than c, D)
    tail_values: Tensor
    n_tokens: int = 0  # in slots


class ScheduledAttention(Attention[ScheduledState]):
    """Attention over slots and an unfinished chunk; how many slots there are is a matter of time.

    When ``chunk`` tokens have come, those least like any slot open new ones, as many as are due,
    and the rest are added to the slot most like them. Gradients pass through the sums. A state
    changes its shape from token to token, so compile whole sequences, not steps.
    """

    def __init__(self, width: int, heads: Heads | None = None, *, chunk: int = 16) -> None:
        super().__init__()
        check_sizes(chunk=chunk)
        self.project = Projection(width, heads or Heads())
        self.chunk = chunk

    def extra_repr(self) -> str:
        """Its heads and its chunk."""
        return f"{super().extra_repr()}, chunk={self.chunk}"

    def due(self, n_tokens: int) -> int:
        """Slots that there should be after so many tokens."""
        raise NotImplementedError

    def fit(self, n_slots: int, n_tokens: int) -> None:
        """Choose the schedule that ends with so many slots."""
        raise NotImplementedError

    def slot_keys(self, state: ScheduledState) -> Tensor:
        """The key of each slot (B, H, S, D)."""
        raise NotImplementedError

    def slot_bias(self, state: ScheduledState) -> Tensor:
        """What a read adds to the logit of each slot (B, H, S)."""
        raise NotImplementedError

    def start(self, batch: int) -> ScheduledState:
        """No slots, no tokens."""
        heads = self.project.heads
        wide = torch.promote_types(self.like.dtype, torch.float32)
        none = self.like.new_zeros(batch, heads.count, 0, heads.size, dtype=wide)
        conv_state = self.project.conv.start(batch)
        return ScheduledState(conv_state, none, none, none[..., 0], none, none).of(self)

    def mix(
        self, x: Tensor, state: ScheduledState | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`. A chunk is full for all streams at once."""
        if mask is not None and not bool(mask.all()):
            raise ValueError(
                f"{int((~mask).sum())} tokens are padding, and streams of this layer fill their "
                "chunks together; give sequences of one length"
            )
        q, k, v, conv_state = self.project(x, None if state is None else state.conv_state)
        state = self.start(len(x)) if state is None else state
        state.conv_state = conv_state
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        with torch.autocast(x.device.type, enabled=False):
            return self.project.out(self.attend(q, k, v, state).transpose(1, 2))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, state: ScheduledState) -> Tensor:
        """Reads of (B, H, L, D) tokens, each from the slots and the tokens up to its own."""
        parts, at = [], 0
        while at < q.shape[2]:
            stop = at + self.chunk - state.tail_keys.shape[2]
            state.tail_keys = torch.cat([state.tail_keys, k[:, :, at:stop]], 2)
            state.tail_values = torch.cat([state.tail_values, v[:, :, at:stop]], 2)
            parts.append(self._read(q[:, :, at:stop], state))
            if state.tail_keys.shape[2] == self.chunk:
                self._absorb(state)
            at = stop
        return torch.cat(parts, 2)

    def _read(self, q: Tensor, state: ScheduledState) -> Tensor:
        """What the last tokens of the tail read."""
        keys = torch.cat([self.slot_keys(state), state.tail_keys], 2)
        values = torch.cat([state.values / state.counts[..., None], state.tail_values], 2)
        bias = fn.pad(self.slot_bias(state), (0, state.tail_keys.shape[2]))[:, :, None]
        Q, T = q.shape[2], keys.shape[2]
        later = torch.ones(Q, T, dtype=torch.bool, device=q.device).triu(T - Q + 1)
        bias = bias.masked_fill(later, -math.inf)
        return fn.scaled_dot_product_attention(q, keys, values, bias, scale=1.0)

    def _absorb(self, state: ScheduledState) -> None:
        """Open the slots that are due, and merge the rest of the chunk."""
        keys, values, c = state.tail_keys, state.tail_values, self.chunk
        state.n_tokens += c
        n = min(c, max(0, max(1, self.due(state.n_tokens)) - state.keys.shape[2]))
        # With no slot yet every token is as novel, and the first ones open slots.
        known = keys[..., 0].detach().new_full(keys.shape[:3], -1.0)
        if state.keys.shape[2]:
            known = (keys @ self.slot_keys(state).mT).amax(-1).detach()
        order = known.argsort(dim=-1, stable=True)
        novel, rest = order[..., :n].sort(-1).values, order[..., n:].sort(-1).values
        state.keys = torch.cat([state.keys, _rows(keys, novel)], 2)
        state.values = torch.cat([state.values, _rows(values, novel)], 2)
        state.counts = torch.cat([state.counts, torch.ones_like(novel, dtype=keys.dtype)], 2)
        near = (_rows(keys, rest) @ self.slot_keys(state).mT).argmax(-1)
        wide = near[..., None].expand(-1, -1, -1, keys.shape[-1])
        state.keys = state.keys.scatter_add(2, wide, _rows(keys, rest))
        state.values = state.values.scatter_add(2, wide, _rows(values, rest))
        state.counts = state.counts.scatter_add(2, near, torch.ones_like(near, dtype=keys.dtype))
        state.tail_keys, state.tail_values = keys[:, :, :0].clone(), values[:, :, :0].clone()


class KVMAttention(ScheduledAttention):
    """``factor sqrt(T)`` slots; a key is the sum of its tokens' scaled to length one (KVM, 2026).

    >>> KVMAttention(width=32)(torch.randn(1, 40, 32)).shape
    torch.Size([1, 40, 32])
    """

    factor = 5.5  # the default of `reproduction.baselines.KVM`

    def due(self, n_tokens: int) -> int:
        """Slots that there should be after so many tokens, and the first chunk whole."""
        return max(int(self.factor * math.sqrt(n_tokens) + 1e-9), self.chunk)

    def fit(self, n_slots: int, n_tokens: int) -> None:
        """Choose the schedule that ends with so many slots."""
        check_sizes(n_slots=n_slots, n_tokens=n_tokens)
        self.factor = n_slots / math.sqrt(n_tokens)

    def slot_keys(self, state: ScheduledState) -> Tensor:
        """Sums scaled to length one."""
        return fn.normalize(state.keys, dim=-1, eps=1e-6)

    def slot_bias(self, state: ScheduledState) -> Tensor:
        """None."""
        return torch.zeros_like(state.counts)


class OVQAttention(ScheduledAttention):
    """``n T / (n + T)`` slots, each the mean of its tokens and weighed by them (OVQ, 2026).

    >>> OVQAttention(width=32)(torch.randn(1, 40, 32)).shape
    torch.Size([1, 40, 32])
    """

    limit = 128  # the default of `reproduction.baselines.OVQ`

    def due(self, n_tokens: int) -> int:
        """Slots that there should be after so many tokens."""
        return self.limit * n_tokens // (self.limit + n_tokens)

    def fit(self, n_slots: int, n_tokens: int) -> None:
        """Choose the schedule that ends with so many slots."""
        check_sizes(n_slots=n_slots, n_tokens=n_tokens)
        if n_slots >= n_tokens:
            raise ValueError(
                f"{n_tokens} tokens never fill {n_slots} slots by this schedule; give fewer slots"
            )
        self.limit = -(-n_slots * n_tokens // (n_tokens - n_slots))

    def slot_keys(self, state: ScheduledState) -> Tensor:
        """Means."""
        return state.keys / state.counts[..., None]

    def slot_bias(self, state: ScheduledState) -> Tensor:
        """The logarithm of the count, so that a slot weighs as all its tokens would."""
        return state.counts.log()


def _rows(tokens: Tensor, index: Tensor) -> Tensor:
    """Tokens (B, H, c, D) at these places (B, H, n)."""
    return tokens.gather(2, index[..., None].expand(-1, -1, -1, tokens.shape[-1]))
