"""The cache beside a state-space backbone (section 3.1.5): recall and a count in one model.

A stream has 24 items, three times each. A token is a key, the class of its item, and a mark; marks
have a frequency of their own in each stream. At the end the class of every item is asked for, and
the fraction of tokens that were marked. Most models have a summary of the stream, from which they
tell the count, and beside it a memory, from which they recall. The paper leaves open the classes
(8), the noise (.1), tau (.4) and the training. All models of a seed see the same streams.
"""

# B streams, L tokens, K items, Q queries, D key size, C classes, T = D + C + 1 numbers of a token,
# E summary size, F features of a key

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import count
from math import pi

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from distinctkv.nn.allocation import allocate
from distinctkv.nn.delta_net import delta_rule
from distinctkv.rule import unit

from ..data import RecallTask, occurrences
from ..result import Measure, Result, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Outcome, Scale, device, n_seeds, run_training, silent
from .sweep import Method

TITLE = "The cache beside a state-space model"
QUESTION = (
    "A stream of 72 tokens names 24 items, and marks some tokens. Which models can tell both the "
    "class of an item and how many tokens were marked, and how much do they hold?"
)
HEADINGS = {
    "models": "Recall, R² of the count, and what is held",
    "controls": "What the state-space model has learned of recall",
    "lowest": "Memory of the hybrid over the least of the paper's other two models",
}
TASK = RecallTask(n_items=24, repeats=3, n_classes=8)
WIDTH, CLASSES, LENGTH = TASK.width, TASK.n_classes, TASK.n_tokens
TOKEN = WIDTH + CLASSES + 1  # T
STATE = 48  # E, size of the backbone's state
TAU = 0.4
FEATURES = 120  # F, at which a matrix has the bytes of 24 slots
STREAMS = 32  # of a training step
STEPS = 400
RATE = 3e-3
WEIGHT = 10.0  # of the squared error of the count
TEST_STREAMS = 500
FLOAT32 = 4  # bytes
MEASURES = ("recall", "R²", "slots", "bytes")


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        **asdict(TASK),
        "state": STATE,
        "tau": TAU,
        "steps": STEPS,
        "streams_per_step": STREAMS,
        "learning_rate": RATE,
        "weight_of_the_count": WEIGHT,
        "streams_to_measure": TEST_STREAMS,
        "seeds_used": n_seeds(scale),
        "seeds_of_added_rows": n_seeds(scale, added=True),
        "device": device(),
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every model from every seed."""
    steps, few = count(1), n_seeds(scale, added=True)

    def measure_all(used: tuple[int, ...]) -> Outcome:
        found = [
            measure(
                seed,
                lambda: progress(next(steps), STEPS * len(used)),  # one tick a step
                [method for method in TRAINED if method.role != "added" or place < few],
            )
            for place, seed in enumerate(used)
        ]
        rows = [row(method, "models", found) for method in METHODS]
        rows += [row(method, "controls", found) for method in CONTROLS]
        rows += [lowest_row(found)]
        text = paragraphs(
            "hybrid",
            rows,
            least_r2=min(one.measures["R²"].mean for one in rows[: len(METHODS)]),
            steps=STEPS,
            chance=1 / CLASSES,
            features=FEATURES,
            state=STATE,
        )
        return Outcome(rows, text, HEADINGS)

    return run_training("hybrid", seeds, scale, measure_all)


def measure(
    seed: int, tick: Callable[[], None], methods: Sequence[Method]
) -> Mapping[str, tuple[float, ...]]:
    """The scores of each model trained from one seed."""
    place = device()
    torch.manual_seed(seed)
    models = {method.name: method.make().to(place) for method in methods}
    train(models, seed, STEPS, place, tick)
    rng = np.random.default_rng((seed, 1))
    batch = draw(rng, TEST_STREAMS, place)
    balanced = batch.balanced(rng)
    scores = {
        name: score(model, balanced if name == "level" else batch) for name, model in models.items()
    }
    return {**scores, "every": scores["ssm"]}


def row(method: Method, table: str, found: Sequence[Mapping[str, tuple[float, ...]]]) -> Row:
    """Means over the seeds that the method is trained from; the controls have recall alone."""
    names = MEASURES if table == "models" else MEASURES[:1]
    scores = [one[method.name] for one in found if method.name in one]
    numbers = {name: [score[i] for score in scores] for i, name in enumerate(names)}
    return method.row(numbers, table)


def lowest_row(found: Sequence[Mapping[str, tuple[float, ...]]]) -> Row:
    """Slots as the paper counts them, and bytes with the backbone."""
    over = {
        name: [one["hybrid"][i] / min(one["ssm"][i], one["attention"][i]) for one in found]
        for i, name in ((2, "slots"), (3, "bytes"))
    }
    measures = {name: Measure.of(numbers) for name, numbers in over.items()}
    return Row("memory", "SSM + distinct items (ours)", measures, "", "cache", "lowest")


# Streams


@dataclass(frozen=True)
class Batch:
    """Streams, and queries at their ends: one for each item, in order."""

    keys: Tensor  # (B, L, D)
    items: Tensor  # (B, L)
    labels: Tensor  # (B, K)
    marks: Tensor  # (B, L)
    queries: Tensor  # (B, Q, D)

    @cached_property
    def values(self) -> Tensor:
        """Classes of the tokens, (B, L, C), one-hot."""
        return fn.one_hot(self.labels.gather(1, self.items), CLASSES).float()

    @property
    def answers(self) -> Tensor:
        """(B, Q)."""
        return self.labels[:, : self.queries.shape[1]]

    @cached_property
    def tokens(self) -> Tensor:
        """(B, L, T)."""
        return torch.cat([self.keys, self.values, self.marks[..., None]], -1)

    @property
    def marked(self) -> Tensor:
        """The fraction of tokens that is marked, (B,)."""
        return self.marks.mean(1)

    def with_one_query(self) -> Batch:
        """The same streams with one query each; item order is random, so the first will do."""
        return replace(self, queries=self.queries[:, :1])

    def balanced(self, rng: np.random.Generator) -> Batch:
        """The same streams with every class given to equally many items."""
        each = np.tile(np.arange(TASK.n_items) % CLASSES, (len(self.keys), 1))
        labels = torch.from_numpy(rng.permuted(each, axis=1))
        return replace(self, labels=labels.to(self.labels.device))


def draw(rng: np.random.Generator, n_streams: int, device: str) -> Batch:
    """Streams of the task, each with its own frequency of marks."""
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


# Training


def train(
    models: Mapping[str, Model], seed: int, steps: int, device: str, tick: Callable[[], None]
) -> None:
    """Adam on fresh streams, the same for all models; each step ends in a ``tick``.

    The control ``once`` is asked for one item of a stream; ``level`` sees balanced classes.
    """
    rng = np.random.default_rng(seed)
    optimisers = {
        name: torch.optim.Adam(model.parameters(), RATE)
        for name, model in models.items()
        if [*model.parameters()]
    }
    for _ in range(steps):
        batch = draw(rng, STREAMS, device)
        changed = {"once": batch.with_one_query(), "level": batch.balanced(rng)}
        for name, optimiser in optimisers.items():
            optimiser.zero_grad()
            torch.autograd.backward(loss(models[name], changed.get(name, batch)))
            optimiser.step()
        tick()


def loss(model: Model, batch: Batch) -> Tensor:
    """Cross-entropy of the classes plus `WEIGHT` times the squared error of the count."""
    classes, count = model(batch)
    cross_entropy = fn.cross_entropy(classes.flatten(0, 1), batch.answers.flatten())
    squared_error: Tensor = (count - batch.marked).square().mean()
    return cross_entropy + WEIGHT * squared_error


@torch.no_grad()
def score(model: Model, batch: Batch) -> tuple[float, float, float, float]:
    """Recall, R2 of the count, slots and bytes."""
    classes, count = model(batch)
    recall = (classes.argmax(-1) == batch.answers).float().mean()
    unexplained = (count - batch.marked).square().mean() / batch.marked.var(correction=0)
    return (float(recall), 1 - float(unexplained), *model.state_size(batch))


# Models


class Model(nn.Module):
    """Predicts classes and the marked fraction, and reports the size of its state."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of the classes (B, Q, C), and the part that was marked (B,)."""
        raise NotImplementedError

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """Slots and bytes at the end of a stream; a row of a matrix state counts as a slot."""
        raise NotImplementedError


class DiagonalSSM(nn.Module):
    """The state-space backbone: E numbers, each a fading sum, ``h = a h + B x``."""

    nbytes = FLOAT32 * STATE

    def __init__(self) -> None:
        super().__init__()
        self.project_in = nn.Linear(TOKEN, STATE)
        self.decay = nn.Parameter(torch.linspace(2.0, 8.0, STATE))

    def forward(self, tokens: Tensor) -> Tensor:
        """The state after the last token, (B, E)."""
        age = torch.arange(LENGTH, device=tokens.device).flip(0)
        left = self.decay.sigmoid() ** age[:, None]  # (L, E)
        state: Tensor = (left * self.project_in(tokens)).sum(1) / LENGTH
        return state


class AttentionPooling(nn.Module):
    """What attention has in place of a state: a learned query over all tokens."""

    nbytes = FLOAT32 * LENGTH  # the marks; keys and values are in the memory

    def __init__(self) -> None:
        super().__init__()
        self.project_in = nn.Linear(TOKEN, STATE)
        self.score = nn.Linear(TOKEN, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """A weighted mean of the tokens, (B, E)."""
        mean: Tensor = (self.score(tokens).softmax(1) * self.project_in(tokens)).sum(1)
        return mean


class Memory(nn.Module):
    """Answers the queries."""

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """Scores of the classes, (B, Q, C)."""
        raise NotImplementedError

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """Slots, as the paper counts them, and bytes beside the summary."""
        raise NotImplementedError


class SummaryMemory(Memory):
    """No memory but the summary: a network on it and the query."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(STATE + WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """From both at once."""
        wide = summary[:, None].expand(-1, batch.queries.shape[1], -1)
        found: Tensor = self.net(torch.cat([wide, batch.queries], -1))
        return found

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """The numbers of the summary are its slots."""
        return STATE, 0


class AttentionMemory(Memory):
    """Softmax attention over the tokens that are kept: here, all."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.project_out = nn.Linear(CLASSES, CLASSES)

    def kept(self, batch: Batch) -> Tensor:
        """Which tokens are kept, (B, L)."""
        return torch.ones_like(batch.items, dtype=torch.bool)

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """From the classes of the tokens that are like the query."""
        scores = self.q(batch.queries) @ self.k(batch.keys).mT / WIDTH**0.5
        weights = scores.masked_fill(~self.kept(batch)[:, None], -torch.inf).softmax(-1)
        found: Tensor = self.project_out(weights @ batch.values)
        return found

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """A key and a class for each token kept."""
        slots = float(self.kept(batch).sum(1).float().mean())
        return slots, FLOAT32 * (WIDTH + CLASSES) * slots


class SlotMemory(AttentionMemory):
    """Softmax attention over the tokens that open a slot."""

    def kept(self, batch: Batch) -> Tensor:
        """By the rule, in training too."""
        return allocate(batch.keys[:, :, None], TAU).check().lead[..., 0]


class MatrixMemory(Memory):
    """A matrix that adds up class times key, read by the query: linear attention."""

    def __init__(self, features: nn.Module, n_features: int) -> None:
        super().__init__()
        self.features, self.n_features = features, n_features
        self.project_out = nn.Linear(CLASSES, CLASSES)

    def state(self, keys: Tensor, values: Tensor) -> Tensor:
        """The sum, (B, C, F)."""
        return values.mT @ keys

    def forward(self, batch: Batch, summary: Tensor) -> Tensor:
        """The state times the query."""
        state = self.state(self.features(batch.keys), batch.values)
        found: Tensor = self.project_out(self.features(batch.queries) @ state.mT)
        return found

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """The matrix; a row of it is called a slot."""
        return self.n_features, FLOAT32 * self.n_features * CLASSES


class DeltaMemory(MatrixMemory):
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


def linear_features() -> nn.Linear:
    """A learned projection of the key."""
    return nn.Linear(WIDTH, WIDTH, bias=False)


class CosineFeatures(nn.Module):
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


class SummaryWithMemory(Model):
    """A summary that counts, and a memory that recalls."""

    def __init__(self, summary: DiagonalSSM | AttentionPooling, memory: Memory) -> None:
        super().__init__()
        self.summary, self.memory = summary, memory
        self.count = nn.Linear(STATE, 1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Scores of the classes (B, Q, C), and the part that was marked (B,)."""
        summary = self.summary(batch.tokens)
        return self.memory(batch, summary), self.count(summary)[:, 0]

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """Slots of the memory, and bytes of both."""
        slots, size = self.memory.state_size(batch)
        return slots, size + self.summary.nbytes


class MatrixModel(Model):
    """One matrix for both: it adds up a map of the key times a map of the class and the mark."""

    rows, columns = WIDTH + 1, 16

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(WIDTH, self.rows), nn.Linear(WIDTH, self.rows)
        self.v = nn.Linear(CLASSES + 1, self.columns)
        self.at = nn.Parameter(torch.randn(self.rows) / self.rows)  # where the count is read
        self.project_out, self.count = nn.Linear(self.columns, CLASSES), nn.Linear(self.columns, 1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """As `SummaryWithMemory`."""
        bound = self.v(batch.tokens[..., WIDTH:])
        state = self.k(batch.keys).mT @ bound / LENGTH**0.5  # (B, rows, columns)
        return self.project_out(self.q(batch.queries) @ state), self.count(self.at @ state)[:, 0]

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """The matrix."""
        return self.rows, FLOAT32 * self.rows * self.columns


class MajorityGuess(Model):
    """Names the most frequent class of the stream, and half of the tokens as marked."""

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """How many items have each class, for every query."""
        counts = fn.one_hot(batch.labels, CLASSES).sum(1)[:, None]
        return counts.expand(-1, batch.queries.shape[1], -1), torch.full_like(batch.marked, 0.5)

    def state_size(self, batch: Batch) -> tuple[float, float]:
        """A counter for each class."""
        return CLASSES, FLOAT32 * CLASSES


def ssm_alone() -> Model:
    """The backbone and a network that reads it."""
    return SummaryWithMemory(DiagonalSSM(), SummaryMemory())


METHODS = (
    Method("ssm", "SSM only", f"{STATE} fading sums", ssm_alone, role="paper"),
    Method(
        "attention",
        "Attention only",
        "keeps every token",
        lambda: SummaryWithMemory(AttentionPooling(), AttentionMemory()),
        role="paper",
    ),
    Method(
        "hybrid",
        "SSM + distinct items (ours)",
        f"tau {TAU}; {STATE} sums beside",
        lambda: SummaryWithMemory(DiagonalSSM(), SlotMemory()),
        role="cache",
    ),
    Method("alone", "Matrix state alone", "33 × 16, for both tasks", MatrixModel),
    Method(
        "matrix",
        "SSM + matrix state",
        f"32 × 8; {STATE} sums beside",
        lambda: SummaryWithMemory(DiagonalSSM(), MatrixMemory(linear_features(), WIDTH)),
    ),
    Method(
        "delta",
        "SSM + delta rule",
        f"32 × 8, learned rate; {STATE} sums beside",
        lambda: SummaryWithMemory(DiagonalSSM(), DeltaMemory(linear_features(), WIDTH)),
    ),
    Method(
        "waves",
        "SSM + matrix on cosines",
        f"{FEATURES} × 8; {STATE} sums beside",
        lambda: SummaryWithMemory(DiagonalSSM(), MatrixMemory(CosineFeatures(), FEATURES)),
    ),
)
CONTROLS = (
    Method("guess", "A guess", "the commonest class of the stream", MajorityGuess),
    Method("every", "SSM only, as above", "trained on every item of a stream", ssm_alone),
    Method("once", "SSM only, asked once", "trained on one item of a stream", ssm_alone),
    Method("level", "SSM only, level classes", "every class has three items", ssm_alone),
)
# The control "every" is the model of row "ssm".
TRAINED = tuple(method for method in (*METHODS, *CONTROLS) if method.name != "every")
