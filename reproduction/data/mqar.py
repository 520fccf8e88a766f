"""Multi-query associative recall with repeats: token sequences to train sequence models on.

A sequence is a context of (key, value) pairs in which each of K items comes r times in random
order, then K queries: each key once more, with a blank where its value was. The model must say the
value at every key it has met before. Token 0 is the blank, then come the keys, then the values.
"""

# N sequences, K items, r repeats, L tokens

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .synthetic import Ints

SILENT = -100  # no answer is asked for at this token; the number torch's losses pass over


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Sequences, and what is to be said at each token."""

    tokens: Ints  # (N, L)
    targets: Ints  # (N, L), the value to say at a key met before, else SILENT
    asked: NDArray[np.bool_]  # (N, L), the queries at the end


@dataclass(frozen=True, slots=True)
class MQARTask:
    """How sequences are drawn: ``n_items`` (K) items, each ``repeats`` (r) times, then K queries.

    ``renewed`` overwrites: so many of the last occurrences of an item bind it to another value,
    and the newest is the answer. ``siblings`` makes near-duplicates: keys are two tokens long, and
    so many items share the first of them; the second is shared across families.

    >>> task = MQARTask(n_items=2, repeats=2, n_keys=4, n_values=4)
    >>> task.n_tokens, task.vocabulary
    (12, 9)
    >>> task.draw(np.random.default_rng(0), 1).tokens
    array([[4, 5, 3, 8, 4, 5, 3, 8, 4, 0, 3, 0]])
    """

    n_items: int = 64
    repeats: int = 3
    n_keys: int = 1024
    n_values: int = 1024
    renewed: int = 0
    siblings: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that draw no sequence."""
        for name in ("n_items", "repeats", "n_values", "siblings"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.renewed < self.repeats:
            raise ValueError(
                f"renewed must be 0 to {self.repeats - 1}, fewer than the repeats, "
                f"got {self.renewed}"
            )
        if self.renewed and self.n_values < 2:
            raise ValueError(f"a value can only change if there are 2 or more, got {self.n_values}")
        if self.n_keys < self._key_tokens:
            raise ValueError(
                f"{self.n_items} items need {self._key_tokens} key tokens, got {self.n_keys}; "
                "raise n_keys or lower n_items"
            )

    @property
    def _key_tokens(self) -> int:
        """Different key tokens in one sequence."""
        if self.siblings == 1:
            return self.n_items
        return -(-self.n_items // self.siblings) + self.siblings

    @property
    def n_tokens(self) -> int:
        """Tokens in a sequence, L."""
        return (self.repeats + 1) * self.n_items * (2 if self.siblings == 1 else 3)

    @property
    def vocabulary(self) -> int:
        """Number of different tokens: the blank, the keys, the values."""
        return 1 + self.n_keys + self.n_values

    def draw(self, rng: np.random.Generator, n: int) -> TokenBatch:
        """``n`` sequences."""
        if n < 1:
            raise ValueError(f"draw 1 sequence or more, got {n}")
        names = self._names(rng, n)  # (N, K, 1 or 2)
        old = rng.integers(self.n_values, size=(n, self.n_items))
        shift = rng.integers(1, self.n_values, size=old.shape) if self.renewed else 0
        values = 1 + self.n_keys + np.stack([old, (old + shift) % self.n_values], -1)

        context = np.tile(np.repeat(np.arange(self.n_items), self.repeats), (n, 1))
        context = rng.permuted(context, axis=1)
        queries = rng.permuted(np.tile(np.arange(self.n_items), (n, 1)), axis=1)
        items = np.concatenate([context, queries], 1)
        turns = np.concatenate([_ordinals(context, self.repeats), np.full_like(queries, -1)], 1)

        late = (turns < 0) | (turns >= self.repeats - self.renewed)
        bound = np.take_along_axis(values[..., 0], items, 1)
        renewed = np.take_along_axis(values[..., 1], items, 1)
        bound = np.where(late, renewed, bound)
        said = np.where(turns < 0, 0, bound)
        # Neither the first occurrence nor the one that overwrites can be known beforehand.
        fresh = turns == 0
        if self.renewed:
            fresh |= turns == self.repeats - self.renewed
        return self._laid_out(names, items, said, np.where(fresh, SILENT, bound), turns < 0)

    def _names(self, rng: np.random.Generator, n: int) -> Ints:
        """The key tokens of each item, (N, K, 1 or 2)."""
        ranks = rng.random((n, self.n_keys))
        chosen = 1 + ranks.argpartition(self._key_tokens - 1, 1)[:, : self._key_tokens]
        if self.siblings == 1:
            return chosen[..., None]
        each = np.arange(self.n_items)
        stems = chosen[:, self.siblings :][:, each // self.siblings]
        return np.stack([stems, chosen[:, each % self.siblings]], -1)

    def _laid_out(
        self, names: Ints, items: Ints, said: Ints, answers: Ints, asked: NDArray[np.bool_]
    ) -> TokenBatch:
        """Each occurrence as key tokens and a value; the answer stands at the last key token."""
        keys = np.take_along_axis(names, items[..., None], 1)
        tokens = np.concatenate([keys, said[..., None]], -1)
        targets = np.full_like(tokens, SILENT)
        targets[..., -2] = answers
        final = np.zeros(tokens.shape, bool)
        final[..., -2] = asked
        n = len(tokens)
        return TokenBatch(tokens.reshape(n, -1), targets.reshape(n, -1), final.reshape(n, -1))


def _ordinals(items: Ints, repeats: int) -> Ints:
    """How often each token's item has come before it in its row, all coming equally often."""
    order = items.argsort(1, kind="stable")
    turns = np.empty_like(items)
    np.put_along_axis(turns, order, np.arange(items.shape[1])[None] % repeats, 1)
    return turns
