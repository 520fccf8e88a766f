"""SubGen: groups of a given radius, each with a count and a few sampled tokens."""

# G groups, t samples, Q queries, D key size, C value size

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distinctkv.rule import Floats

from .base import (
    Card,
    Ids,
    Peer,
    Singles,
    at_least_one,
    novelty,
    positive,
    seeded,
    similarity,
    softmax,
)

# Cosines of rows whose length is one only to float32 may rank keys this close the other way round.
_ROUNDED = 1e-5


class SubGen(Peer):
    """A key further than ``delta`` from each group's first key opens a group (Zandieh et al. 2024).

    A group counts its tokens and keeps ``samples`` of them, drawn evenly (a reservoir). A read
    weighs each sample by the tokens it stands for, which estimates attention over all of them. The
    number of groups is set by the stream, as ours is: a group is the rule with ``tau`` =
    ``delta^2 / 2``, first keys, no budget.

    We deviate: values are sampled with their keys; the source samples them apart, over the whole
    stream and by their length. The id of a token is its group.

    Of ``delta`` from .1 to 1 and 1, 2 and 4 samples on the recall task, .2 to .8 open a group for
    each item and find every one with a single sample.

    >>> subgen = SubGen(delta=0.5)
    >>> subgen.write([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0], [2.0], [1.0]])
    array([0, 1, 0])
    >>> subgen.read([[1.0, 0.0]]).round(3), len(subgen)
    (array([[1.]]), 2)
    """

    card = Card(
        mechanism="groups of radius delta, a count and a sample of tokens for each",
        keeps="the first key, the count and sampled tokens of each of G groups",
        growth="with the distinct keys, G",
        size="4 G (D + samples (D + C)) + 8 G",
    )

    def __init__(
        self, delta: float = 0.6, samples: int = 1, seed: int = 0, theta: float = 0.05
    ) -> None:
        super().__init__()
        self.delta = positive("delta", delta)
        self.samples = at_least_one("samples", samples)
        self.theta = positive("theta", theta)
        self._rng = np.random.default_rng(seeded(seed))

    def __len__(self) -> int:
        """Sampled tokens."""
        return int(np.minimum(self._counts, self.samples).sum()) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the groups' first keys and counts, and of the sampled tokens."""
        if self._widths is None:
            return 0
        held = self._first, self._counts, self._keys, self._values
        return sum(array.nbytes for array in held)

    def _start(self, width: int, n_values: int) -> None:
        self._first = np.empty((0, width), np.float32)
        self._counts = np.empty(0, np.int64)
        self._keys = np.empty((0, self.samples, width), np.float32)
        self._values = np.empty((0, self.samples, n_values), np.float32)

    def _resize(self, n: int) -> None:
        """Keep the first ``n`` groups, or add empty ones."""
        self._first, self._counts = resized(self._first, n), resized(self._counts, n)
        self._keys, self._values = resized(self._keys, n), resized(self._values, n)

    def _store(self, keys: Singles, values: Singles) -> Ids:
        n = len(self._counts)
        self._resize(n + len(keys))
        ids = np.empty(len(keys), np.int64)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            group = self._group(key, n)
            if group == n:
                self._first[n], n = key, n + 1
            self._sample(group, key, value)
            ids[i] = group
        self._resize(n)
        return ids

    def _group(self, key: Singles, n: int) -> int:
        """The nearest of the first ``n`` groups, or ``n`` where all are too far."""
        if n == 0:
            return 0
        similar = similarity(key[None], self._first[:n])[0]
        near = np.flatnonzero(similar >= similar.max() - _ROUNDED)
        gaps = novelty(key[None], self._first[near])[0]
        nearest = int(gaps.argmin())
        return int(near[nearest]) if 2 * gaps[nearest] <= self.delta**2 else n

    def _sample(self, group: int, key: Singles, value: Singles) -> None:
        """Count a token in, and keep it as a sample with probability ``samples / count``."""
        count = int(self._counts[group])
        self._counts[group] += 1
        place = count if count < self.samples else int(self._rng.integers(count + 1))
        if place < self.samples:
            self._keys[group, place], self._values[group, place] = key, value

    def _answer(self, queries: Singles) -> Floats:
        n_samples = np.minimum(self._counts, self.samples)
        held = np.arange(self.samples) < n_samples[:, None]  # (G, t)
        stands_for = np.repeat(self._counts / n_samples, n_samples)
        logits = similarity(queries, self._keys[held]) / self.theta + np.log(stands_for)
        return softmax(logits) @ self._values[held]


def resized(rows: NDArray[Any], n: int) -> NDArray[Any]:
    """A copy of the first ``n`` rows, with rows of zeros where there are fewer."""
    copy = np.zeros((n, *rows.shape[1:]), rows.dtype)
    copy[: len(rows)] = rows[:n]
    return copy
