"""Drawn streams: associative recall, phases, recall made hard, and item processes."""

# K items, r repeats, L = r K tokens, D key size, C classes, Q queries

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats, unit

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Episode:
    """One stream, and what is asked at its end."""

    keys: Floats  # (L, D), unit rows
    values: Floats  # (L, C), one-hot
    items: Ints  # (L,), which item each token is an occurrence of
    queries: Floats  # (Q, D), unit rows
    answers: Ints  # (Q,), class labels


@dataclass(frozen=True, slots=True)
class RecallTask:
    """How a recall stream is drawn: ``n_items`` (K) items, each ``repeats`` (r) times, shuffled.

    >>> RecallTask(n_items=3, repeats=2)
    RecallTask(n_items=3, repeats=2, n_classes=16, width=32, noise=0.1)
    """

    n_items: int = 64
    repeats: int = 4
    n_classes: int = 16
    width: int = 32
    noise: float = 0.1

    def __post_init__(self) -> None:
        """Refuse numbers that draw no stream."""
        for name in ("n_items", "repeats", "n_classes", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.noise < np.inf:
            raise ValueError(f"noise must be finite and 0 or more, got {self.noise}")

    @property
    def n_tokens(self) -> int:
        """Tokens in a stream, L."""
        return self.n_items * self.repeats

    def draw(self, rng: np.random.Generator, n_queries: int | None = 1) -> Episode:
        """One episode; queries ask for items drawn with replacement, or for each once (None).

        >>> episode = RecallTask(n_items=3, repeats=2).draw(np.random.default_rng(0))
        >>> episode.keys.shape, episode.values.shape, episode.queries.shape
        ((6, 32), (6, 16), (1, 32))
        """
        each = np.arange(self.n_items)
        prototypes = unit(rng.standard_normal((self.n_items, self.width)))
        labels = rng.integers(self.n_classes, size=self.n_items)
        items = rng.permutation(np.repeat(each, self.repeats))
        asked = each if n_queries is None else rng.integers(self.n_items, size=n_queries)
        return Episode(
            keys=occurrences(rng, prototypes[items], self.noise),
            values=np.eye(self.n_classes)[labels[items]],
            items=items,
            queries=occurrences(rng, prototypes[asked], self.noise),
            answers=labels[asked],
        )


def occurrences(rng: np.random.Generator, prototypes: Floats, noise: float) -> Floats:
    """Noisy copies, ``unit(prototype + noise / sqrt(D) * N(0, I))``, one for each row.

    Two occurrences of an item have an expected cosine of ``1 / (1 + noise**2)``.

    >>> prototypes = np.eye(2)
    >>> bool((occurrences(np.random.default_rng(0), prototypes, noise=0.0) == prototypes).all())
    True
    """
    scale = noise / np.sqrt(prototypes.shape[1])
    return unit(prototypes + scale * rng.standard_normal(prototypes.shape))


@dataclass(frozen=True, slots=True)
class PhasedTask:
    """Recall tasks in a row; the items of a phase never come back.

    The paper's stream for its adaptive cache (section 3.2.1) alternates between 6 and 30 items.
    It leaves open how often and how long: 8 phases, the easy one first, and 6 occurrences of every
    item are what its averages add up to.

    >>> task = PhasedTask((RecallTask(n_items=6, repeats=6), RecallTask(n_items=30, repeats=6)) * 4)
    >>> task.lengths
    (36, 180, 36, 180, 36, 180, 36, 180)
    """

    phases: tuple[RecallTask, ...]

    def __post_init__(self) -> None:
        """Refuse phases that no one memory can hold."""
        if not self.phases:
            raise ValueError("a stream needs at least 1 phase, got none")
        sizes = {(phase.width, phase.n_classes) for phase in self.phases}
        if len(sizes) > 1:
            raise ValueError(f"phases must share width and n_classes, got {sorted(sizes)}")

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens in each phase."""
        return tuple(phase.n_tokens for phase in self.phases)

    def draw(self, rng: np.random.Generator) -> tuple[Episode, ...]:
        """One stream, phase by phase; the queries of a phase ask for each of its items once."""
        return tuple(phase.draw(rng, n_queries=None) for phase in self.phases)


def alike(rng: np.random.Generator, task: RecallTask, common: float) -> Episode:
    """Items that share a direction: any two have an expected cosine of ``common``.

    >>> episode = alike(np.random.default_rng(0), RecallTask(width=1000, noise=0.0), common=0.6)
    >>> float((episode.queries[0] @ episode.queries[1]).round(1))
    0.6
    """
    if not 0 <= common < 1:
        raise ValueError(f"common must lie in [0, 1), got {common}; at 1 all items are the same")
    shared, own = _directions(rng, 1, task.width), _directions(rng, task.n_items, task.width)
    prototypes = unit(np.sqrt(common) * shared + np.sqrt(1 - common) * own)
    items = _order(rng, task)
    return _episode(rng, task, items, prototypes[items], prototypes)


def drifting(rng: np.random.Generator, task: RecallTask, degrees: float) -> Episode:
    """Items that turn by ``degrees`` from the first token to the last, each in its own plane.

    All turn at the same, even pace, and queries ask for the items as they are at the end.
    """
    if not 0 <= degrees < np.inf:
        raise ValueError(f"degrees must be finite and 0 or more, got {degrees}")
    start = _directions(rng, task.n_items, task.width)
    other = _directions(rng, task.n_items, task.width)
    other = unit(other - (other * start).sum(axis=1, keepdims=True) * start)
    items = _order(rng, task)
    angles = np.linspace(0, np.radians(degrees), len(items))[:, None]
    now = np.cos(angles) * start[items] + np.sin(angles) * other[items]
    end = np.cos(angles[-1]) * start + np.sin(angles[-1]) * other
    return _episode(rng, task, items, now, end)


def rebound(rng: np.random.Generator, task: RecallTask, renewed: int) -> Episode:
    """Keys that are bound again: the last ``renewed`` occurrences of an item have another class.

    The newest class is the right answer.
    """
    if not 0 < renewed < task.repeats:
        raise ValueError(f"renewed must be 1 to {task.repeats - 1} of the repeats, got {renewed}")
    if task.n_classes < 2:
        raise ValueError(f"a class can only change if there are 2 or more, got {task.n_classes}")
    episode = task.draw(rng, n_queries=None)
    shift = rng.integers(1, task.n_classes, size=task.n_items)
    late = ordinals(episode.items) >= task.repeats - renewed
    labels = episode.values.argmax(axis=1) + np.where(late, shift[episode.items], 0)
    return replace(
        episode,
        values=np.eye(task.n_classes)[labels % task.n_classes],
        answers=(episode.answers + shift) % task.n_classes,
    )


def mislabelled(rng: np.random.Generator, task: RecallTask, part: float) -> Episode:
    """Classes that are not to be trusted: this part of the tokens has another than its item."""
    if not 0 <= part <= 1:
        raise ValueError(f"part must lie in [0, 1], got {part}")
    if task.n_classes < 2:
        raise ValueError(f"a class can only be wrong if there are 2 or more, got {task.n_classes}")
    episode = task.draw(rng, n_queries=None)
    wrong = rng.random(len(episode.items)) < part
    shift = np.where(wrong, rng.integers(1, task.n_classes, size=len(wrong)), 0)
    labels = (episode.values.argmax(axis=1) + shift) % task.n_classes
    return replace(episode, values=np.eye(task.n_classes)[labels])


def ordinals(items: Ints) -> Ints:
    """How often each token's item has come before it.

    >>> ordinals(np.array([7, 3, 7, 7, 3]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(items, kind="stable")
    starts = np.searchsorted(items[order], items[order])
    found = np.empty_like(items)
    found[order] = np.arange(len(items)) - starts
    return found


def _directions(rng: np.random.Generator, n: int, width: int) -> Floats:
    return unit(rng.standard_normal((n, width)))


def _order(rng: np.random.Generator, task: RecallTask) -> Ints:
    return rng.permutation(np.repeat(np.arange(task.n_items), task.repeats))


def _episode(
    rng: np.random.Generator, task: RecallTask, items: Ints, now: Floats, end: Floats
) -> Episode:
    """Tokens around ``now`` (L, D), each item's queries around ``end`` (K, D), classes drawn."""
    labels = rng.integers(task.n_classes, size=task.n_items)
    return Episode(
        keys=occurrences(rng, now, task.noise),
        values=np.eye(task.n_classes)[labels[items]],
        items=items,
        queries=occurrences(rng, end, task.noise),
        answers=labels,
    )


def restaurant(rng: np.random.Generator, n_tokens: int, alpha: float) -> Ints:
    """The tables of a Chinese restaurant process, (L,), numbered as they open.

    Token t opens a table with probability ``alpha / (alpha + t)``; else it joins the table of one
    of the t tokens before it, each as likely as another (Blackwell and MacQueen 1973).

    >>> restaurant(np.random.default_rng(1), n_tokens=8, alpha=1.0)
    array([0, 0, 1, 0, 0, 0, 0, 0])
    """
    if not 0 < alpha < np.inf:
        raise ValueError(f"alpha must be finite and above 0, got {alpha}")
    time = np.arange(n_tokens)
    opens = rng.random(n_tokens) < alpha / (alpha + time)
    followed = np.where(opens, time, (rng.random(n_tokens) * time).astype(np.int64))
    # Each token points at an earlier one; looking twice as far per pass soon finds the first.
    while (followed[followed] != followed).any():
        followed = followed[followed]
    return np.cumsum(opens)[followed] - 1


def zipf(rng: np.random.Generator, n_tokens: int, n_types: int) -> Ints:
    """Types drawn with probability in proportion to 1 / rank, (L,).

    >>> types = zipf(np.random.default_rng(0), n_tokens=10_000, n_types=64)
    >>> np.bincount(types)[[0, 1, 9]]
    array([2137, 1027,  200])
    """
    if n_types < 1:
        raise ValueError(f"n_types must be at least 1, got {n_types}")
    weight = 1 / np.arange(1, n_types + 1)
    return rng.choice(n_types, size=n_tokens, p=weight / weight.sum())
