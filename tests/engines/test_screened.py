"""The prefilter rules pairs out and decides nothing; `auto` uses it where it pays."""

from unittest.mock import patch

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.engines import SCREENED, screened
from tests.reference import assert_same, follow


def stream(rng, n_rows, n_items=600, noise=0.1):
    """Rows near items that lie near a subspace, as texts do; some are exact repeats."""
    items = rng.standard_normal((n_items, 12)) @ rng.standard_normal((12, 96))
    rows = items[rng.integers(0, n_items, n_rows)]
    rows += noise * rng.standard_normal(rows.shape) * (rng.random((n_rows, 1)) < 0.8)
    return rows


@pytest.fixture
def used():
    """The chunks that the prefilter decided."""
    chunks = []

    def within_chunk(search, *given, _within=screened._Search.within_chunk):
        chunks.append(len(search.keys))
        return _within(search, *given)

    with patch.object(screened._Search, "within_chunk", within_chunk):
        yield chunks


@patch.object(screened, "MIN_PAIRS", 1 << 18)
def test_auto_uses_the_prefilter_where_most_tokens_are_distinct_and_ids_are_the_rules(rng, used):
    keys = stream(rng, 2200, n_items=3000)
    cache = Cache(Concentration.fixed(0.03))
    ids = np.concatenate([cache.write(part) for part in np.array_split(keys, 7)])
    rule, want = follow(cache, keys)
    assert ids.tolist() == want
    assert_same(cache, rule, values=False)
    assert used


@patch.object(screened, "MIN_PAIRS", 1 << 18)
def test_auto_leaves_a_stream_of_frequent_items_to_the_blocked_engine(rng, used):
    items = stream(rng, 400, n_items=400)
    cache = Cache(Concentration.fixed(0.03))
    cache.write(items)
    cache.write(items[rng.zipf(1.5, 30_000) % 400] * 1.5)
    assert not used


def test_a_prefilter_that_rules_out_little_is_not_used(rng, used):
    keys = rng.standard_normal((1500, 40)) + 1
    cache = Cache(Concentration.fixed(0.25), engine="screened")
    ids = [slot for part in np.array_split(keys, 5) for slot in cache.write(part)]
    assert ids == Cache(Concentration.fixed(0.25), engine="blocked").write(keys).tolist()
    assert len(cache) > screened.MIN_SLOTS
    assert not used


def test_too_many_pairs_are_left_to_the_blocked_engine(rng, used):
    keys = stream(rng, 1500)
    with patch.object(screened, "MAX_PAIRS", 0):
        cache = Cache(Concentration.fixed(0.03), engine="screened")
        assert cache.write(keys).tolist() == follow(cache, keys)[1]
    assert not used


def test_rows_that_move_are_projected_again(rng, used):
    keys = stream(rng, 1500, n_items=1000)
    cache = Cache(Concentration.fixed(0.03), engine="screened")
    cache.write(keys[:1000])
    cache._slots.take(rng.permutation(len(cache)))  # as the blocked engine does by use
    assert cache.write(keys[1000:]).tolist() == follow(cache, keys)[1][1000:]
    assert used


def test_the_prefilter_counts_in_the_bytes_of_the_cache(rng):
    plain, cache = (Cache(Concentration.fixed(0.03), engine=e) for e in ("blocked", "screened"))
    for one in (plain, cache):
        one.write(stream(np.random.default_rng(1), 1500))
    assert cache.nbytes > plain.nbytes
    assert SCREENED.name in repr(cache)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"metric": "euclidean"}, "cosine"),
        ({"concentration": Concentration.fixed(budget=3)}, "budget"),
    ],
)
def test_the_prefilter_is_refused_where_it_is_not_exact(setting, word):
    with pytest.raises(ValueError, match=word):
        Cache(**setting, engine="screened")
