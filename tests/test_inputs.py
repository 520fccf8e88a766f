"""Bad input gets a typed error that names value, rule and way out, and changes nothing."""

import tracemalloc

import numpy as np
import pytest

from distinctkv import Cache, Concentration, Merge, inputs
from tests.reference import state

NAN, INF = np.nan, np.inf
GOOD = np.eye(3)

BAD_KEYS = {
    "nan": ([[1, 0, NAN]], ValueError, "key 0 has nan"),
    "inf": ([[1, 0, INF]], ValueError, "key 0 has inf"),
    "minus inf": ([[1, 0, -INF]], ValueError, "key 0 has inf"),
    "nan late": ([*GOOD.tolist(), [NAN, 0, 0]], ValueError, "key 3 has nan"),
    "zeros": ([[0, 0, 0]], ValueError, "no direction"),
    "minus zeros": ([[-0.0, 0, 0]], ValueError, "no direction"),
    "too wide": (np.eye(4), ValueError, "4 numbers, this memory holds keys of 3"),
    "too narrow": ([[1.0, 2.0]], ValueError, "one memory per encoder"),
    "scalar": (3.0, ValueError, "0 dimensions"),
    "three axes": (np.ones((2, 2, 3)), ValueError, "3 dimensions"),
    "no numbers": (np.empty((2, 0)), ValueError, "no numbers in them"),
    "ragged": ([[1, 0, 0], [1, 0]], ValueError, "equal length"),
    "words": ([["a", "b", "c"]], TypeError, "encode them"),
    "complex": ([[1j, 0, 0]], TypeError, "real numbers"),
    "objects": (np.array([[None, 1, 2]]), TypeError, "real numbers"),
    "dates": (np.array([["2020-01-01"] * 3], "M8[D]"), TypeError, "real numbers"),
    "none": (None, TypeError, "real numbers"),
    "a set": ({1.0, 2.0}, TypeError, "real numbers, got object"),
    "a generator": ((row for row in GOOD), TypeError, "real numbers, got object"),
}

BAD_VALUES = {
    "too few": ([1, 2], ValueError, "do not fit 3 keys"),
    "too many": ([1, 2, 3, 4], ValueError, "do not fit 3 keys"),
    "three axes": (np.ones((3, 1, 1)), ValueError, "do not fit 3 keys"),
    "one for all": (1, ValueError, "do not fit 3 keys"),
    "vectors after labels": (np.eye(3), ValueError, "before they were labels"),
    "missing after labels": (None, ValueError, "values are now missing"),
    "words": (["a", "b", "c"], TypeError, "values must be real numbers"),
    "ragged": ([[1], [2, 3], [4]], ValueError, "values must be rows of equal length"),
    "too long a label, written the other way round": (
        np.array([0, 1, 2**63], ">u8"),
        ValueError,
        "64 signed bits",
    ),
    "too long a label": (np.array([0, 1, 2**63], np.uint64), ValueError, "64 signed bits"),
}


@pytest.fixture(params=["blocked", "sequential", "compiled"])
def cache(request):
    if request.param == "compiled":
        pytest.importorskip("numba")
    cache = Cache(Concentration.fixed(0.5), engine=request.param)
    cache.write(GOOD, [0, 1, 2])
    return cache


@pytest.mark.parametrize(("keys", "error", "words"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_bad_key_is_refused_and_changes_nothing(cache, keys, error, words):
    before = state(cache)
    with pytest.raises(error, match=words):
        cache.write(keys, [0] * len(keys) if isinstance(keys, list | np.ndarray) else [0])
    assert state(cache) == before


@pytest.mark.parametrize(("values", "error", "words"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_bad_value_is_refused_and_changes_nothing(cache, values, error, words):
    before = state(cache)
    with pytest.raises(error, match=words):
        cache.write(GOOD, values)
    assert state(cache) == before


@pytest.mark.parametrize("keys", [[[1, 0, NAN]], [[0, 0, 0]], np.eye(4)], ids=str)
def test_a_bad_query_is_refused(cache, keys):
    for use in (cache.read, cache.read_mass, cache.nearest, cache.distribution):
        with pytest.raises(ValueError, match=r"query 0|queries") as error:
            use(keys)
        assert "on_bad" not in str(error.value)  # which is for rows that are written


def test_values_for_no_keys_are_refused(cache):
    with pytest.raises(ValueError, match="do not fit 0 keys"):
        cache.write(np.empty((0, 3)), [1, 2, 3])


@pytest.mark.parametrize("keys", [[], np.empty((0, 3))], ids=["list", "array"])
@pytest.mark.parametrize("values", [[], np.empty((0, 2)), None], ids=["list", "array", "none"])
def test_a_chunk_of_nothing_changes_nothing(cache, keys, values):
    before = state(cache)
    assert cache.write(keys, values).tolist() == []
    assert state(cache) == before


def test_a_tensor_that_must_be_detached_is_refused_in_our_words():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="must be an array of numbers"):
        Cache().write(torch.ones(2, 2, requires_grad=True))


def test_a_tensor_of_a_type_that_numpy_has_not_is_told_the_way_out():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"BFloat16; \.float\(\)"):
        Cache().write(torch.ones(2, 2, dtype=torch.bfloat16))


@pytest.mark.parametrize("theta", [0.0, -1.0, NAN])
def test_a_theta_that_is_not_above_zero_is_refused(cache, theta):
    for use in (cache.read, cache.read_mass, cache.distribution):
        with pytest.raises(ValueError, match="theta must be"):
            use(GOOD, theta=theta)


@pytest.mark.parametrize("bad", [[NAN, 1.0], [INF, 1.0], [1e39, 1.0]], ids=str)
def test_a_value_that_is_not_finite_is_refused(bad):
    cache = Cache()
    with pytest.raises(ValueError, match=r"value 1 has"):
        cache.write(GOOD[:2], [[0.0, 1.0], bad])
    assert len(cache) == 0
    assert cache.width is None


def test_a_value_too_large_for_sums_is_refused_where_sums_are_kept():
    cache = Cache(merge=Merge(value="mean"))
    with pytest.raises(ValueError, match=r"value 1 has 1e\+308 in it, too large to store"):
        cache.write(GOOD[[0, 0]], [[1.0], [1e308]])
    cache.write(GOOD[[0, 0]], [[1e290], [1e290]])
    assert cache.slots.values.tolist() == [[1e290]]


def test_values_are_looked_at_in_blocks_so_that_they_may_lie_in_a_file():
    values = np.ones((50_000, 64), np.float32)
    values[[7, 40_000], 5] = np.nan
    tracemalloc.start()
    bad = inputs.value_faults(values, np.float32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.flatnonzero(bad).tolist() == [7, 40_000]
    assert peak < values.nbytes / 3


def test_labels_have_no_mean():
    with pytest.raises(ValueError, match=r"value='counts'"):
        Cache(merge=Merge(value="mean")).write(GOOD, [0, 1, 2])


def test_vectors_are_not_counted():
    with pytest.raises(ValueError, match="counts are of class labels"):
        Cache(merge=Merge(value="counts")).write(GOOD, GOOD)


def test_a_key_too_long_for_float32_is_refused_by_distances_only():
    far = Cache(metric="euclidean")
    with pytest.raises(ValueError, match="too large to compare"):
        far.write([[1e30, 0.0]])
    assert Cache().write([[1e300, 0.0], [1e-300, 0.0]]).tolist() == [0, 0]


LONGEST = np.finfo(np.longdouble).max


@pytest.mark.skipif(np.finfo(float).max == LONGEST, reason="no float here is longer than 64 bits")
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_key_too_long_for_float64_is_refused_without_a_warning(metric):
    with pytest.raises(ValueError, match="key 1 has inf"):
        Cache(metric=metric).write(np.array([[1, 1], [LONGEST, 1]], np.longdouble))


def test_zeros_are_a_fine_key_for_distances():
    assert Cache(metric="euclidean").write(np.zeros((2, 3))).tolist() == [0, 0]


def test_an_unknown_way_with_bad_rows_is_refused():
    with pytest.raises(ValueError, match="on_bad must be one of"):
        Cache(on_bad="ignore")


def test_a_stream_that_must_go_on_skips_and_counts_bad_rows():
    rows = np.array([[1.0, 0], [NAN, 0], [0, 0], [0, 1], [INF, 1], [1, 0]])
    cache = Cache(on_bad="skip")
    ids = cache.write(rows, [0, 1, 2, 3, 4, 5])
    assert ids.tolist() == [0, -1, -1, 1, -1, 0]
    assert (cache.skipped, cache.seen) == (3, 6)
    assert cache.slots.first_seen.tolist() == [0, 3]


def test_skipping_leaves_the_memory_as_if_the_bad_rows_were_not_there(rng):
    rows, values = rng.standard_normal((300, 8)), rng.standard_normal((300, 2))
    bad = rng.random(300) < 0.3
    dirty, spoilt = rows.copy(), values.copy()
    dirty[bad & (values[:, 0] > 0)] = NAN
    spoilt[bad & (values[:, 0] <= 0)] = INF
    clean, skipping = Cache(centre=True), Cache(centre=True, on_bad="skip")
    ids = skipping.write(dirty, spoilt)
    assert np.array_equal(ids[~bad], clean.write(rows[~bad], values[~bad]))
    assert np.array_equal(skipping.slots.keys, clean.slots.keys)
    assert np.array_equal(skipping.slots.usage, clean.slots.usage)


def test_a_first_batch_of_bad_rows_fixes_nothing():
    cache = Cache(on_bad="skip")
    assert cache.write([[NAN, 1.0]], [3]).tolist() == [-1]
    assert cache.write(np.eye(3), np.eye(3)).tolist() == [0, 1, 2]


def test_one_nan_does_not_poison_a_memory(rng):
    keys = rng.standard_normal((64, 16))
    cache = Cache(Concentration.fixed(0.1), merge=Merge(key="mean"), on_bad="skip")
    cache.write([[NAN] * 16], [0])
    cache.write(keys, range(64))
    cache.write([[NAN] * 16, [INF] * 16], [0, 1])
    assert cache.read(keys).tolist() == list(range(64))
