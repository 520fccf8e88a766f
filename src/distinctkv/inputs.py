"""Validation and preparation of keys, values and queries, once, before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .policy import Metric
from .rule import Floats, unit
from .slots import MAX_TOKENS, Bools, Kind

LARGEST = 1e15  # a longer coordinate would overflow the float32 square of a distance
LARGEST_SUMMED = 1e290  # a mean keeps a sum, which must not overflow either
BLOCK = 4096

P = ParamSpec("P")
R = TypeVar("R")


def ignore_fp_warnings(method: Callable[P, R]) -> Callable[P, R]:
    """Runs under ``np.errstate(all="ignore")``: inputs are already validated.

    Values too small for float32 become 0, and some BLAS libraries raise floating-point flags in
    products of finite numbers (numpy issues 13173 and 24067).
    """

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return method(*args, **kwargs)

    return run


def as_rows(keys: ArrayLike, width: int | None, what: str = "keys") -> NDArray[Any]:
    """Rows of numbers from anything array-like, without a copy if possible.

    >>> as_rows([1, 2, 3], width=3).shape
    (1, 3)
    """
    rows = _numbers(keys, what)
    if rows.ndim == 1:
        rows = rows[None] if len(rows) else np.empty((0, width or 1))
    if rows.ndim != 2:
        raise ValueError(f"{what} must be rows of numbers (L, D), got {rows.ndim} dimensions")
    if rows.shape[1] == 0:
        raise ValueError(
            f"{what} have no numbers in them (shape {rows.shape}); D must be 1 or more"
        )
    if width is not None and rows.shape[1] != width:
        raise ValueError(
            f"{what} have {rows.shape[1]} numbers, this memory holds keys of {width}; "
            "use one memory per encoder"
        )
    return rows


def as_values(values: ArrayLike | None, n_rows: int, single: bool) -> tuple[Kind, NDArray[Any]]:
    """Kind and array of the values: whole numbers are class labels, anything else vectors.

    >>> as_values([2, 0, 1], 3, single=False)
    ('label', array([2, 0, 1]))
    """
    if values is None:
        return "none", np.empty((n_rows, 0), np.float32)
    given = _numbers(values, "values")
    if single and given.shape != (1,) and not (given.ndim == 2 and len(given) == 1):
        given = given[None]
    if given.ndim not in (1, 2) or len(given) != n_rows:
        raise ValueError(
            f"values of shape {given.shape} do not fit {n_rows} keys; "
            "give one label or one vector for each key"
        )
    if given.ndim == 1 and given.dtype.kind in "iub":
        if given.dtype.kind == "u" and given.max(initial=0) > np.iinfo(np.int64).max:
            raise ValueError(f"labels must fit into 64 signed bits, got {given.max()}")
        return "label", given.astype(np.int64)
    return "vector", given[:, None] if given.ndim == 1 else given


def faults(rows: NDArray[Any], metric: Metric) -> Bools:
    """Which rows cannot be keys: not finite, and without direction or too long to compare."""
    bad = np.zeros(len(rows), bool)
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        with np.errstate(over="ignore", invalid="ignore"):
            if part.dtype not in (np.float32, np.float64):
                part = part.astype(np.float64)
            squares = np.einsum("ij,ij->i", part, part)
        # Squares in this range neither overflowed nor vanished: the row needs no second check.
        look = np.flatnonzero(~((squares > 1e-30) & (squares < 1e30)))
        if len(look):
            peak = np.abs(part[look].astype(np.float64)).max(axis=1)
            wrong = peak == 0 if metric == "cosine" else peak > LARGEST
            bad[start + look] = wrong | ~np.isfinite(peak)
    return bad


def value_faults(values: NDArray[Any], stored: type[np.generic]) -> Bools:
    """Which rows of values are not finite in the type they are stored in, or in sums of it."""
    if values.dtype.kind in "iub" or values.size == 0:
        return np.zeros(len(values), bool)
    most = LARGEST_SUMMED if stored is np.float64 else np.finfo(np.float32).max
    bad = np.zeros(len(values), bool)
    for start in range(0, len(values), BLOCK):
        part = slice(start, start + BLOCK)
        with np.errstate(over="ignore", invalid="ignore"):
            bad[part] = ~(np.abs(values[part].astype(stored)) <= most).all(axis=1)
    return bad


def explain(rows: NDArray[Any], bad: Bools, metric: Metric, what: str = "key") -> ValueError:
    """The error for the first bad row."""
    row = int(bad.argmax())
    with np.errstate(over="ignore"):
        seen = np.asarray(rows[row], dtype=np.float64)
    if np.isnan(seen).any():
        why = "has nan in it"
    elif np.isinf(seen).any():
        why = "has inf in it"
    elif metric == "cosine" and not seen.any():
        why = "is all zeros and has no direction"
    else:
        use = "store" if what == "value" else "compare"
        why = f"has {seen[np.abs(seen).argmax()]:g} in it, too large to {use}"
    skip = "" if what == "query" else ", or use on_bad='skip' to count and skip such rows"
    return ValueError(
        f"{what} {row} {why} ({int(bad.sum())} of {len(rows)} rows are bad); drop it{skip}"
    )


class Centre:
    """The running mean of the unit keys, subtracted from each key before the cosine.

    Keys with a large common component all have a high cosine. From each token the mean of the
    tokens *before* it is subtracted, so past keys never change and chunking makes no difference.
    """

    def __init__(self) -> None:
        """Start with no token seen."""
        self.total: Floats | None = None
        self.tokens = 0

    def shift(self, units: Floats) -> Floats:
        """Rows centred by the current mean."""
        if self.total is None or self.tokens == 0:
            return units
        return _recentre(units, self.total[None] / self.tokens)

    def learn(self, units: Floats) -> Floats:
        """Rows centred, each by the mean of all rows before it; the mean then includes the rows."""
        if self.total is None:
            self.total = np.zeros(units.shape[1])
        sums = np.add.accumulate(np.concatenate([self.total[None], units]), axis=0)
        before = np.maximum(self.tokens + np.arange(len(units)), 1)
        self.total, self.tokens = sums[-1].copy(), self.tokens + len(units)
        return _recentre(units, sums[:-1] / before[:, None])

    def restore(self, total: Floats | None, tokens: int) -> None:
        """Load a saved mean."""
        self.total, self.tokens = total, int(tokens)
        if (total is None) != (self.tokens == 0) or not 0 <= self.tokens <= MAX_TOKENS:
            raise ValueError(f"a mean of {tokens} tokens")
        if total is None:
            return
        if total.dtype != np.float64 or total.ndim != 1 or not np.isfinite(total).all():
            raise ValueError("a mean that is not a row of numbers")

    @property
    def width(self) -> int | None:
        """Columns of a row; None until the first row."""
        return None if self.total is None else len(self.total)

    def add(self, other: Centre) -> None:
        """Merge the mean of another stream."""
        if other.total is not None:
            self.total = other.total + (0.0 if self.total is None else self.total)
            self.tokens += other.tokens


def comparable(rows: NDArray[Any], metric: Metric) -> Floats:
    """Rows as the rule compares them, in float64."""
    return unit(rows) if metric == "cosine" else np.array(rows, dtype=np.float64)


def blocks(rows: NDArray[Any]) -> Iterator[slice]:
    """Slices of rows, so small that float64 copies of them stay in the L2 cache."""
    step = max(16, (1 << 16) // rows.shape[1])
    for start in range(0, len(rows), step):
        yield slice(start, start + step)


def _recentre(units: Floats, mean: Floats) -> Floats:
    rest = units - mean
    # A key at the mean itself has no direction left: what remains is rounding.
    lost = (rest * rest).sum(axis=1) < 1e-12
    rest[lost] = units[lost]
    return unit(rest)


def _numbers(given: ArrayLike, what: str) -> NDArray[Any]:
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        rule = "rows of equal length" if isinstance(given, list | tuple) else "an array of numbers"
        way = "; .float() makes one that NumPy knows" if "BFloat16" in str(error) else ""
        raise ValueError(f"{what} must be {rule}: {error}{way}") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{what} must be real numbers, got {array.dtype}; encode them, or convert a table by "
            ".to_numpy(float)"
        )
    return array
