"""The paper's end-to-end run (section 3.1.6): its five models in one table, and added baselines.

A stream names 128 of 512 keys, each with one of 32 classes, four times each: 512 tokens. The
embeddings of keys and classes are trained with the rest. The parameter counts are the paper's,
exactly; the paper does not describe the models further, so ours may differ from those it ran. It
leaves open the training: 16 streams a step with 32 queries each, Adam, and the steps in each row.

Every model has embeddings of keys and classes, a vector (taken as a decay of each channel, used by
the fixed state alone) and a readout: this is the paper's smallest count. Attention adds three
projections, the saliency gate a network of one hidden layer, the novelty gate two scalars.
"""

# B streams, L tokens, Q queries, E channels, C classes, M tokens kept

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from distinctkv.nn.allocation import allocate, unit
from distinctkv.nn.gates import NoveltyGate, SaliencyGate
from distinctkv.nn.soft import budget_penalty, causal_novelty, hard_keep, soft_read

from ..result import Measure, Result, Role, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Outcome, Scale, device, n_seeds, run_training, silent

TITLE = "Five models in one run"
QUESTION = (
    "A stream of 512 tokens binds 128 keys to 32 classes. Trained end to end, which models can say "
    "the class of a key, and how many parameters and bytes do they hold?"
)
HEADINGS = {"table": "Recall, and what is held: slots and bytes of a stream, parameters"}
ITEMS, REPEATS, CLASSES = 128, 4, 32
LENGTH = ITEMS * REPEATS
KEYS = 512  # of which a stream has 128
WIDTH = 128
TAU = 0.5
STREAMS, QUERIES = 16, 32  # of a training step
TEST_BATCHES = 10  # of 16 streams with 32 queries each
FLOAT32 = 4  # bytes
MEASURES = ("recall", "slots", "bytes", "parameters")


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "n_items": ITEMS,
        "repeats": REPEATS,
        "n_classes": CLASSES,
        "keys_there_are": KEYS,
        "width": WIDTH,
        "tau": TAU,
        "streams_per_step": STREAMS,
        "queries_per_stream": QUERIES,
        "streams_to_measure": STREAMS * TEST_BATCHES,
        "seeds_used": n_seeds(scale),
        "seeds_of_added_rows": n_seeds(scale, added=True),
        "device": device(),
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every model from every seed."""

    def measure_all(used: tuple[int, ...]) -> Outcome:
        rows: list[Row] = []
        for training in TRAININGS:
            added = training.role == "added"
            found = [measure(training, seed) for seed in used[: n_seeds(scale, added=added)]]
            rows.append(row(training, found))
            progress(len(rows), len(TRAININGS))
        text = paragraphs(
            "five_models", rows, whole_groups=whole_group_recall(), chance=1 / CLASSES
        )
        return Outcome(rows, text, HEADINGS)

    return run_training("five_models", seeds, scale, measure_all)


def measure(training: Training, seed: int) -> tuple[float, float, float, float]:
    """Recall, slots, bytes and parameters of a model trained from one seed."""
    place = device()
    torch.manual_seed(seed)
    model = training.make().to(place)
    if training.steps:
        train(model, seed, training.steps, training.rate, place)
    size = sum(part.numel() for part in model.parameters())
    return (*score(model, seed, TEST_BATCHES, place), size)


def row(training: Training, found: Sequence[tuple[float, ...]]) -> Row:
    """Means over seeds."""
    measures = {
        name: Measure.of(column)
        for name, column in zip(MEASURES, zip(*found, strict=True), strict=True)
    }
    steps = f"{training.steps} steps at {training.rate:g}" if training.steps else "not trained"
    setting = f"{training.note}; {steps}"
    return Row(training.name, training.label, measures, setting, training.role)


def whole_group_recall() -> float:
    """Expected recall of keeping all tokens of a quarter of the keys and guessing the rest.

    >>> round(whole_group_recall(), 4)
    0.2734
    """
    return 1 / REPEATS + (1 - 1 / REPEATS) / CLASSES


# Streams and training


@dataclass(frozen=True)
class Batch:
    """Streams of keys and classes, and the queries at their ends."""

    keys: Tensor  # (B, L)
    classes: Tensor  # (B, L)
    queries: Tensor  # (B, Q)
    answers: Tensor  # (B, Q)

    @cached_property
    def firsts(self) -> Tensor:
        """Where each key occurs first, in the order of the stream, (B, K)."""
        order = self.keys.argsort(dim=1, stable=True)  # (B, L): all places of a key together
        return order[:, ::REPEATS].sort(dim=1).values

    @cached_property
    def counts(self) -> Tensor:
        """How often each key came with each class, (B, keys there are, C)."""
        pairs = self.keys * CLASSES + self.classes
        empty = torch.zeros(len(pairs), KEYS * CLASSES, device=pairs.device)
        counts = empty.scatter_add(1, pairs, torch.ones_like(pairs, dtype=torch.float32))
        return counts.view(-1, KEYS, CLASSES)


def draw(rng: np.random.Generator, n_streams: int, device: str) -> Batch:
    """Streams in which 128 of the keys, each bound to a class, come four times in any order."""
    each = np.arange(LENGTH) % ITEMS
    keys = rng.permuted(np.tile(np.arange(KEYS), (n_streams, 1)), axis=1)[:, :ITEMS]
    classes = rng.integers(CLASSES, size=(n_streams, ITEMS))
    items = rng.permuted(np.tile(each, (n_streams, 1)), axis=1)
    queried = rng.integers(ITEMS, size=(n_streams, QUERIES))
    columns = ((keys, items), (classes, items), (keys, queried), (classes, queried))
    return Batch(
        *(torch.from_numpy(np.take_along_axis(of, at, 1)).to(device) for of, at in columns)
    )


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
    return (fmean(right), *model.state_size(batch))


# Models


class Model(nn.Module):
    """Predicts classes, and reports the size of its state."""

    def forward(self, batch: Batch) -> Tensor:
        """Scores of the classes, (B, Q, C)."""
        raise NotImplementedError

    def loss(self, batch: Batch) -> Tensor:
        """Cross-entropy of the answers."""
        return fn.cross_entropy(self(batch).flatten(0, 1), batch.answers.flatten())

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """Slots and bytes at the end of a stream; a row of a matrix state counts as a slot."""
        raise NotImplementedError


class MajorityGuess(Model):
    """A guess: the most frequent class of the stream."""

    def forward(self, batch: Batch) -> Tensor:
        """How often each class came, (B, Q, C)."""
        counts = fn.one_hot(batch.classes, CLASSES).sum(1)
        return counts[:, None].expand(-1, batch.queries.shape[1], -1)

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """A counter for each class."""
        return CLASSES, FLOAT32 * CLASSES


class Embeddings(Model):
    """The embeddings, the vector and the readout that all have."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Embedding(KEYS, WIDTH)
        self.classes = nn.Embedding(CLASSES, WIDTH)
        self.decay = nn.Parameter(torch.full((WIDTH,), 8.0))
        self.readout = nn.Linear(WIDTH, CLASSES)

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """One vector; the paper counts its channels as slots."""
        return WIDTH, FLOAT32 * WIDTH


class FixedState(Embeddings):
    """The paper's floor, a vector that sums its input: ``h = a h + key + class``."""

    def forward(self, batch: Batch) -> Tensor:
        """Read out of the state and the query, added."""
        age = torch.arange(LENGTH, device=batch.keys.device).flip(0)
        left = self.decay.sigmoid() ** age[:, None]  # (L, E)
        state = (left * (self.keys(batch.keys) + self.classes(batch.classes))).sum(1)
        found: Tensor = self.readout(state[:, None] / LENGTH**0.5 + self.keys(batch.queries))
        return found


class BoundState(Embeddings):
    """A vector of the same size that binds before it adds: ``h = h + key * class``."""

    def forward(self, batch: Batch) -> Tensor:
        """Unbound by the query."""
        state = (self.keys(batch.keys) * self.classes(batch.classes)).sum(1)
        found: Tensor = self.readout(state[:, None] / LENGTH**0.5 * self.keys(batch.queries))
        return found


class Attention(Embeddings):
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
        mixed = soft_read(q, k, v, log_gate[..., None], mask=kept, causal=False)
        found: Tensor = self.readout(mixed[:, :, 0])
        return found

    def forward(self, batch: Batch) -> Tensor:
        """From the kept tokens, all alike."""
        return self.read(batch, torch.zeros_like(batch.keys).float(), self.kept(batch))

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """A key and a value for each token kept."""
        slots = float(self.kept(batch).sum(1).float().mean())
        return slots, FLOAT32 * 2 * WIDTH * slots

    def directions(self, batch: Batch) -> Tensor:
        """First occurrences as the rule sees them: unprojected, of length one, (B, K, 1, E)."""
        keys = batch.keys.gather(1, batch.firsts)
        return unit(self.keys.weight.detach())[keys][:, :, None]


class Rule(Attention):
    """Attention over the tokens that open a slot."""

    def kept(self, batch: Batch) -> Tensor:
        """By the rule, in training too."""
        lead = allocate(self.directions(batch), TAU).check().lead[..., 0]
        # A repeat is identical to the first occurrence, which is in a slot or opened one.
        return torch.zeros_like(batch.keys, dtype=torch.bool).scatter(1, batch.firsts, lead)


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
        unused_novelty = self.keys.weight[:, 0]
        found: Tensor = self.gate(unused_novelty, self.keys.weight)[batch.keys]
        return found


class Novelty(Gated):
    """Two numbers on the novelty of a token decide."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = NoveltyGate(slope=5.0, threshold=0.5)

    def log_gate(self, batch: Batch) -> Tensor:
        """From how far a token is from those before it."""
        first = causal_novelty(self.directions(batch))[..., 0]
        novelty = torch.zeros_like(batch.keys, dtype=first.dtype).scatter(1, batch.firsts, first)
        found: Tensor = self.gate(novelty, novelty[..., None])
        return found


class LinearAttention(Attention):
    """A matrix, the sum of ``k v^T``, read by q: a fixed state with attention's parameters."""

    rows = WIDTH

    def features(self, rows: Tensor) -> Tensor:
        """What the matrix sees of queries and keys."""
        return rows

    def forward(self, batch: Batch) -> Tensor:
        """``q (sum of k v^T)``; few keys are there, so ``(q k^T) counts v`` is cheaper."""
        q, k = (self.features(project(self.keys.weight)) for project in (self.q, self.k))
        similar = fn.embedding(batch.queries, q @ k.mT)  # (B, Q, keys there are)
        mixed = similar @ batch.counts @ self.v(self.classes.weight)
        found: Tensor = self.readout(mixed / (REPEATS * WIDTH**0.5))
        return found

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """The matrix; a row of it is called a slot."""
        return self.rows, FLOAT32 * self.rows * WIDTH


class CosineAttention(LinearAttention):
    """The same with cosine and sine of each number of a key: a state as large as 128 slots."""

    rows = 2 * WIDTH

    def features(self, rows: Tensor) -> Tensor:
        """Waves."""
        return waves(rows)


def waves(rows: Tensor) -> Tensor:
    """Random Fourier features, if the rows are random projections: (..., E) to (..., 2 E)."""
    scale: float = WIDTH**-0.5
    return torch.cat([(2 * rows).cos(), (2 * rows).sin()], -1) * scale


@dataclass(frozen=True, slots=True)
class Training:
    """A row: a model, and how long it is trained."""

    name: str
    label: str
    make: Callable[[], Model]
    steps: int
    note: str
    rate: float = 1e-3
    role: Role = "paper"


TRAININGS = (
    Training("guess", "A guess", MajorityGuess, 0, "the commonest class", role="added"),
    Training("ssm", "Fixed-state SSM", FixedState, 200, "h = a h + key + class"),
    Training("bound", "Fixed state, bound", BoundState, 200, "h = h + key * class", role="added"),
    Training("attention", "Full attention", Attention, 40, "keeps every token", 2e-3),
    Training("saliency", "Learned saliency", Saliency, 40, "M=128, a network on the key", 2e-3),
    Training("rule", "Distinct items, rule (ours)", Rule, 40, f"tau {TAU}", 2e-3, "cache"),
    Training("gate", "Novelty gate (ours)", Novelty, 40, "M=128, from a=5, b=.5", 2e-3, "cache"),
    Training("linear", "Linear attention", LinearAttention, 200, "sum of k vᵀ", role="added"),
    Training(
        "cosine",
        "Linear attention on cosines",
        CosineAttention,
        150,
        "as many bytes as 128 slots",
        2e-3,
        "added",
    ),
)
