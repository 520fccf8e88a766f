"""Streams that bind keys to classes, and how models are trained and asked on them."""

# B streams, L tokens, Q queries, C classes

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .five_models import CLASSES, ITEMS, KEYS, LENGTH, QUERIES, STREAMS


@dataclass(frozen=True, slots=True)
class Batch:
    """Streams of keys and classes, and what is asked at their ends."""

    keys: Tensor  # (B, L)
    classes: Tensor  # (B, L)
    queries: Tensor  # (B, Q)
    answers: Tensor  # (B, Q)


def draw(rng: np.random.Generator, n_streams: int, device: str) -> Batch:
    """Streams in which 128 of the keys, each bound to a class, come four times in any order."""
    each = np.arange(LENGTH) % ITEMS
    keys = rng.permuted(np.tile(np.arange(KEYS), (n_streams, 1)), axis=1)[:, :ITEMS]
    classes = rng.integers(CLASSES, size=(n_streams, ITEMS))
    items = rng.permuted(np.tile(each, (n_streams, 1)), axis=1)
    asked = rng.integers(ITEMS, size=(n_streams, QUERIES))
    columns = ((keys, items), (classes, items), (keys, asked), (classes, asked))
    return Batch(
        *(torch.from_numpy(np.take_along_axis(of, at, 1)).to(device) for of, at in columns)
    )


class Model(nn.Module):
    """What is trained: scores of the classes, and what it holds."""

    def forward(self, batch: Batch) -> Tensor:
        """Scores of the classes, (B, Q, C)."""
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of the answers."""
        return fn.cross_entropy(self(batch).flatten(0, 1), batch.answers.flatten())

    def held(self, batch: Batch) -> tuple[float, float]:
        """Slots and bytes at the end of a stream; a row of a state is called a slot."""
        raise NotImplementedError


def train(model: Model, seed: int, steps: int, rate: float, device: str) -> None:
    """Adam on fresh streams, the same for every model of a seed."""
    rng = np.random.default_rng(seed)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        loss = model.loss(draw(rng, STREAMS, device))
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()


@torch.no_grad()
def score(model: Model, seed: int, n_batches: int, device: str) -> tuple[float, float, float]:
    """Recall on streams that were not trained on; slots and bytes after the last of them."""
    rng = np.random.default_rng((seed, 1))
    right = []
    for _ in range(n_batches):
        batch = draw(rng, STREAMS, device)
        right.append(float((model(batch).argmax(-1) == batch.answers).float().mean()))
    return (fmean(right), *model.held(batch))
