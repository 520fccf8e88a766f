"""The index names candidates and decides nothing: ids are the rule's, whatever it finds."""

import copy
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from unittest.mock import Mock, patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Cache, Concentration, Merge
from distinctkv.engines import ann, blocked
from tests.reference import assert_same, follow, write_cut
from tests.strategies import METRICS, cuts

pytest.importorskip("faiss")


@contextmanager
def eager(**more):
    """An index from a few slots on, at once, that is kept whether it pays or not."""
    settings = {"SEARCH_COST": 1, "WARM_UP": 0, "TRIAL": 10**9, **more}
    with ExitStack() as stack:
        stack.enter_context(patch.object(blocked, "TIERS", (4, 16)))
        for name, value in settings.items():
            stack.enter_context(patch.object(ann, name, value))
        yield


def index_of(cache):
    """The index itself, which is not public: whether one was built, not what it decides."""
    return cache._slots.index(ann.AnnIndex)


@pytest.fixture
def things(rng):
    """Many things, a few times each, in any order."""
    keys = np.repeat(rng.standard_normal((300, 24)), 10, axis=0)
    return rng.permutation(keys) + 0.12 * rng.standard_normal((3000, 24))


@st.composite
def wide_streams(draw):
    """Enough slots for an index: noisy repeats at many noises, or a grid where distances tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    width = draw(st.sampled_from([3, 5, 8, 16]))
    if draw(st.booleans()):
        keys = rng.integers(-2, 3, (300, width)).astype(float)
        keys[~keys.any(axis=1), 0] = 1.0
        return keys
    noise = draw(st.sampled_from([0.0, 0.1, 0.3, 1.0]))
    kinds = rng.standard_normal((draw(st.integers(30, 150)), width))
    return kinds[rng.integers(0, len(kinds), 300)] + noise * rng.standard_normal((300, width))


@pytest.mark.parametrize("metric", METRICS)
@given(
    wide_streams(),
    st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5]),
    st.sampled_from([1, 64]),
    st.data(),
)
def test_an_index_changes_no_decision(metric, keys, tau, probes, data):
    with eager(PROBES=(probes,)):
        cache = Cache(Concentration.fixed(tau), metric=metric, merge=Merge(value="last"))
        values = np.arange(len(keys))
        ids = write_cut(cache, keys, values, data.draw(cuts(len(keys))))
    rule, want = follow(cache, keys, values.tolist())
    assert ids.tolist() == want
    assert_same(cache, rule)


def test_most_repeats_are_proven_by_the_index(things):
    found = []

    def spy(*given, _certify=ann.certify):
        answer = _certify(*given)
        found.append((len(answer[0]), len(given[2])))
        return answer

    with eager(), patch.object(ann, "certify", spy):
        cache = Cache(Concentration.fixed(0.3))
        ids = np.concatenate([cache.write(part) for part in np.array_split(things, 20)])
    assert ids.tolist() == follow(cache, things)[1]
    proven, asked = np.array(found[10:]).sum(axis=0)  # by then few tokens are novel
    assert proven > 0.8 * asked


def test_an_index_that_misses_everything_changes_nothing(things):
    lost = np.full((len(things), ann.CANDIDATES), -1, np.int32)
    with eager(), patch.object(ann.Searcher, "search", lambda _, rows, n: lost[: len(rows)]):
        cache = Cache(Concentration.fixed(0.3))
        assert cache.write(things).tolist() == follow(cache, things)[1]


def test_an_index_that_names_wrong_slots_changes_nothing(things, rng):
    def wrong(index, rows, _):
        return rng.integers(0, len(index.place), (len(rows), ann.CANDIDATES)).astype(np.int32)

    with eager(), patch.object(ann.Searcher, "search", wrong):
        cache = Cache(Concentration.fixed(0.3))
        assert cache.write(things).tolist() == follow(cache, things)[1]


def test_an_index_follows_rows_that_are_put_in_order_of_use_and_evicted(things, rng):
    with eager():
        cache = Cache(Concentration.fixed(0.3))
        cache.write(things)
        slots = cache._slots
        for rows in (rng.permutation(slots.n), rng.permutation(slots.n)[: slots.n // 2]):
            slots.take(rows)
            found = slots.index(ann.AnnIndex).searcher(slots["keys"], 1).search(slots["keys"], 1000)
            assert (found == np.arange(slots.n)[:, None]).any(axis=1).all()


def test_an_absorbed_cache_is_the_same_with_an_index(things):
    def merged():
        parts = [Cache(Concentration.fixed(0.3)) for _ in range(2)]
        for part, keys in zip(parts, np.array_split(things, 2), strict=True):
            part.write(keys)
        return parts[0].absorb(parts[1]), parts[0].slots

    ids, slots = merged()
    with eager():
        same_ids, same = merged()
    assert np.array_equal(ids, same_ids)
    assert np.array_equal(slots.keys, same.keys)
    assert np.array_equal(slots.count, same.count)


def test_an_index_that_does_not_pay_is_dropped(rng):
    with eager(TRIAL=100, SEARCH_COST=2000):
        cache = Cache(Concentration.fixed(0.1))
        for _ in range(6):
            cache.write(rng.standard_normal((100, 16)))  # every token is novel
        assert index_of(cache).index is None
        assert index_of(cache).nbytes == 0


def test_an_index_counts_in_the_bytes_of_the_cache(things):
    plain = Cache(Concentration.fixed(0.3))
    plain.write(things)
    with eager():
        cache = Cache(Concentration.fixed(0.3))
        cache.write(things)
    assert cache.nbytes == plain.nbytes + index_of(cache).nbytes > plain.nbytes


def test_a_cache_with_an_index_can_be_copied_and_absorb_itself(things):
    with eager():
        cache = Cache(Concentration.fixed(0.3))
        cache.write(things)
        twin = copy.deepcopy(cache)
        before = len(cache)
        cache.absorb(cache)
        assert len(cache) == before
        assert twin.write(things[:50]).tolist() == cache.write(things[:50]).tolist()


def test_few_slots_never_wake_the_index(things):
    cache = Cache(Concentration.fixed(0.3))
    cache.write(things)
    assert index_of(cache).index is None


def test_without_faiss_all_slots_are_searched(things):
    with eager(), patch.object(ann, "library", lambda: None):
        cache = Cache(Concentration.fixed(0.3))
        assert cache.write(things).tolist() == follow(cache, things)[1]
        assert index_of(cache).index is None


def test_an_index_that_fails_is_told_and_passed_over(things):
    def fail(*_):
        raise RuntimeError("no room")

    with eager(), patch.object(ann, "_build", fail), warnings.catch_warnings():
        warnings.simplefilter("always")
        cache = Cache(Concentration.fixed(0.3))
        with pytest.warns(UserWarning, match="faiss failed \\(no room\\)"):
            ids = cache.write(things)
    assert ids.tolist() == follow(cache, things)[1]


def test_a_read_that_is_interrupted_while_an_index_grows_spoils_no_other(things):
    def stopped(index, *given, _searcher=ann.AnnIndex.searcher):
        searcher = _searcher(index, *given)
        searcher.codes.add(ann._padded(things[:50].astype(np.float32)))
        raise KeyboardInterrupt

    cache = Cache(Concentration.fixed(0.3))
    cache.write(things)
    want = cache.nearest(things)[0]
    with eager():
        with patch.object(ann.AnnIndex, "searcher", stopped), pytest.raises(KeyboardInterrupt):
            cache.nearest(things)
        assert np.array_equal(cache.nearest(things)[0], want)
        assert index_of(cache).index.ntotal == len(cache)


@contextmanager
def often():
    """Threads that take turns at every chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def dropped(index, *_):
    index.give_up()


@pytest.mark.parametrize("judge", [ann.AnnIndex.record, dropped])
def test_reads_may_run_together(rng, judge):
    keys = rng.standard_normal((1500, 32))
    queries = keys[rng.integers(0, 1500, 100)] + 0.05 * rng.standard_normal((100, 32))
    cache = Cache(Concentration.fixed(0.3))
    cache.write(keys, np.arange(1500))
    want, told = cache.nearest(queries)[0], cache.read(queries)

    def read(_):
        return (cache.nearest(queries)[0] == want).all() and (cache.read(queries) == told).all()

    built = Mock(wraps=ann._build)
    judged = patch.object(ann.AnnIndex, "record", judge)
    with eager(PAUSE=0, _build=built), judged, often(), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(24)))
    assert built.call_count > 1 if judge is dropped else built.call_count == 1


@pytest.mark.parametrize("key", ["mean", "ema"])
def test_no_index_is_built_where_it_can_prove_nothing(things, key):
    cache = Cache(Concentration.fixed(0.3), merge=Merge(key=key))
    cache.write(things)
    with eager():
        cache.nearest(things[:300])
    assert index_of(cache).index is None


def test_a_copy_makes_an_index_of_its_own(things):
    with eager():
        cache = Cache(Concentration.fixed(0.3))
        cache.write(things)
        twin = copy.deepcopy(cache)
        assert index_of(cache).index is not None
        assert index_of(twin).index is None
        assert (twin.nearest(things)[0] == cache.nearest(things)[0]).all()
        assert index_of(twin).index is not None
