"""Streams that are hard on a memory, and policies to run them under."""

from dataclasses import dataclass
from math import inf

import numpy as np
from hypothesis import strategies as st

from distinctkv import Concentration, Merge

METRICS = ("cosine", "euclidean")
WIDTHS = (1, 2, 3, 5, 16)


@dataclass
class Stream:
    """Keys (L, D), a vector (L, 2) and a label (L,) for each."""

    keys: np.ndarray
    vectors: np.ndarray
    labels: np.ndarray


@st.composite
def streams(draw, most=80, width=None):
    """Noisy repeats, or points of a small grid where distances tie; never a row of zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, most)), width or draw(st.sampled_from(WIDTHS))
    if draw(st.booleans()):
        keys = rng.integers(-1, 2, (n, d)).astype(float)
        keys[~keys.any(axis=1), 0] = 1.0
    else:
        noise = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
        things = rng.standard_normal((draw(st.integers(1, 12)), d))
        keys = things[rng.integers(0, len(things), n)] + noise * rng.standard_normal((n, d))
    keys = keys * draw(st.sampled_from([1.0, 1e-3, 1e4])) + draw(st.sampled_from([0.0, 0.0, 30.0]))
    labels = rng.integers(-2, 4, n)
    return Stream(keys, rng.standard_normal((n, 2)), labels)


def pairs():
    """Two streams of keys of one width."""
    return st.sampled_from(WIDTHS).flatmap(lambda d: st.tuples(streams(width=d), streams(width=d)))


def taus(largest=2.0):
    return st.one_of(
        st.sampled_from([0.0, 1e-7, 0.01, 0.3, 0.5, 1.0, largest]), st.floats(0.0, largest)
    )


@st.composite
def concentrations(draw, bounded=None):
    """Any policy; ``bounded`` forces a budget or forbids one."""
    bounded = draw(st.booleans()) if bounded is None else bounded
    return Concentration(
        tau=draw(taus()),
        base=draw(st.sampled_from([1, 2.5, 7, 20])) if bounded else inf,
        gain=draw(st.sampled_from([0.0, 3.0, 30.0])),
        rate=draw(st.sampled_from([0.05, 0.5, 1.0])),
        decay=draw(st.sampled_from([1.0, 0.98, 0.5, 1e-6])),
    )


def merges():
    keys = st.sampled_from(["first", "mean", "ema"])
    values = st.sampled_from(["first", "last", "mean", "counts"])
    return st.builds(Merge, keys, values, st.sampled_from([0.1, 0.7, 1.0]))


def cuts(n):
    """Places at which to cut ``n`` tokens into chunks."""
    return st.lists(st.integers(0, n), max_size=6).map(sorted)
