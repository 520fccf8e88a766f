"""A real diagonal state-space layer, S4D, trained on the recall stream and used as a memory."""

# B streams, L tokens, Q queries, D key size, C classes, E = D + C channels

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from distinctkv.nn.ssm import DiagonalSSM
from distinctkv.rule import Floats

if TYPE_CHECKING:
    from ..data import RecallTask

STATES = 32  # complex numbers of each channel
STEPS, STREAMS, RATE = 150, 8, 3e-3


class S4DModel(nn.Module):
    """One S4D layer over the tokens; a network reads its last output and the query."""

    def __init__(self, task: RecallTask) -> None:
        super().__init__()
        width = task.width + task.n_classes
        self.project = nn.Linear(width, width)
        self.layer = DiagonalSSM(width, states=STATES)
        self.net = nn.Sequential(
            nn.Linear(width + task.width, 256), nn.ReLU(), nn.Linear(256, task.n_classes)
        )

    def answer(self, last: Tensor, queries: Tensor) -> Tensor:
        """Scores (B, Q, C) from the last output (B, E)."""
        wide = last[:, None].expand(-1, queries.shape[1], -1)
        found: Tensor = self.net(torch.cat([wide, queries], -1))
        return found


@cache
def trained(task: RecallTask, steps: int = STEPS) -> S4DModel:
    """The model after Adam on fresh streams of the task, each with a query for every item."""
    rng = np.random.default_rng(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = S4DModel(task)
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    for _ in range(steps):
        drawn = [task.draw(rng, None) for _ in range(STREAMS)]
        names = ("keys", "values", "queries", "answers")
        columns = (np.stack([getattr(one, name) for one in drawn]) for name in names)
        keys, values, queries, answers = (torch.from_numpy(column) for column in columns)
        y = model.layer(model.project(torch.cat([keys, values], -1).float()))
        scores = model.answer(y[:, -1], queries.float())
        optimiser.zero_grad()
        torch.autograd.backward(fn.cross_entropy(scores.flatten(0, 1), answers.flatten()))
        optimiser.step()
    return model.eval()


class S4D:
    """A memory of fixed size: the state of a trained S4D layer, for streams of one task.

    Unlike the other baselines it must be trained first, which `trained` does once.
    """

    def __init__(self, task: RecallTask) -> None:
        self.model = trained(task)
        self.state = self.model.layer.start(1)
        self.last = torch.zeros(1, task.width + task.n_classes)

    def __len__(self) -> int:
        """Channels; each has a state of its own."""
        return self.last.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of the state and of its last output."""
        return self.state.nbytes + self.last.nbytes

    @torch.no_grad()
    def write(self, keys: Floats, values: Floats) -> None:
        """Read a chunk of tokens (L, D) and (L, C)."""
        tokens = torch.from_numpy(np.concatenate([keys, values], 1)).float()[None]
        self.last = self.model.layer(self.model.project(tokens), self.state)[:, -1].clone()

    @torch.no_grad()
    def read(self, queries: Floats) -> Floats:
        """Scores of the classes (Q, C)."""
        scores = self.model.answer(self.last, torch.from_numpy(queries).float()[None])
        found: Floats = scores[0].double().numpy()
        return found
