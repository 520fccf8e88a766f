"""Exact repeats are found by their bytes; the hash index pauses where there are none."""

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.engines.blocked import PAUSE, HashIndex, row_hashes
from tests.reference import follow


@pytest.mark.parametrize("width", [1, 7, 8])
def test_a_hash_depends_on_the_row_alone(rng, width):
    keys = rng.standard_normal((50, width)).astype(np.float32)
    assert np.array_equal(row_hashes(keys[::-1])[::-1], row_hashes(keys))
    assert row_hashes(keys[7:8])[0] == row_hashes(keys)[7]


@pytest.mark.parametrize("width", [6, 7])
def test_rows_of_small_whole_numbers_have_hashes_of_their_own(rng, width):
    grid = np.unique(rng.integers(-3, 4, (5000, width)), axis=0).astype(np.float32)
    for keys in (grid, np.eye(1000 + width, dtype=np.float32)):
        assert len(np.unique(row_hashes(keys))) >= len(keys) - 2


def test_an_exact_repeat_is_found_and_a_near_one_is_not(rng):
    slots = rng.standard_normal((40, 6)).astype(np.float32)
    tokens = np.concatenate([slots[::-1], slots + 1e-6])
    rows = HashIndex().find(slots, tokens)
    assert rows.tolist() == [*range(39, -1, -1), *[-1] * 40]


def test_equal_hashes_of_different_rows_are_told_apart(rng, monkeypatch):
    monkeypatch.setattr(
        "distinctkv.engines.blocked.row_hashes", lambda keys: np.zeros(len(keys), np.uint32)
    )
    slots = rng.standard_normal((5, 6)).astype(np.float32)
    rows = HashIndex().find(slots, slots)
    assert all(row in (-1, i) for i, row in enumerate(rows))


def test_the_index_pauses_where_nothing_repeats_and_tries_again(rng):
    slots, index = rng.standard_normal((9, 4)).astype(np.float32), HashIndex()
    index.find(slots, slots + 1)
    assert index.nbytes == 0
    assert [index.find(slots, slots) for _ in range(PAUSE)] == [None] * PAUSE
    assert index.find(slots, slots).tolist() == list(range(9))


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_a_stream_of_exact_repeats_is_still_the_rule(rng, tau):
    keys = rng.standard_normal((300, 8))[rng.zipf(1.3, 4000) % 300]
    cache = Cache(Concentration.fixed(tau))
    ids = np.concatenate([cache.write(part) for part in np.array_split(keys, 9)])
    assert ids.tolist() == follow(cache, keys)[1]
