"""The associative-recall stream: few distinct items, each repeated, then a query.

The paper's probe (section 2, "Setup"). It leaves the noise of a key open; the numbers of its first
table come out at .1 and 32 dimensions, the defaults here.
"""

# K items, r repeats, L = r K tokens, D key size, C classes, Q queries

from __future__ import annotations

from dataclasses import dataclass

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
