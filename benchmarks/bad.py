"""Kinds of bad input, each as something to try on a cache that holds keys of three and labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration, Merge

NAN, INF = np.nan, np.inf
Try = Callable[[Cache], Any]

KEYS: dict[str, Any] = {
    "nan": [[1, 0, NAN]],
    "infinity": [[1, 0, INF]],
    "minus infinity": [[-INF, 0, 1]],
    "nan after good rows": [[1, 0, 0], [0, 1, 0], [NAN, 0, 0]],
    "nothing but nan": np.full((3, 3), NAN),
    "zeros": [[0.0, 0, 0]],
    "minus zeros": [[-0.0, -0.0, 0]],
    "zeros among good rows": [[1, 0, 0], [0, 0, 0]],
    "too wide": np.eye(4),
    "too narrow": [[1.0, 2.0]],
    "a number": 3.0,
    "three axes": np.ones((2, 2, 3)),
    "rows without numbers": np.empty((2, 0)),
    "ragged rows": [[1, 0, 0], [1, 0]],
    "words": [["a", "b", "c"]],
    "one word": "abc",
    "bytes": b"abc",
    "complex numbers": [[1j, 0, 0]],
    "objects": np.array([[None, 1, 2]]),
    "dates": np.array([["2020-01-01"] * 3], "M8[D]"),
    "spans of time": np.ones((1, 3), "m8[s]"),
    "records": np.zeros(3, [("a", "f4")]),
    "nothing": None,
    "a set": {1.0, 2.0, 3.0},
    "a dictionary": {"a": 1.0},
    "a function": len,
    "a generator": (number for number in (1.0, 2.0, 3.0)),
}
VALUES: dict[str, Any] = {
    "too few values": [1, 2],
    "too many values": [1, 2, 3, 4],
    "values of three axes": np.ones((3, 1, 1)),
    "one value for all": 1,
    "vectors after labels": np.eye(3),
    "no values after labels": None,
    "words for values": ["a", "b", "c"],
    "ragged values": [[1], [2, 3], [4]],
    "labels beyond 63 bits": np.array([0, 1, 2**63], np.uint64),
    "labels that are fractions": [0.5, 1.0, 2.0],
}
OTHER: dict[str, Try] = {
    "a query with nan": lambda cache: cache.read([[1, NAN, 0]]),
    "a query of zeros": lambda cache: cache.nearest([[0, 0, 0]]),
    "a query too wide": lambda cache: cache.read(np.eye(4)),
    "theta zero": lambda cache: cache.read(np.eye(3), 0.0),
    "theta nan": lambda cache: cache.read(np.eye(3), NAN),
    "theta a word": lambda cache: cache.read(np.eye(3), "warm"),  # type: ignore[arg-type]
    "absorbing another width": lambda cache: cache.absorb(_of_four()),
    "absorbing another metric": lambda cache: cache.absorb(Cache(metric="euclidean")),
    "absorbing another merge": lambda cache: cache.absorb(Cache(merge=Merge(value="last"))),
}


def tries() -> dict[str, Try]:
    """Every kind by name; each must raise ValueError or TypeError and change nothing."""
    keys = {name: _writer(keys, [0] * _length(keys)) for name, keys in KEYS.items()}
    values = {name: _writer(np.eye(3), given) for name, given in VALUES.items()}
    return {**keys, **values, **OTHER}


def cache(engine: Any) -> Cache:  # noqa: ANN401
    """A cache on an engine, with something in it."""
    made = Cache(Concentration.fixed(0.5), engine=engine)
    made.write(np.eye(3), [0, 1, 2])
    return made


def _writer(keys: object, values: object) -> Try:
    return lambda cache: cache.write(keys, values)  # type: ignore[arg-type]


def _length(keys: object) -> int:
    return len(keys) if isinstance(keys, list | np.ndarray) and getattr(keys, "ndim", 1) else 1


def _of_four() -> Cache:
    made = Cache()
    made.write(np.eye(4), [0, 1, 2, 3])
    return made
