"""Streams in which to recall and to count, and how models are trained and asked on them.

A token is a key, the class of its item, and a mark. At the end the class of an item is asked for,
and which part of the tokens was marked.
"""

# B streams, L tokens, K items, Q queries, D key size, C classes, T = D + C + 1 numbers of a token

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from distinctkv.rule import unit

from ..data.synthetic import occurrences
from .hybrid import RATE, STREAMS, TASK, WEIGHT

WIDTH, CLASSES, LENGTH = TASK.width, TASK.n_classes, TASK.n_tokens


@dataclass(frozen=True, slots=True)
class Batch:
    """Streams, and queries at their ends: one for each item, in order."""

    keys: Tensor  # (B, L, D)
    items: Tensor  # (B, L)
    labels: Tensor  # (B, K)
    marks: Tensor  # (B, L)
    queries: Tensor  # (B, Q, D)

    @property
    def values(self) -> Tensor:
        """Classes of the tokens, (B, L, C), one-hot."""
        return fn.one_hot(self.labels.gather(1, self.items), CLASSES).float()

    @property
    def answers(self) -> Tensor:
        """(B, Q)."""
        return self.labels[:, : self.queries.shape[1]]

    @property
    def tokens(self) -> Tensor:
        """(B, L, T)."""
        return torch.cat([self.keys, self.values, self.marks[..., None]], -1)

    @property
    def marked(self) -> Tensor:
        """The part of the tokens that is marked, (B,)."""
        return self.marks.mean(1)

    def asked_once(self) -> Batch:
        """The same streams with one question each; items come in no order, so it may be any."""
        return replace(self, queries=self.queries[:, :1])

    def levelled(self, rng: np.random.Generator) -> Batch:
        """The same streams with every class given to as many items."""
        each = np.tile(np.arange(TASK.n_items) % CLASSES, (len(self.keys), 1))
        labels = torch.from_numpy(rng.permuted(each, axis=1))
        return replace(self, labels=labels.to(self.labels.device))


def draw(rng: np.random.Generator, n_streams: int, device: str) -> Batch:
    """Streams of the task, each with marks of a frequency of its own."""
    each = np.tile(np.arange(TASK.n_items), (n_streams, 1))  # (B, K)
    items = rng.permuted(np.repeat(each, TASK.repeats, axis=1), axis=1)
    prototypes = unit(rng.standard_normal((each.size, WIDTH)))
    first = TASK.n_items * np.arange(n_streams)[:, None]

    def keys(of: np.ndarray) -> np.ndarray:
        rows = occurrences(rng, prototypes[(first + of).ravel()], TASK.noise)
        return rows.reshape(*of.shape, WIDTH).astype(np.float32)

    labels = rng.integers(CLASSES, size=each.shape)
    marks = rng.random(items.shape) < rng.random((n_streams, 1))
    parts = (keys(items), items, labels, marks.astype(np.float32), keys(each))
    return Batch(*(torch.from_numpy(part).to(device) for part in parts))


class Model(nn.Module):
    """What is trained: it tells classes and a count, and says what it holds."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of the classes (B, Q, C), and the part that was marked (B,)."""
        raise NotImplementedError

    def held(self, batch: Batch) -> tuple[float, float]:
        """Slots and bytes at the end of a stream; a row of a state is called a slot."""
        raise NotImplementedError


def views(batch: Batch, rng: np.random.Generator) -> Mapping[str, Batch]:
    """What models see that do not see the batch itself."""
    return {"once": batch.asked_once(), "level": batch.levelled(rng)}


def train(
    models: Mapping[str, Model], seed: int, steps: int, device: str, tick: Callable[[], None]
) -> None:
    """Adam on fresh streams, the same for all models; each step ends in a ``tick``."""
    rng = np.random.default_rng(seed)
    optimisers = {
        name: torch.optim.Adam(model.parameters(), RATE) for name, model in models.items()
    }
    for _ in range(steps):
        batch = draw(rng, STREAMS, device)
        seen = views(batch, rng)
        for name, model in models.items():
            optimisers[name].zero_grad()
            torch.autograd.backward(loss(model, seen.get(name, batch)))
            optimisers[name].step()
        tick()


def loss(model: Model, batch: Batch) -> Tensor:
    """Cross-entropy of the classes, and the squared error of the count, weighed up."""
    classes, count = model(batch)
    wrong = fn.cross_entropy(classes.flatten(0, 1), batch.answers.flatten())
    missed: Tensor = (count - batch.marked).square().mean()
    return wrong + WEIGHT * missed


@torch.no_grad()
def score(model: Model, batch: Batch) -> tuple[float, float, float, float]:
    """Recall, R2 of the count, slots and bytes."""
    classes, count = model(batch)
    recall = (classes.argmax(-1) == batch.answers).float().mean()
    missed = (count - batch.marked).square().mean() / batch.marked.var(correction=0)
    return (float(recall), 1 - float(missed), *model.held(batch))


def guessed(batch: Batch) -> float:
    """Recall of one who always says the class that most items have."""
    counts = fn.one_hot(batch.labels, CLASSES).sum(1)
    return float((counts.argmax(-1, keepdim=True) == batch.answers).float().mean())
