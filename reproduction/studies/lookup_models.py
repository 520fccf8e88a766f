"""The paper's five models, with its parameter counts to the last number, and fair rivals.

Tables of keys and of classes, one vector and a readout make the smallest count; three projections
are the step to attention, a network of one hidden layer that to the saliency gate, and two scalars
that to the novelty gate. The vector is taken for a decay of each channel. Only the fixed state has
a use for it.
"""

# B streams, L tokens, Q queries, E channels, C classes, M tokens kept

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from distinctkv.nn.allocation import allocate, unit
from distinctkv.nn.gates import NoveltyGate
from distinctkv.nn.soft import budget_penalty, causal_novelty, hard_keep, soft_read
from distinctkv.nn.zoo import SaliencyGate

from .five_models import CLASSES, ITEMS, KEYS, LENGTH, REPEATS, TAU, WIDTH
from .lookup import Batch, Model

NUMBER = 4  # bytes


class Commonest(Model):
    """Not a memory but a guess: the class that most tokens had."""

    def forward(self, batch: Batch) -> Tensor:
        """How often each class came, (B, Q, C)."""
        counts = fn.one_hot(batch.classes, CLASSES).sum(1)
        return counts[:, None].expand(-1, batch.queries.shape[1], -1)

    def held(self, batch: Batch) -> tuple[float, float]:
        """Counters."""
        return CLASSES, NUMBER * CLASSES


class Tables(Model):
    """The tables, the vector and the readout that all have."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Embedding(KEYS, WIDTH)
        self.classes = nn.Embedding(CLASSES, WIDTH)
        self.decay = nn.Parameter(torch.full((WIDTH,), 8.0))
        self.leave = nn.Linear(WIDTH, CLASSES)

    def held(self, batch: Batch) -> tuple[float, float]:
        """One vector; the paper counts its channels as slots."""
        return WIDTH, NUMBER * WIDTH


class FixedState(Tables):
    """The paper's floor, a vector that adds up what it sees: ``h = a h + key + class``."""

    def forward(self, batch: Batch) -> Tensor:
        """Read out of the state and the query, added."""
        age = torch.arange(LENGTH, device=batch.keys.device).flip(0)
        left = self.decay.sigmoid() ** age[:, None]  # (L, E)
        state = (left * (self.keys(batch.keys) + self.classes(batch.classes))).sum(1)
        found: Tensor = self.leave(state[:, None] / LENGTH**0.5 + self.keys(batch.queries))
        return found


class BoundState(Tables):
    """A vector of the same size that binds before it adds: ``h = h + key * class``."""

    def forward(self, batch: Batch) -> Tensor:
        """Unbound by the query."""
        state = (self.keys(batch.keys) * self.classes(batch.classes)).sum(1)
        found: Tensor = self.leave(state[:, None] / LENGTH**0.5 * self.keys(batch.queries))
        return found


class Attention(Tables):
    """Softmax attention over the tokens that are kept: here, all."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def parts(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; a table is projected once, before it is looked up."""
        return (
            fn.embedding(batch.queries, self.q(self.keys.weight)),
            fn.embedding(batch.keys, self.k(self.keys.weight)),
            fn.embedding(batch.classes, self.v(self.classes.weight)),
        )

    def kept(self, batch: Batch) -> Tensor:
        """Which tokens are kept, (B, L)."""
        return torch.ones_like(batch.keys, dtype=torch.bool)

    def read(self, batch: Batch, log_gate: Tensor, kept: Tensor | None) -> Tensor:
        """Scores of the classes, (B, Q, C)."""
        q, k, v = (part[:, :, None] for part in self.parts(batch))
        seen = soft_read(q, k, v, log_gate[..., None], mask=kept, causal=False)
        found: Tensor = self.leave(seen[:, :, 0])
        return found

    def forward(self, batch: Batch) -> Tensor:
        """From the kept tokens, all alike."""
        return self.read(batch, torch.zeros_like(batch.keys).float(), self.kept(batch))

    def held(self, batch: Batch) -> tuple[float, float]:
        """A key and a value for each token kept."""
        slots = float(self.kept(batch).sum(1).float().mean())
        return slots, NUMBER * 2 * WIDTH * slots

    def directions(self, batch: Batch) -> Tensor:
        """The keys as the rule sees them: unprojected, of length one, (B, L, 1, E)."""
        return unit(self.keys.weight.detach())[batch.keys][:, :, None]


class Rule(Attention):
    """Attention over the tokens that open a slot."""

    def kept(self, batch: Batch) -> Tensor:
        """By the rule, in training too."""
        return allocate(self.directions(batch), TAU).check().lead[..., 0]


class Gated(Attention):
    """Attention with a learned gate: soft and on a budget in training, the top M after it."""

    def log_gate(self, batch: Batch) -> Tensor:
        """Of each token, (B, L)."""
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        """The paper's: cross-entropy of a soft read, and a penalty on a sum that is not M."""
        log_gate = self.log_gate(batch)
        answers = self.read(batch, log_gate, None).flatten(0, 1)
        penalty = budget_penalty(log_gate.exp()[..., None], ITEMS)
        return penalty + fn.cross_entropy(answers, batch.answers.flatten())

    def kept(self, batch: Batch) -> Tensor:
        """The top M; the earlier of equals."""
        return hard_keep(self.log_gate(batch)[..., None], ITEMS)[..., 0]


class Saliency(Gated):
    """A network on the key decides."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = SaliencyGate(WIDTH)

    def log_gate(self, batch: Batch) -> Tensor:
        """The same for all tokens of a key."""
        untold = self.keys.weight[:, 0]
        found: Tensor = self.gate(untold, self.keys.weight)[batch.keys]
        return found


class Novelty(Gated):
    """Two numbers on the novelty of a token decide."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = NoveltyGate(slope=5.0, threshold=0.5)

    def log_gate(self, batch: Batch) -> Tensor:
        """From how far a token is from those before it."""
        novelty = causal_novelty(self.directions(batch))[..., 0]
        found: Tensor = self.gate(novelty, novelty[..., None])
        return found


class LinearAttention(Attention):
    """A matrix, the sum of ``k v^T``, read by q: a fixed state with attention's parameters."""

    rows = WIDTH

    def forward(self, batch: Batch) -> Tensor:
        """``q (sum of k v^T)``; with few queries ``(q k^T) v`` is the same and cheaper."""
        q, k, v = self.parts(batch)
        found: Tensor = self.leave((q @ k.mT) @ v / (REPEATS * WIDTH**0.5))
        return found

    def held(self, batch: Batch) -> tuple[float, float]:
        """The matrix; a row of it is called a slot."""
        return self.rows, NUMBER * self.rows * WIDTH


class CosineAttention(LinearAttention):
    """The same with cosine and sine of each number of a key: a state as large as 128 slots."""

    rows = 2 * WIDTH

    def parts(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """With the waves of queries and keys in their places."""
        return (
            fn.embedding(batch.queries, waves(self.q(self.keys.weight))),
            fn.embedding(batch.keys, waves(self.k(self.keys.weight))),
            fn.embedding(batch.classes, self.v(self.classes.weight)),
        )


def waves(rows: Tensor) -> Tensor:
    """Random Fourier features, if the rows are random projections: (..., E) to (..., 2 E)."""
    scale: float = WIDTH**-0.5
    return torch.cat([(2 * rows).cos(), (2 * rows).sin()], -1) * scale
