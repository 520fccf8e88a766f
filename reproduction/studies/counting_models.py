"""Models that count and recall: the paper's three, and fixed states that recall more than its own.

Most have a summary of the stream, from which they tell the count, and beside it a memory, from
which they recall.
"""

# B streams, L tokens, Q queries, C classes, T = D + C + 1 numbers of a token, E summary size,
# F features of a key

from __future__ import annotations

from collections.abc import Mapping
from math import pi

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from distinctkv.nn.allocation import allocate
from distinctkv.nn.delta import delta_rule

from .counting import CLASSES, LENGTH, WIDTH, Batch, Model
from .hybrid import FEATURES, STATE, TAU

TOKEN = WIDTH + CLASSES + 1  # T
NUMBER = 4  # bytes


class DiagonalSum(nn.Module):
    """The state-space backbone: E numbers, each a fading sum, ``h = a h + B x``."""

    nbytes = NUMBER * STATE

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(TOKEN, STATE)
        self.decay = nn.Parameter(torch.linspace(2.0, 8.0, STATE))

    def forward(self, tokens: Tensor) -> Tensor:
        """The state after the last token, (B, E)."""
        age = torch.arange(LENGTH, device=tokens.device).flip(0)
        left = self.decay.sigmoid() ** age[:, None]  # (L, E)
        state: Tensor = (left * self.enter(tokens)).sum(1) / LENGTH
        return state


class AttentionSum(nn.Module):
    """What attention has in place of a state: a learned query over all tokens."""

    nbytes = NUMBER * LENGTH  # the marks; keys and values are in the memory

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(TOKEN, STATE)
        self.score = nn.Linear(TOKEN, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """A weighted mean of the tokens, (B, E)."""
        mean: Tensor = (self.score(tokens).softmax(1) * self.enter(tokens)).sum(1)
        return mean


class Memory(nn.Module):
    """What is asked for classes."""

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """Scores of the classes, (B, Q, C)."""
        raise NotImplementedError

    def held(self, batch: Batch) -> tuple[float, float]:
        """Slots, as the paper counts them, and bytes beside the summary."""
        raise NotImplementedError


class FromSummary(Memory):
    """No memory but the summary: a network on it and the query."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(STATE + WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """From both at once."""
        wide = summary[:, None].expand(-1, batch.queries.shape[1], -1)
        found: Tensor = self.net(torch.cat([wide, batch.queries], -1))
        return found

    def held(self, batch: Batch) -> tuple[float, float]:
        """The numbers of the summary are its slots."""
        return STATE, 0


class FromTokens(Memory):
    """Softmax attention over the tokens that are kept: here, all."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.leave = nn.Linear(CLASSES, CLASSES)

    def kept(self, batch: Batch) -> Tensor:
        """Which tokens are kept, (B, L)."""
        return torch.ones_like(batch.items, dtype=torch.bool)

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """From the classes of the tokens that are like the query."""
        scores = self.q(batch.queries) @ self.k(batch.keys).mT / WIDTH**0.5
        weights = scores.masked_fill(~self.kept(batch)[:, None], -torch.inf).softmax(-1)
        found: Tensor = self.leave(weights @ batch.values)
        return found

    def held(self, batch: Batch) -> tuple[float, float]:
        """A key and a class for each token kept."""
        slots = float(self.kept(batch).sum(1).float().mean())
        return slots, NUMBER * (WIDTH + CLASSES) * slots


class FromSlots(FromTokens):
    """Softmax attention over the tokens that open a slot."""

    def kept(self, batch: Batch) -> Tensor:
        """By the rule, in training too."""
        return allocate(batch.keys[:, :, None], TAU).check().lead[..., 0]


class FromMatrix(Memory):
    """A matrix that adds up class times key, read by the query: linear attention."""

    def __init__(self, features: nn.Module, n_features: int) -> None:
        super().__init__()
        self.features, self.n_features = features, n_features
        self.leave = nn.Linear(CLASSES, CLASSES)

    def state(self, keys: Tensor, values: Tensor) -> Tensor:
        """The sum, (B, C, F)."""
        return values.mT @ keys

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """The state times the query."""
        state = self.state(self.features(batch.keys), batch.values)
        found: Tensor = self.leave(self.features(batch.queries) @ state.mT)
        return found

    def held(self, batch: Batch) -> tuple[float, float]:
        """The matrix; a row of it is called a slot."""
        return self.n_features, NUMBER * self.n_features * CLASSES


class FromDelta(FromMatrix):
    """A matrix that each token corrects by its error, at a learned rate: the delta rule."""

    def __init__(self, features: nn.Module, n_features: int) -> None:
        super().__init__(features, n_features)
        self.rate = nn.Parameter(torch.zeros(()))

    def state(self, keys: Tensor, values: Tensor) -> Tensor:
        """What the last token leaves, (B, C, F)."""
        keys = fn.normalize(keys, dim=-1)[:, :, None]
        rate = self.rate.sigmoid().expand(keys.shape[:3])
        fading = torch.zeros_like(rate)
        return delta_rule(keys, keys, values[:, :, None], fading, rate, chunk=18)[1][:, 0]


class Waves(nn.Module):
    """Cosines of learned projections; they start as random Fourier features."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, FEATURES)
        nn.init.normal_(self.project.weight, std=2.5)
        nn.init.uniform_(self.project.bias, 0, 2 * pi)

    def forward(self, keys: Tensor) -> Tensor:
        """(..., F)."""
        found: Tensor = self.project(keys).cos() * (2 / FEATURES) ** 0.5
        return found


class Pair(Model):
    """A summary that counts, and a memory that recalls."""

    def __init__(self, summary: DiagonalSum | AttentionSum, memory: Memory) -> None:
        super().__init__()
        self.summary, self.memory = summary, memory
        self.count = nn.Linear(STATE, 1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of the classes (B, Q, C), and the part that was marked (B,)."""
        summary = self.summary(batch.tokens)
        return self.memory(batch, summary), self.count(summary)[:, 0]

    def held(self, batch: Batch) -> tuple[float, float]:
        """Slots of the memory, and bytes of both."""
        slots, size = self.memory.held(batch)
        return slots, size + self.summary.nbytes


class MatrixAlone(Model):
    """One matrix for both: it adds up a map of the key times a map of the class and the mark."""

    rows, columns = WIDTH + 1, 16

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, self.rows), nn.Linear(WIDTH, self.rows)
        self.v = nn.Linear(CLASSES + 1, self.columns)
        self.at = nn.Parameter(torch.randn(self.rows) / self.rows)  # where the count is read
        self.leave, self.count = nn.Linear(self.columns, CLASSES), nn.Linear(self.columns, 1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """As `Pair`."""
        bound = self.v(batch.tokens[..., WIDTH:])
        state = self.k(batch.keys).mT @ bound / LENGTH**0.5  # (B, rows, columns)
        return self.leave(self.q(batch.queries) @ state), self.count(self.at @ state)[:, 0]

    def held(self, batch: Batch) -> tuple[float, float]:
        """The matrix."""
        return self.rows, NUMBER * self.rows * self.columns


def made() -> Mapping[str, Model]:
    """A fresh model of each kind."""
    linear = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
    return {
        "ssm": Pair(DiagonalSum(), FromSummary()),
        "attention": Pair(AttentionSum(), FromTokens()),
        "hybrid": Pair(DiagonalSum(), FromSlots()),
        "alone": MatrixAlone(),
        "matrix": Pair(DiagonalSum(), FromMatrix(next(linear), WIDTH)),
        "delta": Pair(DiagonalSum(), FromDelta(next(linear), WIDTH)),
        "waves": Pair(DiagonalSum(), FromMatrix(Waves(), FEATURES)),
        "once": Pair(DiagonalSum(), FromSummary()),
        "level": Pair(DiagonalSum(), FromSummary()),
    }
