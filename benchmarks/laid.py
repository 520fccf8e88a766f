"""Caches of very many slots without the stream that opens them: keys from a code.

Words of a binary linear code differ from each other in at least as many places as its lightest word
has ones, which can be counted. Written as signs and turned, they are unit rows whose novelty from
each other is at least ``2 * ones / width``: a million slots that are proven apart in a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distinctkv import Cache, Concentration

from .common import Ints, Rows


class Laid(NamedTuple):
    """Keys of slots, and how far apart they are at least, in novelty."""

    keys: Rows
    apart: float


def lay(n_slots: int, width: int, seed: int = 0, tries: int = 8) -> Laid:
    """Keys of the best code found, in no order."""
    rng = np.random.default_rng(seed)
    size = int(np.ceil(np.log2(n_slots)))
    bits, ones = max((_code(rng, size, width) for _ in range(tries)), key=lambda code: code[1])
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0].astype(np.float32)
    keys = np.empty((n_slots, width), np.float32)
    some = bits[rng.permutation(len(bits))[:n_slots]]
    for start in range(0, n_slots, 1 << 16):
        ones_here = np.unpackbits(some[start : start + (1 << 16)], axis=1, count=width)
        signs = (0.5 - ones_here.astype(np.float32)) * np.float32(2 / np.sqrt(width))
        keys[start : start + len(signs)] = signs @ turn
    return Laid(keys, 2 * ones / width - 1e-4)


def _code(rng: np.random.Generator, size: int, width: int) -> tuple[np.ndarray, int]:
    """All words of a random code, in packed bits, and the ones of its lightest."""
    rows = np.packbits(rng.integers(0, 2, (size, width), np.uint8), axis=1)
    words = np.zeros((1, rows.shape[1]), np.uint8)
    for row in rows:
        words = np.concatenate([words, words ^ row])
    return words, int(np.bitwise_count(words[1:]).sum(axis=1, dtype=np.int64).min())


def cache(laid: Laid, tau: float) -> Cache:
    """A cache with these slots, as it would be after one token of each."""
    if tau >= laid.apart:
        raise ValueError(f"tau {tau} is not below {laid.apart:.3f}, by which the keys are apart")
    n_slots, first = len(laid.keys), Cache(Concentration.fixed(tau))
    first.write(laid.keys[:1])
    numbers: Ints = np.arange(n_slots)
    state = first.state()[1]
    state["counters"] = [n_slots, 0]
    state["numbers"] |= {"tokens": n_slots, "n_opened": n_slots, "temperature": 1.0}
    columns = dict.fromkeys(("ids", "first_seen", "last_seen"), numbers)
    columns |= {"count": np.ones(n_slots, np.int64), "usage": np.ones(n_slots)}
    return Cache.from_state({"keys": laid.keys, **columns}, state)


def repeats(
    laid: Laid, n_tokens: int, noise: float, novel: float = 0.0, seed: int = 1
) -> tuple[Rows, Ints]:
    """Tokens near slots, each slot equally likely, and some in random directions (-1)."""
    rng = np.random.default_rng(seed)
    width = laid.keys.shape[1]
    slots = rng.integers(0, len(laid.keys), n_tokens)
    rows = laid.keys[slots]
    rows += np.float32(noise / np.sqrt(width)) * rng.standard_normal((n_tokens, width), np.float32)
    fresh = rng.random(n_tokens) < novel
    rows[fresh] = rng.standard_normal((int(fresh.sum()), width), np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows, np.where(fresh, -1, slots)
