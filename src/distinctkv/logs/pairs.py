"""Pairs of keys that differ in a few tokens, and what each pair has in common."""

# K keys, L tokens in a key, P pairs

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from itertools import combinations, pairwise
from operator import ne

import numpy as np
from numpy.typing import NDArray

from .lines import Key
from .words import WILD

CROWD = 256  # keys compared with each other at most: the first by their text

Tokens = NDArray[np.int64]


def in_common(keys: Collection[Key], tau: float, few: int = 1) -> set[Key]:
    """What is common to pairs that differ in two tokens or more, wildcards in place of the rest.

    They differ in no more than a part ``tau`` of their constants, and ``few`` pairs have the same
    in common, unless one has a wildcard where the other has none. Cut into one block more than
    there may be differences, such a pair agrees in some block; only those are compared.

    >>> keys = [tuple("abcdefg"), tuple("xbydefg")]
    >>> in_common(keys, tau=0.3)
    {('<*>', 'b', '<*>', 'd', 'e', 'f', 'g')}
    """
    length = max(map(len, keys), default=0)
    most = int(tau * length)
    found: set[Key] = set()
    if most < 2:
        return found
    ordered = sorted(keys)
    for start, stop in pairwise(length * block // (most + 1) for block in range(most + 2)):
        blocks: defaultdict[Key, list[Key]] = defaultdict(list)
        for key in ordered:
            blocks[key[start:stop]].append(key)
        for crowd in blocks.values():
            if len(crowd) > 1:
                compare = _compare if len(crowd) <= 8 else _compare_many
                found |= compare(crowd[:CROWD], tau, few)
    return found


def _compare(keys: list[Key], tau: float, few: int) -> set[Key]:
    """What pairs have in common, one by one: arrays are slow to set up."""
    pairs: Counter[Key] = Counter()
    for one, two in combinations(keys, 2):
        differ: int = sum(map(ne, one, two))
        if 1 < differ <= tau * len(one):
            shared = tuple(a if a == b else WILD for a, b in zip(one, two, strict=True))
            if differ <= tau * (len(one) - shared.count(WILD) + differ):
                wild = one.count(WILD) + two.count(WILD) > 2 * (shared.count(WILD) - differ)
                pairs[shared] += few if wild else 1
    return {shared for shared, count in pairs.items() if count >= few}


def _compare_many(keys: list[Key], tau: float, few: int) -> set[Key]:
    numbers: dict[str, int] = {WILD: 0}
    tokens = np.array([[numbers.setdefault(token, len(numbers)) for token in key] for key in keys])
    wild = tokens == 0
    both = wild.astype(np.int64) @ wild.T  # (K, K) places where both are wild
    differ = (tokens[:, None] != tokens).sum(axis=2)
    constants = tokens.shape[1] - both
    one, two = np.nonzero(np.triu((differ > 1) & (differ <= tau * constants)))
    if len(one) == 0:
        return set()
    shared = np.where(tokens[one] == tokens[two], tokens[one], 0)  # (P, L)
    n_wild = wild.sum(axis=1)
    weight = np.where(n_wild[one] + n_wild[two] > 2 * both[one, two], few, 1)
    names = list(numbers)
    rows = _often(shared, weight, few)
    return {tuple(names[number] for number in row) for row in rows.tolist()}


def _often(rows: Tokens, weight: Tokens, few: int) -> Tokens:
    """Distinct rows of enough weight, by a hash: the sum of random numbers for place and token."""
    random = np.random.default_rng(0)
    hashes = random.integers(1 << 62, size=(rows.shape[1], int(rows.max()) + 1))
    total = hashes[np.arange(rows.shape[1]), rows].sum(axis=1)
    _, first, same = np.unique(total, return_index=True, return_inverse=True)
    return rows[first[np.bincount(same, weight) >= few]]
