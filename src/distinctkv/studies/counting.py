"""Models that must both recall and count: streams as tensors, memories, training, scores.

A token is a key, the class of its item, and a mark. At the end the class of one item is asked for,
and which part of the tokens was marked. Every model has a summary of the stream, from which it
tells the count, and a memory, from which it recalls; they are trained together.
"""

# B streams, L tokens, Q queries, D key size, C classes, T = D + C + 1 numbers of a token,
# E summary size, F features of a key

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from ..data import RecallTask
from ..nn.allocation import allocate
from ..nn.delta import delta_rule

TASK = RecallTask(n_items=24, repeats=3, n_classes=8)
TOKEN = TASK.width + TASK.n_classes + 1
STATE = 48  # E
TAU = 0.4
STREAMS = 32  # in a step
RATE = 3e-3
WEIGHT = 10.0  # of the squared error of the count
NUMBER = 4  # bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """Streams, and what is asked at their ends."""

    keys: Tensor  # (B, L, D)
    values: Tensor  # (B, L, C), one-hot
    marks: Tensor  # (B, L)
    queries: Tensor  # (B, Q, D)
    answers: Tensor  # (B, Q)

    @property
    def tokens(self) -> Tensor:
        """(B, L, T)."""
        return torch.cat([self.keys, self.values, self.marks[..., None]], -1)

    @property
    def marked(self) -> Tensor:
        """The part of tokens that is marked, (B,)."""
        return self.marks.mean(1)


def draw(
    rng: np.random.Generator, n_streams: int, n_queries: int | None = 1, balanced: bool = False
) -> Batch:
    """Streams of the task, each with marks of a frequency of its own."""
    episodes = [TASK.draw(rng, n_queries) for _ in range(n_streams)]
    often = rng.random((n_streams, 1))
    marks = rng.random((n_streams, TASK.n_tokens)) < often
    columns = (
        np.stack([getattr(one, name) for one in episodes])
        for name in ("keys", "values", "queries", "answers")
    )
    keys, values, queries, answers = (torch.from_numpy(column) for column in columns)
    return Batch(
        keys.float(), values.float(), torch.from_numpy(marks).float(), queries.float(), answers
    )


class DiagonalSum(nn.Module):
    """The state-space backbone: E numbers, each a fading sum, ``h = a h + B x``."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(TOKEN, STATE)
        self.decay = nn.Parameter(torch.linspace(2.0, 8.0, STATE))

    def forward(self, tokens: Tensor) -> Tensor:
        """The state after the last token, (B, E)."""
        age = torch.arange(tokens.shape[1], device=tokens.device).flip(0)
        left = self.decay.sigmoid() ** age[:, None]  # (L, E)
        return (left * self.enter(tokens)).sum(1) / tokens.shape[1]


class AttentionSum(nn.Module):
    """What attention has in its place: a learned query over all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(TOKEN, STATE)
        self.score = nn.Linear(TOKEN, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """A mean of the tokens, (B, E)."""
        return (self.score(tokens).softmax(1) * self.enter(tokens)).sum(1)


class FromSummary(nn.Module):
    """No memory but the summary: a network on it and the query."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(STATE + TASK.width, 64), nn.ReLU(), nn.Linear(64, TASK.n_classes)
        )

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        wide = summary[:, None].expand(-1, batch.queries.shape[1], -1)
        return self.net(torch.cat([wide, batch.queries], -1))


class FromSlots(nn.Module):
    """Softmax attention over the tokens that opened a slot, or over all."""

    def __init__(self, tau: float | None) -> None:
        super().__init__()
        self.tau = tau
        self.q = nn.Linear(TASK.width, TASK.width)
        self.k = nn.Linear(TASK.width, TASK.width)
        self.leave = nn.Linear(TASK.n_classes, TASK.n_classes)

    def kept(self, keys):
        if self.tau is None:
            return torch.ones_like(keys[..., 0], dtype=torch.bool)
        return allocate(keys[:, :, None], self.tau).lead[..., 0]

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        scores = self.q(batch.queries) @ self.k(batch.keys).mT * TASK.width**-0.5
        weights = scores.masked_fill(~self.kept(batch.keys)[:, None], -torch.inf).softmax(-1)
        return self.leave(weights @ batch.values)


class FromMatrix(nn.Module):
    def __init__(self, features: int, deep: bool = False) -> None:
        super().__init__()
        self.k = nn.Sequential(nn.Linear(TASK.width, features), nn.ReLU()) if deep else nn.Linear(TASK.width, features, bias=False)
        self.leave = nn.Linear(TASK.n_classes, TASK.n_classes)
        self.deep = deep
        self.q = nn.Sequential(nn.Linear(TASK.width, features), nn.ReLU()) if deep else nn.Linear(TASK.width, features, bias=False)

    def forward(self, batch, summary):
        k, q = self.k(batch.keys), self.q(batch.queries)
        state = batch.values.mT @ k
        return self.leave(q @ state.mT)


class FromDelta(nn.Module):
    def __init__(self, features: int=32) -> None:
        super().__init__()
        self.k = nn.Linear(TASK.width, features, bias=False)
        self.leave = nn.Linear(TASK.n_classes, TASK.n_classes)
        self.rate = nn.Parameter(torch.zeros(()))

    def forward(self, batch, summary):
        k, q = fn.normalize(self.k(batch.keys), dim=-1), fn.normalize(self.k(batch.queries), dim=-1)
        rate = self.rate.sigmoid().expand(k.shape[:2])[..., None]
        kk = k[:, :, None]
        _, state = delta_rule(kk, kk, batch.values[:, :, None], torch.zeros_like(rate), rate, chunk=72)
        return self.leave(q @ state[:, 0].mT)


class Model(nn.Module):
    def __init__(self, summary: nn.Module, memory: nn.Module) -> None:
        super().__init__()
        self.summary, self.memory = summary, memory
        self.count = nn.Linear(STATE, 1)

    def forward(self, batch: Batch):
        h = self.summary(batch.tokens)
        return self.memory(batch, h), self.count(h)[:, 0]


def train(model, batches, rate=RATE):
    opt = torch.optim.Adam(model.parameters(), rate)
    for b in batches:
        logits, count = model(b)
        loss = fn.cross_entropy(logits.flatten(0, 1), b.answers.flatten()) + WEIGHT * (count - b.marked).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

@torch.no_grad()
def score(model, b):
    logits, count = model(b)
    r = float((logits.argmax(-1) == b.answers).float().mean())
    res = (count - b.marked).square().mean() / b.marked.var(unbiased=False)
    return r, 1 - float(res)
