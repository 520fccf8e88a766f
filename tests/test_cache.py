"""The cache as a user meets it."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from distinctkv import Cache, Concentration, Merge, engines
from distinctkv.engines import sequential
from distinctkv.engines.bounds import ScoreBounds
from distinctkv.rule import distances, novelty, read, unit
from tests.reference import follow, state

APPLE, SKY, GRASS = np.eye(3)
STREAM = np.stack([SKY, APPLE, GRASS, APPLE, SKY, GRASS])
RED, BLUE, GREEN = range(3)
COLOURS = [BLUE, RED, GREEN, RED, BLUE, GREEN]


@pytest.fixture
def cache():
    cache = Cache(Concentration.fixed(tau=0.5))
    cache.write(STREAM, COLOURS)
    return cache


def test_three_facts_told_twice_open_three_slots(cache):
    assert len(cache) == 3
    assert cache.slots.count.tolist() == [2, 2, 2]


def test_the_query_apple_reads_red(cache):
    assert cache.read(APPLE).tolist() == [RED]
    assert cache.read(np.stack([SKY, GRASS])).tolist() == [BLUE, GREEN]


def test_a_single_row_works():
    cache = Cache()
    assert cache.write([1.0, 0.0], 7).tolist() == [0]
    assert cache.write([0.0, 1.0], 8).tolist() == [1]
    assert cache.read([0.1, 1.0]).tolist() == [8]


def test_a_single_row_takes_a_vector_of_one_number():
    cache = Cache()
    cache.write([1.0, 0.0], [0.5])
    assert cache.read([1.0, 0.0]).tolist() == [[0.5]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
def test_any_kind_of_number_is_a_key(dtype):
    cache = Cache()
    assert cache.write(np.eye(4).astype(dtype)).tolist() == [0, 1, 2, 3]


def test_lists_and_memory_maps_are_keys(tmp_path, rng):
    keys = rng.standard_normal((50, 8)).astype(np.float32)
    np.save(tmp_path / "keys.npy", keys)
    ids = [Cache().write(rows).tolist() for rows in (keys, keys.tolist())]
    mapped = Cache().write(np.load(tmp_path / "keys.npy", mmap_mode="r")).tolist()
    assert ids[0] == ids[1] == mapped


def test_the_input_is_never_changed(rng):
    keys, values = rng.standard_normal((50, 8)), rng.standard_normal((50, 2))
    before = keys.copy(), values.copy()
    Cache(centre=True).write(keys, values)
    assert np.array_equal(keys, before[0])
    assert np.array_equal(values, before[1])


def test_slots_tell_when_they_were_first_and_last_seen(cache):
    assert cache.slots.first_seen.tolist() == [0, 1, 2]
    assert cache.slots.last_seen.tolist() == [4, 3, 5]


def test_a_slot_used_just_now_has_usage_one():
    cache = Cache(Concentration.fixed(0.5, decay=0.5))
    cache.write(APPLE)
    cache.write(SKY)
    assert cache.slots.usage.tolist() == [0.5, 1.0]


def test_a_table_of_slots_is_a_copy(cache):
    cache.slots.keys[:] = 0
    assert cache.read(APPLE).tolist() == [RED]


def test_nearest_tells_id_and_cosine(cache):
    ids, similarity = cache.nearest([0.6, 0.8, 0.0])
    assert ids.tolist() == [0]
    assert similarity == pytest.approx([0.8])


def test_nearest_tells_minus_the_squared_distance_for_distances():
    cache = Cache(Concentration.fixed(1.0), metric="euclidean")
    cache.write([[0.0, 0.0], [3.0, 4.0]])
    ids, similarity = cache.nearest([0.0, 2.0])
    assert ids.tolist() == [0]
    assert similarity.tolist() == [-4.0]


def test_an_empty_cache_has_no_nearest_slot():
    ids, similarity = Cache().nearest(np.eye(2))
    assert ids.tolist() == [-1, -1]
    assert (similarity == -np.inf).all()


def test_an_empty_cache_cannot_be_read():
    with pytest.raises(ValueError, match="write first"):
        Cache().read(APPLE)


def test_a_cache_without_values_cannot_be_read():
    cache = Cache()
    cache.write(STREAM)
    with pytest.raises(ValueError, match="no values were written"):
        cache.read(APPLE)


@pytest.mark.parametrize("rows", [[], np.empty((0, 3))])
def test_an_empty_batch_changes_nothing(cache, rows):
    before = state(cache)
    assert cache.write(rows).tolist() == []
    assert cache.read(np.empty((0, 3))).tolist() == []
    assert state(cache) == before


def test_a_repeat_with_a_new_value_is_rebound_only_by_last():
    for policy, want in (("first", RED), ("last", GREEN)):
        cache = Cache(merge=Merge(value=policy))
        cache.write([APPLE, APPLE], [RED, GREEN])
        assert cache.read(APPLE).tolist() == [want]


def test_counts_give_the_majority_and_the_whole_distribution():
    cache = Cache(merge=Merge(value="counts"))
    cache.write([APPLE, APPLE, APPLE, SKY], [40, -3, 40, 7])
    assert cache.classes.tolist() == [-3, 7, 40]
    assert cache.slots.values.tolist() == [[1, 0, 2], [0, 1, 0]]
    assert cache.read(APPLE).tolist() == [40]
    classes, mass = cache.distribution(APPLE)
    assert classes.tolist() == [-3, 7, 40]
    assert mass[0] == pytest.approx([1 / 3, 0, 2 / 3], abs=1e-6)


def test_labels_have_a_distribution_without_counts(cache):
    classes, mass = cache.distribution(APPLE, theta=0.5)
    assert classes.tolist() == [RED, BLUE, GREEN]
    assert mass.sum() == pytest.approx(1.0)
    assert mass.argmax() == 0


def test_vectors_have_no_distribution():
    cache = Cache()
    cache.write(STREAM, np.ones((6, 2)))
    with pytest.raises(ValueError, match="use read"):
        cache.distribution(APPLE)


def test_the_mean_of_values_is_their_mean():
    cache = Cache(merge=Merge(value="mean"))
    cache.write([APPLE, SKY, APPLE], [[1.0], [5.0], [2.0]])
    assert cache.slots.values.tolist() == [[1.5], [5.0]]


def test_a_plain_column_of_floats_is_vectors_of_one():
    cache = Cache(merge=Merge(value="mean"))
    cache.write([APPLE, APPLE], [1.0, 2.0])
    assert cache.read(APPLE).tolist() == [[1.5]]


def test_correlated_keys_collapse_and_centring_restores_them(rng):
    common = 3 * rng.standard_normal(32)
    things = rng.permutation(np.repeat(common + rng.standard_normal((64, 32)), 4, axis=0))
    bare, centred = Cache(Concentration.fixed(0.3)), Cache(Concentration.fixed(0.3), centre=True)
    for cache in (bare, centred):
        cache.write(things)
    assert len(bare) < 8
    assert 64 <= len(centred) <= 70


def test_a_constant_stream_is_one_slot_even_when_centred():
    cache = Cache(Concentration.fixed(0.3), centre=True)
    cache.write(np.tile([0.3, 0.4, 0.5], (500, 1)))
    assert len(cache) == 1


def test_centring_distances_is_refused():
    with pytest.raises(ValueError, match="changes no distance"):
        Cache(centre=True, metric="euclidean")


def test_surprise_heats_the_budget_and_repeats_cool_it(rng):
    cache = Cache(Concentration.surprise(base=4, gain=20))
    cache.write(rng.standard_normal((60, 32)))
    hot = cache.budget
    cache.write(np.tile(rng.standard_normal(32), (200, 1)))
    assert hot > 15
    assert cache.budget == pytest.approx(4, abs=0.1)
    assert len(cache) == 4


def test_bytes_are_what_is_allocated():
    cache = Cache(merge=Merge(value="last"))
    assert cache.nbytes == 0
    cache.write(np.eye(600, dtype=np.float32), np.ones((600, 3)))
    slot = 600 * 4 + 3 * 4 + 5 * 8
    assert 600 * slot <= cache.nbytes <= 1.25 * 600 * slot


@pytest.mark.parametrize("width", [2, 8, 64])
@pytest.mark.parametrize("noise", [0.0, 0.001])
def test_bytes_are_near_what_slots_need_from_the_first_on(rng, width, noise):
    things = rng.standard_normal((300, width))
    keys = things[rng.integers(0, 300, 2000)]
    cache = Cache(Concentration.fixed(1e-4))
    for part in np.array_split(keys + noise * rng.standard_normal(keys.shape), 100):
        cache.write(part)
        assert cache.nbytes <= 1.25 * len(cache) * (4 * width + 5 * 8)


def test_bytes_stay_near_what_slots_need_while_a_budget_cools(rng):
    cache = Cache(Concentration.surprise(0.1, base=8, gain=200))
    stream = np.concatenate([rng.standard_normal((500, 16)), np.ones((500, 16))])
    for part in np.array_split(stream, 50):
        cache.write(part)
        assert cache.nbytes <= 1.25 * len(cache) * (4 * 16 + 5 * 8)
    assert len(cache) == 8


def test_a_budget_gives_memory_back(rng):
    cache = Cache(Concentration(tau=0.1, base=10, gain=3000, rate=0.01))
    cache.write(rng.standard_normal((1500, 16)))
    full = cache.nbytes
    cache.write(np.tile(rng.standard_normal(16), (2000, 1)))
    assert len(cache) == 10
    assert cache.nbytes < full / 5


def test_repr_tells_policy_and_sizes(cache):
    assert repr(cache) == (
        "Cache(tau=0.5, 3 slots for 6 tokens, 180 bytes, cosine, first key, first value, "
        "blocked engine)"
    )
    assert "budget 8" in repr(Cache(Concentration.surprise()))
    assert "centred" in repr(Cache(centre=True))


def test_an_interrupted_write_is_never_read_from(cache, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("distinctkv.engines.write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.write(STREAM, COLOURS)
    reads = (lambda: cache.read(APPLE), lambda: cache.slots, lambda: cache.classes)
    for use in (*reads, lambda: cache.write(APPLE, RED)):
        with pytest.raises(RuntimeError, match="load the last snapshot"):
            use()


def test_a_write_that_another_thread_is_at_is_not_told_as_lost(cache, monkeypatch):
    told, write = [], engines.write

    def meet(*given):
        with ThreadPoolExecutor(1) as pool:
            told.append(str(pool.submit(cache.read, APPLE).exception()))
        return write(*given)

    monkeypatch.setattr("distinctkv.engines.write", meet)
    cache.write(STREAM, COLOURS)
    assert "running in another thread" in told[0]
    assert cache.read(APPLE) == RED


def test_a_copy_has_slots_of_its_own(cache, rng):
    before = state(cache)
    other = copy.copy(cache)
    other.write(rng.standard_normal((50, 3)), np.arange(50))
    assert state(cache) == before
    assert len(other) > len(cache)


def test_shards_of_one_stream_absorb_to_what_one_pass_gives(rng):
    things = rng.standard_normal((200, 64))
    keys = things[rng.integers(0, 200, 4000)] + 0.1 * rng.standard_normal((4000, 64))
    one, shards = Cache(), [Cache() for _ in range(4)]
    one.write(keys)
    for shard, part in zip(shards, np.array_split(keys, 4), strict=True):
        shard.write(part)
    first, *rest = shards
    for shard in rest:
        first.absorb(shard)
    for name in ("ids", "keys", "count", "first_seen", "last_seen"):
        assert np.array_equal(getattr(first.slots, name), getattr(one.slots, name))
    assert np.allclose(first.slots.usage, one.slots.usage)
    assert first.temperature == pytest.approx(one.temperature, abs=1e-3)
    assert first.seen == one.seen


@pytest.mark.parametrize("value", ["first", "last", "counts"])
def test_absorbed_labels_follow_the_policy(value):
    a, b = (Cache(merge=Merge(value=value)) for _ in range(2))
    a.write([APPLE, APPLE], [5, 6])
    b.write([SKY, APPLE], [8, 9])
    ids = a.absorb(b)
    assert ids.tolist() == [1, 0]
    want = {"first": [5, 8], "last": [9, 8], "counts": [[1, 1, 0, 1], [0, 0, 1, 0]]}
    assert a.slots.values.tolist() == want[value]


def test_absorbed_means_weigh_their_tokens():
    a, b = (Cache(merge=Merge("mean", "mean")) for _ in range(2))
    a.write([APPLE, APPLE, APPLE], [[1.0], [1.0], [1.0]])
    b.write([APPLE + 0.1 * SKY], [[5.0]])
    a.absorb(b)
    assert a.slots.values.tolist() == [[2.0]]
    tilted = (APPLE + 0.1 * SKY) / np.linalg.norm(APPLE + 0.1 * SKY)
    mean = (3 * APPLE + tilted) / 4
    assert np.allclose(a.slots.keys[0], mean / np.linalg.norm(mean), atol=1e-6)


def test_an_empty_cache_absorbs_and_is_absorbed(cache):
    empty = Cache(cache.concentration)
    assert cache.absorb(empty).tolist() == []
    assert empty.absorb(cache).tolist() == [0, 1, 2]
    assert state(empty) == state(cache)


def test_a_cache_can_absorb_itself(cache):
    assert cache.absorb(cache).tolist() == [0, 1, 2]
    assert cache.slots.count.tolist() == [4, 4, 4]


def test_centred_caches_absorb_their_means(rng):
    keys = 3 + rng.standard_normal((200, 8))
    one, a, b = (Cache(centre=True) for _ in range(3))
    one.write(keys)
    a.write(keys[:100])
    b.write(keys[100:])
    a.absorb(b)
    assert np.allclose(a._centre.total, one._centre.total)


@pytest.mark.parametrize(
    "other",
    [
        Cache(metric="euclidean"),
        Cache(merge=Merge(key="mean")),
        Cache(centre=True),
    ],
    ids=["metric", "merge", "centre"],
)
def test_a_cache_of_another_policy_is_not_absorbed(cache, other):
    with pytest.raises(ValueError, match="must share"):
        cache.absorb(other)


def test_a_cache_of_another_width_or_kind_is_not_absorbed(cache):
    wide, vectors = Cache(), Cache()
    wide.write(np.eye(4), [0, 1, 2, 3])
    vectors.write(np.eye(3), np.eye(3))
    before = state(cache)
    for other in (wide, vectors):
        with pytest.raises(ValueError, match=r"use one (memory|cache)"):
            cache.absorb(other)
    assert state(cache) == before


@pytest.mark.parametrize("key", ["mean", "ema"])
def test_a_mean_key_is_a_mean_however_long_the_stream(key):
    cache = Cache(Concentration.fixed(10.0), metric="euclidean", merge=Merge(key=key, pace=1e-4))
    cache.write(np.full((10_000, 1), 1000.0))
    cache.write(np.full((100_000, 1), 1000.1))
    part = 10 / 11 if key == "mean" else 1 - (1 - 1e-4) ** 100_000
    assert cache.slots.keys[0, 0] == pytest.approx(1000 + 0.1 * part, abs=1e-4)


def test_labels_that_no_slot_holds_are_forgotten(rng):
    cache = Cache(Concentration.fixed(0.1, budget=8), merge=Merge(value="counts"))
    sizes = []
    for start in range(0, 4000, 500):
        cache.write(rng.standard_normal((500, 16)), range(start, start + 500))
        sizes.append(cache.nbytes)
    assert len(cache.classes) == 8
    assert sizes[-1] <= 2 * sizes[1]
    assert set(cache.slots.values[:, -1]) <= {0, 1}


def test_the_classes_are_the_labels_held_however_the_stream_was_cut(tmp_path, rng):
    keys, labels = rng.standard_normal((300, 4)), rng.integers(0, 200, 300)
    for name, step in (("whole", 300), ("cut", 7), ("resumed", 1)):
        cache = Cache(Concentration.fixed(0.2, budget=3), merge=Merge(value="counts"))
        for start in range(0, 300, step):
            cache.write(keys[start : start + step], labels[start : start + step])
            if name == "resumed" and start == 100:
                cache.save(tmp_path / name)
                cache = Cache.load(tmp_path / name)
        assert cache.slots.values.any(axis=0).all()
        cache.save(tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in ("whole", "cut", "resumed")}) == 1


def test_counts_lie_in_the_file_as_the_classes_do_however_they_came(tmp_path, rng):
    keys, labels = rng.standard_normal((9, 4))[rng.integers(0, 9, 200)], rng.integers(0, 30, 200)
    for name, step in (("whole", 200), ("cut", 7)):
        cache = Cache(merge=Merge(value="counts"))
        for start in range(0, 200, step):
            cache.write(keys[start : start + step], labels[start : start + step])
        cache.save(tmp_path / name)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "cut").read_bytes()


def test_the_value_seen_last_stays_when_two_absorbed_slots_join_one():
    def at(degrees):
        return [np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]

    tau = 1 - np.cos(np.radians(10))
    a, b = (Cache(Concentration.fixed(tau), merge=Merge(value="last")) for _ in range(2))
    a.write([at(0)], [1])
    b.write([at(-8), at(8), at(-8)], [10, 20, 30])
    a.absorb(b)
    assert a.slots.values.tolist() == [30]


def test_absorbing_counts_rows_that_were_all_skipped():
    a, b = Cache(on_bad="skip"), Cache(on_bad="skip")
    b.write([[np.nan, 1.0]])
    a.write(np.eye(2))
    a.absorb(b)
    a.write([[np.nan, 1.0]])
    assert (a.seen, a.skipped) == (4, 2)


def test_an_absorbed_ema_key_goes_over_to_the_later_stream():
    a, b = (
        Cache(Concentration.fixed(90.0), merge=Merge(key="ema", pace=0.5), metric="euclidean")
        for _ in range(2)
    )
    a.write([[0.0], [0.0], [0.0]])
    b.write([[8.0], [8.0]])
    a.absorb(b)
    assert a.slots.keys.tolist() == [[6.0]]


def test_a_merge_under_a_budget_evicts_the_least_used():
    a, b = (Cache(Concentration.fixed(0.5, budget=2, decay=1.0)) for _ in range(2))
    a.write([SKY, APPLE, APPLE, APPLE])
    b.write([GRASS, GRASS])
    a.absorb(b)
    assert a.slots.keys.tolist() == [APPLE.tolist(), GRASS.tolist()]


def test_the_nearest_of_keys_that_moved_together_is_the_nearest(rng):
    cache = Cache(Concentration.fixed(0.5), merge=Merge(key="ema", pace=1.0))
    cache.write(rng.standard_normal((400, 3)))
    queries = unit(rng.standard_normal((200, 3))).astype(np.float32)
    want = [cache.slots.ids[distances(query, cache.slots.keys).argmin()] for query in queries]
    assert cache.nearest(queries)[0].tolist() == want


def test_a_long_centred_write_counts_every_token(rng):
    keys = 2 + rng.standard_normal((9000, 16))
    cache = Cache(centre=True)
    cache.write(keys)
    assert cache._centre.tokens == 9000
    assert np.allclose(cache._centre.total, unit(keys).sum(axis=0))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("budget", [1, np.inf])
def test_numbers_too_small_to_hold_stop_nothing_whatever_numpy_is_told(metric, budget):
    def run():
        cache = Cache(Concentration.fixed(0.3, budget, decay=0.5), metric=metric)
        cache.write([[1e-60, 1.0], [3.0, 1e-42], [3e300 if metric == "cosine" else 2.0, 1.0]])
        cache.write(np.tile([0.0, 1.0], (5000, 1)))
        cache.absorb(cache)
        other = Cache(Concentration.fixed(0.0), metric=metric)
        other.write([[1.0, 0.0], [0.0, 1.0]], [[1.0], [1e-60]])
        return state(cache), other.read([[0.0, 1.0]], 1e-4), other.nearest([[1e-200, 1.0]])

    with np.errstate(all="raise"):
        told = run()
    assert told == run()


def test_a_product_that_raises_a_flag_in_vain_stops_no_stream(monkeypatch):
    scores = ScoreBounds.scores

    def flagging(*given):
        np.divide(0.0, 0.0)  # some libraries do so in products of finite numbers
        return scores(*given)

    monkeypatch.setattr(ScoreBounds, "scores", flagging)
    cache = Cache(Concentration.fixed(0.5))
    assert cache.write(STREAM).tolist() == [0, 1, 2, 1, 0, 2]
    assert cache.nearest(APPLE)[0].tolist() == [1]


def test_a_broken_numba_hands_over_to_numpy_and_says_so(monkeypatch):
    def broken():
        raise ImportError("Numba needs NumPy 2.2 or less")

    engines._fastest.cache_clear()
    monkeypatch.setattr("distinctkv.engines.sequential.compiled", broken)
    monkeypatch.setattr("distinctkv.engines.find_spec", lambda name: name)
    with pytest.warns(UserWarning, match="sequential engine takes over"):
        cache = Cache(Concentration.fixed(0.5, budget=2))
    engines._fastest.cache_clear()
    assert cache.write(STREAM).tolist() == follow(cache, STREAM)[1]


def test_a_numba_that_fails_under_way_stops_no_stream(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")  # for the cache of what was compiled

    pytest.importorskip("numba")
    cache = Cache(Concentration.fixed(0.5, budget=2), engine="compiled")
    monkeypatch.setattr(sequential, "compiled", lambda: full)
    monkeypatch.setattr(sequential, "compiled_for", sequential.compiled_for.__wrapped__)
    with pytest.warns(UserWarning, match="No space left .* sequential engine"):
        ids = cache.write(STREAM)
    assert ids.tolist() == follow(cache, STREAM)[1]


def test_an_error_raised_by_a_signal_reaches_the_caller(monkeypatch):
    def late(*_):
        raise TimeoutError("an alarm went off")

    monkeypatch.setattr(sequential, "compiled_for", lambda _: late)
    pytest.importorskip("numba")
    cache = Cache(Concentration.fixed(0.5, budget=2), engine="compiled")
    with pytest.raises(TimeoutError, match="an alarm"):
        cache.write(STREAM)


def test_numba_is_of_use_where_what_it_compiled_cannot_be_kept(monkeypatch):
    def njit(function, cache=False):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(pytest.importorskip("numba"), "njit", njit)
    monkeypatch.setattr(sequential, "compiled", sequential.compiled.__wrapped__)
    monkeypatch.setattr(sequential, "compiled_for", sequential.compiled_for.__wrapped__)
    cache = Cache(Concentration.fixed(0.5, budget=2), engine="compiled")
    assert cache.write(STREAM).tolist() == follow(cache, STREAM)[1]


def test_the_ids_from_n_opened_on_are_new(cache):
    before = cache.n_opened
    ids = cache.write([APPLE, [-1.0, -1.0, 0.0], [-1.0, -1.0, 0.0]], [RED, BLUE, BLUE])
    assert np.unique(ids[ids >= before]).tolist() == [3]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("theta", [1e-310, 1e-3, 0.05, 2.0, 1e300])
def test_a_read_is_the_rule_read(rng, metric, theta):
    keys, values = rng.standard_normal((40, 6)), rng.standard_normal((40, 3))
    cache = Cache(Concentration.fixed(0.01), metric=metric, merge=Merge(value="mean"))
    cache.write(np.concatenate([keys, keys[:9]]), np.concatenate([values, values[:9]]))
    queries = rng.standard_normal((5, 6))
    rows = unit(queries) if metric == "cosine" else queries
    table = cache.slots
    if theta > 1e-300:
        for weight, answers in (
            (1.0, cache.read(queries, theta)),
            (table.count, cache.read_mass(queries, theta)),
        ):
            want = [read(row, table.keys, table.values, theta, weight) for row in rows]
            np.testing.assert_allclose(answers, want, atol=1e-4)
    else:
        nearest = cache.nearest(queries)[0]
        np.testing.assert_allclose(cache.read(queries, theta), table.values[nearest])


def test_a_euclidean_read_far_from_the_origin_is_the_read_near_it(rng):
    keys, values = 8.0 * rng.integers(0, 5, (60, 3)), rng.standard_normal((60, 2))
    near, far = (Cache(Concentration.fixed(1.0), metric="euclidean") for _ in range(2))
    near.write(keys, values)
    far.write(keys + 2**24, values)
    queries = keys[:9] + 8.0
    want = near.read(queries, theta=50.0)
    np.testing.assert_allclose(far.read(queries + 2**24, theta=50.0), want, atol=1e-5)


@pytest.mark.parametrize("far", [1e8, 1e10, 9e14])
def test_a_slot_far_away_does_not_change_what_is_read_of_the_others(rng, far):
    keys, values = rng.integers(0, 5, (30, 3)), rng.standard_normal((33, 2))
    keys = np.concatenate([keys, np.full((3, 3), far) + far * 1e-6 * np.eye(3)])
    cache = Cache(Concentration.fixed(0.1), metric="euclidean")
    cache.write(keys, values)
    queries = np.concatenate([keys[:9] + 0.4, keys[-3:]])
    rows, table = queries.astype(np.float32), cache.slots
    want = [read(row, table.keys, table.values, 0.05) for row in rows]
    np.testing.assert_allclose(cache.read(queries), want, atol=1e-9)


def test_the_sharpest_read_tells_slots_apart_that_differ_in_the_last_bit(rng):
    keys = unit(1 + 1e-7 * rng.standard_normal((50, 8)))
    cache = Cache(Concentration.fixed(0.0))
    cache.write(keys, np.arange(50))
    ids = cache.nearest(keys)[0]
    assert cache.read(keys, theta=1e-20).tolist() == cache.slots.values[ids].tolist()


def test_a_label_read_of_many_queries_is_that_of_each(rng):
    keys, labels = rng.standard_normal((300, 16)), rng.integers(0, 200, 300)
    cache = Cache(Concentration.fixed(0.05))
    cache.write(keys, labels)
    assert cache.read(np.tile(keys, (60, 1))).tolist() == np.tile(labels, 60).tolist()


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_novelty_is_that_of_the_rule(rng, metric):
    cache = Cache(Concentration.fixed(0.3), metric=metric)
    queries = rng.standard_normal((50, 4))
    assert cache.novelty(queries)[1].tolist() == [np.inf] * 50
    cache.write(rng.standard_normal((300, 4)))
    ids, found = cache.novelty(queries)
    rows = (unit(queries) if metric == "cosine" else queries).astype(np.float32)
    want = [novelty(row, cache.slots.keys, metric) for row in rows]
    assert [*zip(found.tolist(), cache.slots.ids.searchsorted(ids).tolist(), strict=True)] == want


@pytest.mark.parametrize("budget", [np.inf, 8])
def test_the_similarity_of_each_token_to_its_slot_is_told_though_the_slot_is_evicted(rng, budget):
    keys = rng.standard_normal((12, 6))[rng.integers(0, 12, 200)]
    keys += 0.2 * rng.standard_normal(keys.shape)
    keys[7] = np.nan
    cache = Cache(Concentration.fixed(0.3, budget), on_bad="skip")
    similarity, firsts, want = np.empty(200), {}, []
    ids = cache.write(keys, similarity_out=similarity)
    for key, slot in zip(unit(keys).astype(np.float32), ids.tolist(), strict=True):
        own = firsts.setdefault(slot, key)
        want.append(np.nan if slot < 0 else 1 - novelty(key, own[None])[0])
    assert np.array_equal(similarity, want, equal_nan=True)
    assert cache.ids.tolist() == cache.slots.ids.tolist()


@pytest.mark.parametrize(
    ("make", "word"),
    [(lambda: Cache(0.3), "fixed"), (lambda: Cache(merge="mean"), "Merge")],
)
def test_settings_of_another_type_name_the_way_out(make, word):
    with pytest.raises(TypeError, match=word):
        make()
