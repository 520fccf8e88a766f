"""Which item each token is an occurrence of, under two laws of chance."""

# L tokens

from __future__ import annotations

import numpy as np

from .synthetic import Ints


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
