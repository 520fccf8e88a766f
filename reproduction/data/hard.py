"""Recall streams that strain the rule: keys alike, items that drift, classes renewed or wrong.

Each is the stream of a `RecallTask` with one thing changed, and asks for every item once.
"""

# K items, L tokens, D key size

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distinctkv.rule import Floats, unit

from .synthetic import Episode, Ints, RecallTask, occurrences


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
