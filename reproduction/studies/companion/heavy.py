"""Attention over a fixed number of tokens, of which those leave that were attended to least."""

# B sequences, H heads, L tokens, D head size, S tokens kept, Q tokens of a block

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from distinctkv.nn import FullAttention
from distinctkv.nn.attention import Heads, TokenState

from .models import Replace, with_weights


class Kept(NamedTuple):
    """Keys and values of the tokens of a head in the order in which they came (B, H, S, D)."""

    keys: Tensor
    values: Tensor
    scores: Tensor  # (B, H, S), the attention that each was given

    def joined(self, k: Tensor, v: Tensor) -> Kept:
        """With the tokens of a block behind them, which were given none so far."""
        none = torch.zeros_like(k[..., 0])
        more = (torch.cat(pair, 2) for pair in zip(self, (k, v, none), strict=True))
        return Kept(*more)

    def only(self, places: Tensor) -> Kept:
        """Those at these places (B, H, n)."""
        keys, values = (
            rows.gather(2, places[..., None].expand(*places.shape, rows.shape[-1]))
            for rows in self[:2]
        )
        return Kept(keys, values, self.scores.gather(2, places))


def attend(q: Tensor, kept: Kept) -> tuple[Tensor, Kept]:
    """Reads of a block (B, H, Q, D), the last Q of those kept, and what attention they gave."""
    Q, S = q.shape[2], kept.keys.shape[2]
    later = torch.ones(Q, S, dtype=torch.bool, device=q.device).triu(S - Q + 1)
    share = (q @ kept.keys.mT).masked_fill(later, -torch.inf).softmax(-1)
    return share @ kept.values, kept._replace(scores=kept.scores + share.sum(2))


def evict(kept: Kept, n: int, recent: int) -> Kept:
    """The last ``recent`` tokens, and of the others those with the most attention, n in all."""
    S = kept.keys.shape[2]
    if n >= S:
        return kept
    score = kept.scores.clone()
    score[..., S - recent :] = torch.inf
    places = score.topk(n, dim=-1).indices.sort(-1).values
    return kept.only(places)


class HeavyHitters(FullAttention):
    """H2O (Zhang et al. 2023): each head keeps the tokens with the most attention and the last.

    The sum of all attention that a token was ever given decides. Half of the ``budget`` are the
    last tokens, as published. Tokens come in blocks: those of a block are read as they are, each
    up to itself, and after it so many leave that the next block finds room. So no query ever sees
    more than ``budget`` tokens, on average half a block fewer (4 % at 20 % of 4,096), and what
    leaves is decided by queries of the past alone.

    With ``votes`` only what the last block gave counts, and only its tokens are kept as the last.
    That is the rule of SnapKV (Li et al. 2024) after every block; published, it chooses once, at
    the end of a prompt, and pools over neighbours.
    """

    def __init__(
        self, width: int, heads: Heads, *, budget: int, block: int = 64, votes: bool = False
    ) -> None:
        super().__init__(width, heads)
        self.budget, self.block, self.votes = budget, min(block, max(1, budget // 4)), votes
        self.recent = self.block if votes else budget // 2

    def mix(self, x: Tensor, state: TokenState | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens of whole texts."""
        if state is not None or mask is not None:
            raise ValueError("this read takes whole texts, without a state or padding")
        q, k, v, _ = self.project(x)
        with torch.autocast(x.device.type, enabled=False):
            y = self.reads(*(t.transpose(1, 2) for t in (q, k, v)))
        return self.project.out(y.transpose(1, 2))

    def reads(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """What each token (B, H, L, D) reads."""
        kept = Kept(k[:, :, :0], v[:, :, :0], k[:, :, :0, 0])
        n, parts = self.budget - self.block, []
        for part in zip(*(torch.split(t, self.block, 2) for t in (q, k, v)), strict=True):
            if self.votes:
                kept = kept._replace(scores=torch.zeros_like(kept.scores))
            kept = kept.joined(*part[1:])
            y, kept = attend(part[0], kept)
            kept = evict(kept, n, min(n, self.recent))
            parts.append(y)
        return torch.cat(parts, 2)


def heavy(budget: int, *, votes: bool = False) -> Replace:
    """So many tokens of each head on the weights of a full attention."""

    def replace(full: FullAttention) -> FullAttention:
        made = HeavyHitters(full.width, full.project.heads, budget=budget, votes=votes)
        with_weights(made, full)
        return made

    return replace
