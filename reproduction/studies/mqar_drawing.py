"""Sequences to train on, drawn where the model is, and in which order they come."""

# N sequences, K items, r repeats, L tokens

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..data.mqar import SILENT, MQARTask

if TYPE_CHECKING:
    from .mqar_models import Size

Batches = Iterator[tuple[Tensor, Tensor]]


def batches(seed: int, size: Size, place: str) -> Batches:
    """(Tokens, targets) for ever, the same of a seed for every model."""
    rng, generator = np.random.default_rng(seed), torch.Generator(place).manual_seed(seed)
    for number in count():
        items = n_items(rng, size, number / size.steps)
        task = MQARTask(items, size.tokens // (2 * items) - 1, size.n_keys, size.n_values)
        if place == "cpu":
            drawn = task.draw(rng, size.batch)
            yield torch.from_numpy(drawn.tokens), torch.from_numpy(drawn.targets)
        else:
            yield draw(task, size.batch, generator)


def n_items(rng: np.random.Generator, size: Size, done: float) -> int:
    """Items of the next step: the fewest alone at first, then more come in one after another."""
    n_kinds = len(size.items)
    if done < size.grow:
        n_kinds = 1 + int(n_kinds * done / size.grow)
    return int(rng.choice(size.items[:n_kinds]))


def draw(task: MQARTask, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What `MQARTask.draw` draws, on the generator's device: plain keys, no value renewed.

    >>> tokens, targets = draw(MQARTask(2, 2, 4, 4), 3, torch.Generator().manual_seed(0))
    >>> tokens.shape, (targets != SILENT).sum(1).tolist()
    (torch.Size([3, 12]), [4, 4, 4])
    """
    place = generator.device

    def shuffled(many: int, few: int) -> Tensor:
        """The first few of so many, in random order, (N, few)."""
        return torch.rand(n, many, device=place, generator=generator).argsort(1)[:, :few]

    K, n_context = task.n_items, task.n_items * task.repeats
    names = 1 + shuffled(task.n_keys, K)
    values = torch.randint(task.n_values, (n, K), device=place, generator=generator)
    context = shuffled(n_context, n_context) % K
    items = torch.cat([context, shuffled(K, K)], 1)
    said = values.gather(1, items) + 1 + task.n_keys
    turn = torch.arange(items.shape[1], device=place)
    first = torch.full_like(names, items.shape[1])
    first = first.scatter_reduce(1, items, turn.expand_as(items), "amin")
    silent = torch.full_like(said, SILENT)
    answers = torch.where(first.gather(1, items) == turn, silent, said)
    shown = torch.where(turn < n_context, said, 0)
    tokens = torch.stack([names.gather(1, items), shown], -1).flatten(1)
    return tokens, torch.stack([answers, silent], -1).flatten(1)
