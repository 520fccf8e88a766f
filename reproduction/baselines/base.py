"""What all baselines share: input validation, reads, and the three kinds of state."""

# L tokens, l tokens of a block, S slots, Q queries, D key size, C value size

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distinctkv.inputs import as_rows, as_values, faults, value_faults
from distinctkv.rule import Floats, unit

Float32s = NDArray[np.float32]
Ids = NDArray[np.int64]

# Products of unit rows on this grid add up in float64 without error, in any order: however a
# stream is cut into chunks, and whatever BLAS does with them, similarities are the same bits.
_GRID = 2.0**26


@dataclass(frozen=True)
class Card:
    """A baseline in one line: how it works, what it keeps, how that grows, and its bytes.

    ``size`` is a formula in L tokens seen, D key size, C value size and the settings by name.
    """

    mechanism: str
    keeps: str
    growth: str
    size: str


class Baseline(ABC):
    """A memory; a subclass implements the abstract methods, which get validated rows only.

    Keys and queries are unit rows, values are unchanged, all in float32, so that the bytes of all
    memories are comparable.
    """

    card: ClassVar[Card]

    def __init__(self) -> None:
        self._widths: tuple[int, int] | None = None  # D and C, None before the first write
        self._tokens = 0

    def write(self, keys: ArrayLike, values: ArrayLike) -> Ids:
        """Store a chunk, (L, D) and (L, C); returns the slot id of each token, -1 if it has none.

        One token may come as one key and one value, (D,) and (C,).
        """
        width, n_values = self._widths or (None, None)
        clean_keys = unit_rows("keys", keys, width)
        single = len(clean_keys) == 1 and np.ndim(keys) == 1
        clean_values = value_rows(values, len(clean_keys), n_values, single=single)
        if len(clean_keys) == 0:
            return np.empty(0, np.int64)
        if self._widths is None:
            self._init_state(clean_keys.shape[1], clean_values.shape[1])
            self._widths = clean_keys.shape[1], clean_values.shape[1]
        # A state that overflows is an error of the next read.
        with np.errstate(over="ignore", invalid="ignore"):
            ids = self._write(clean_keys, clean_values)
        self._tokens += len(clean_keys)
        return ids

    def read(self, queries: ArrayLike) -> Floats:
        """The value for each query, (Q, D) to (Q, C)."""
        if self._widths is None:
            raise ValueError("nothing was written yet; write before you read")
        clean_queries = unit_rows("queries", queries, self._widths[0])
        with np.errstate(over="ignore", invalid="ignore"):
            answers = self._read(clean_queries)
        if not np.isfinite(answers).all():
            raise ValueError(
                "the read is not finite: the stored sums overflow float32, or theta is too near 0; "
                "scale values to about 1, or use a theta of .01 or more"
            )
        return answers

    @abstractmethod
    def __len__(self) -> int:
        """Slots held."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held."""

    @abstractmethod
    def _init_state(self, width: int, n_values: int) -> None:
        """Make the empty state for keys of size D and values of size C."""

    @abstractmethod
    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        """Store a chunk that is not empty; returns the slot ids."""

    @abstractmethod
    def _read(self, queries: Float32s) -> Floats:
        """Read a memory that is not empty."""


class TokenBaseline(Baseline):
    """A baseline whose slots are whole tokens, read by softmax attention (paper, eq. 3).

    The id of a token is its place in the stream.
    """

    def __init__(self, theta: float = 0.05) -> None:
        super().__init__()
        self.theta = positive("theta", theta)

    def __len__(self) -> int:
        return len(self._keys) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the kept keys and values."""
        return self._keys.nbytes + self._values.nbytes if self._widths else 0

    def _init_state(self, width: int, n_values: int) -> None:
        self._keys = np.empty((0, width), np.float32)
        self._values = np.empty((0, n_values), np.float32)

    def _append(self, keys: Float32s, values: Float32s) -> Ids:
        """Append a chunk to the kept tokens."""
        self._keys = np.concatenate([self._keys, keys])
        self._values = np.concatenate([self._values, values])
        return np.arange(self._tokens, self._tokens + len(keys))

    def _read(self, queries: Float32s) -> Floats:
        return softmax(similarity(queries, self._keys) / self.theta) @ self._values


def similarity(queries: Float32s, keys: Float32s) -> Floats:
    """Cosine of unit rows, (Q, D) and (S, D) to (Q, S), exact in float64."""
    product: Floats = queries.astype(np.float64) @ keys.T.astype(np.float64)
    return product


def novelty(queries: Float32s, keys: Float32s) -> Floats:
    """Half the squared distance of unit rows, (Q, D) and (S, D) to (Q, S): 1 - cosine (eq. 1).

    Unlike 1 - cosine it is 0 for a repeat: rows have length one only to float32.

    >>> row = unit_rows("keys", [[1.0, 2.0, 3.0]], None)
    >>> float(novelty(row, row)[0, 0]), float(1 - similarity(row, row)[0, 0]) == 0
    (0.0, False)
    """
    halves = [(rows.astype(np.float64) ** 2).sum(axis=1) / 2 for rows in (queries, keys)]
    gaps: Floats = halves[0][:, None] + halves[1] - similarity(queries, keys)
    return gaps


def softmax(logits: Floats) -> Floats:
    """Softmax of each row.

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]]))
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    weights: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def unit_rows(what: str, rows: ArrayLike, width: int | None) -> Float32s:
    """Validated rows, scaled to length one and rounded to the grid."""
    given = as_rows(rows, width, what)
    _check_rows(what, given, faults(given, "cosine"))
    return (np.rint(unit(given) * _GRID) / _GRID).astype(np.float32)


def value_rows(
    values: ArrayLike, n_rows: int, width: int | None, *, single: bool = False
) -> Float32s:
    """Validated values, one vector per token.

    >>> value_rows([[1, 0], [0, 1]], n_rows=2, width=2)
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    kind, given = as_values(values, n_rows, single)
    if kind != "vector":
        raise TypeError("values must be vectors, got class labels; pass one-hot rows")
    if n_rows == 0 and np.ndim(values) == 1:
        given = np.empty((0, width or 1))
    if width is not None and given.shape[1] != width:
        raise ValueError(
            f"values have size {given.shape[1]}, this memory holds values of size {width}; "
            "use one memory for each value size"
        )
    _check_rows("values", given, value_faults(given, np.float32))
    return given.astype(np.float32)


def _check_rows(what: str, rows: NDArray[Any], bad: NDArray[np.bool_]) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"row {row} of {what} is not finite, or is all zeros: {rows[row]}; remove such rows"
        )


def positive(name: str, number: float) -> float:
    """The number if it is finite and above 0, else an error that names it."""
    if not 0 < number < np.inf:
        raise ValueError(f"{name} must be finite and above 0, got {number}")
    return number


def at_least_one(name: str, number: int) -> int:
    """The number if it is 1 or more, else an error that names it."""
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return int(number)


def fraction(name: str, number: float) -> float:
    """The number if it is above 0 and at most 1, else an error that names it."""
    if not 0 < number <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {number}")
    return number


# Tokens of one closed-form update. Larger blocks cost more arithmetic (quadratic in the block) and
# less overhead.
BLOCK = 64


class State(Baseline):
    """A baseline that keeps a matrix and no token.

    No token has a slot of its own, so every id is -1. ``len`` counts the rows of the matrix, as the
    paper does; ``nbytes`` counts every array and is the fair measure. Random projections are drawn
    once and stored, so they count.
    """

    _state: Float32s

    def __len__(self) -> int:
        return len(self._state) if self._widths else 0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays held, the same however long the stream."""
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        for start in range(0, len(keys), BLOCK):
            block = slice(start, start + BLOCK)
            self._update(keys[block].astype(np.float64), values[block].astype(np.float64))
        return np.full(len(keys), -1)

    @abstractmethod
    def _update(self, keys: Floats, values: Floats) -> None:
        """Add at most ``BLOCK`` tokens; the result equals adding them one by one."""


class LinearState(State):
    """A matrix (D, C) that a query multiplies."""

    def _init_state(self, width: int, n_values: int) -> None:
        self._state = np.zeros((width, n_values), np.float32)

    def _read(self, queries: Float32s) -> Floats:
        return (queries @ self._state).astype(np.float64)


Bools = NDArray[np.bool_]


class EvictingBaseline(TokenBaseline):
    """A budget of tokens; a subclass decides which token is evicted when there is one too many.

    A block of tokens is appended to the kept ones as columns, so that one matrix product gives all
    similarities of the block. Evictions are still decided token by token: the result does not
    depend on the borders of blocks or chunks. A token is kept at least for its own step, so every
    token has an id.
    """

    # Small matrices: fewer columns per token, and BLAS starts no threads.
    _block = 32

    def __init__(self, budget: int, theta: float = 0.05) -> None:
        super().__init__(theta)
        self.budget = at_least_one("budget", budget)

    def _write(self, keys: Float32s, values: Float32s) -> Ids:
        for start in range(0, len(keys), self._block):
            part = slice(start, start + self._block)
            before = len(self._keys)
            self._append(keys[part], values[part])
            alive = self._evict(self._keys.astype(np.float64), before)
            self._keys, self._values = self._keys[alive], self._values[alive]
        return np.arange(self._tokens, self._tokens + len(keys))

    @abstractmethod
    def _evict(self, keys: Floats, before: int) -> Bools:
        """Whether each column (S + l, D) is kept; the first S = ``before`` are earlier tokens."""
