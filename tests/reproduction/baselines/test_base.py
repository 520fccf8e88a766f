import inspect
import re

import numpy as np
import pytest

from reproduction import baselines
from reproduction.baselines.base import similarity, unit_rows

BUDGETED = [
    getattr(baselines, name)
    for name in ["Recency", "Sinks", "H2O", "SnapKV", "SnapKVOnce", "TOVA", "Redundancy", "KeyDiff"]
]


CLASSES = [getattr(baselines, name) for name in baselines.__all__]


def made(make):
    """A baseline with the settings it cannot do without."""
    signature = inspect.signature(make).parameters.values()
    needed = {one.name: 8 for one in signature if one.default is one.empty}
    return make(**needed)


# A call, and the setting that it must name.
ERRORS = [
    (lambda: baselines.Attention(0.0), "theta"),
    (lambda: baselines.Attention(np.inf), "theta"),
    (lambda: baselines.Attention(np.nan), "theta"),
    (lambda: baselines.KNN(k=0), "k must"),
    (lambda: baselines.Recency(budget=0), "budget"),
    (lambda: baselines.Sinks(4, sinks=4), "sinks"),
    (lambda: baselines.Sinks(8, sinks=-1), "sinks"),
    (lambda: baselines.H2O(4, recent=5), "recent"),
    (lambda: baselines.H2O(4, score_theta=0.0), "score_theta"),
    (lambda: baselines.SnapKV(8, window=0), "window"),
    (lambda: baselines.SnapKV(8, window=9), "window"),
    (lambda: baselines.SnapKVOnce(8, window=9), "window"),
    (lambda: baselines.TOVA(0), "budget"),
    (lambda: baselines.LRU(0), "budget"),
    (lambda: baselines.LFU(4, tau=-1), "tau"),
    (lambda: baselines.TTL(idle=0), "idle"),
    (lambda: baselines.TTL(tau=-0.1), "tau"),
    (lambda: baselines.TTL(tau=2.5), "tau"),
    (lambda: baselines.GroupSamples(delta=0.0), "delta"),
    (lambda: baselines.GroupSamples(samples=0), "samples"),
    (lambda: baselines.SubGen(values=0), "values"),
    (lambda: baselines.HAM(error=0.0), "error"),
    (lambda: baselines.HAM(rate=2.0), "rate"),
    (lambda: baselines.HAM(near=1.5), "near"),
    (lambda: baselines.NEC(4, k=0), "k must"),
    (lambda: baselines.KVM(factor=0.0), "factor"),
    (lambda: baselines.OVQ(limit=0), "limit"),
    (lambda: baselines.OVQ(chunk=0), "chunk"),
    (lambda: baselines.KMeans(2, tries=0), "tries"),
    (lambda: baselines.KMeans(2, "first"), "start"),
    (lambda: baselines.DecayedSuperposition(decay=0.0), "decay"),
    (lambda: baselines.GatedDelta(rate=1.5), "rate"),
    (lambda: baselines.Ridge(penalty=0.0), "penalty"),
    (lambda: baselines.Ridge(decay=1.1), "decay"),
    (lambda: baselines.Based(width=0), "width"),
    (lambda: baselines.Fourier(n_features=7), "n_features"),
    (lambda: baselines.Fourier(scale=0.0), "scale"),
    (lambda: baselines.Kanerva(n_rows=0), "n_rows"),
    (lambda: baselines.Kanerva(noise=0.0), "noise"),
    (lambda: baselines.InfFormer(n_waves=0), "n_waves"),
    (lambda: baselines.InfFormer(contraction=1.0), "contraction"),
    (lambda: baselines.Titans(hidden=0), "hidden"),
    (lambda: baselines.Titans(momentum=1.0), "momentum"),
]


@pytest.mark.parametrize(("call", "name"), ERRORS)
def test_a_setting_out_of_range_is_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()


@pytest.mark.parametrize("make", BUDGETED)
def test_a_budget_of_one_needs_no_other_setting(make, rng):
    keys, values = rng.normal(size=(9, 4)), rng.normal(size=(9, 2))
    memory = make(1)
    memory.write(keys, values)
    assert memory.read(keys).shape == (9, 2)


@pytest.mark.parametrize("make", BUDGETED)
@pytest.mark.parametrize("budget", [10**9, 2**52, 2**63, np.int64(10**9)])
def test_a_budget_without_end_is_attention(make, budget, rng):
    keys, values = rng.normal(size=(70, 4)), rng.normal(size=(70, 2))
    memory, full = make(budget), baselines.Attention()
    for part in (slice(0, 33), slice(33, 70)):
        memory.write(keys[part], values[part])
        full.write(keys[part], values[part])
    np.testing.assert_allclose(memory.read(keys), full.read(keys), atol=1e-6)


@pytest.mark.parametrize("make", CLASSES)
def test_an_empty_list_is_an_empty_stream(make, rng):
    memory = made(make)
    memory.write(rng.normal(size=(5, 4)), np.eye(5)[:, :3])
    assert memory.write([], []).shape == (0,)
    assert memory.read([]).shape == (0, 3)


@pytest.mark.parametrize("make", CLASSES)
def test_one_token_may_come_without_a_row(make, rng):
    key, value = rng.normal(size=4), np.array([0.0, 1.0])
    plain, rows = made(make), made(make)
    np.testing.assert_array_equal(plain.write(key, value), rows.write(key[None], value[None]))
    np.testing.assert_array_equal(plain.read(key), rows.read(key[None]))


@pytest.mark.parametrize(
    "make", [baselines.Superposition, baselines.KVM, baselines.Ridge, baselines.Based]
)
def test_a_sum_beyond_float32_is_refused_at_the_read(make):
    memory = make()
    memory.write(np.eye(3)[[0, 1, 2] * 24], np.full((72, 2), 3e38))
    with pytest.raises(ValueError, match="overflow"):
        memory.read(np.eye(3))


@pytest.mark.parametrize("make", [baselines.Attention, baselines.TTL, baselines.GroupSamples])
def test_a_theta_that_divides_beyond_floats_is_named_at_the_read(make):
    memory = make(theta=1e-320)
    memory.write(np.eye(3), np.eye(3))
    with pytest.raises(ValueError, match="theta"):
        memory.read(np.eye(3))


def test_a_start_that_fails_can_be_tried_again(monkeypatch):
    memory = baselines.Fourier()
    with monkeypatch.context() as broken:
        broken.setattr(memory, "scale", "wide")
        with pytest.raises(TypeError):
            memory.write(np.eye(3), np.eye(3))
    memory.write(np.eye(3), np.eye(3))
    assert memory.read(np.eye(3)).shape == (3, 3)


L, D, C = 90, 8, 3

# What the letters and settings of a formula are worth in the memory beside it.
FORMULAS = {
    "Attention": (lambda: baselines.Attention(), {}),
    "KNN": (lambda: baselines.KNN(), {}),
    "Superposition": (lambda: baselines.Superposition(), {}),
    "Recency": (lambda: baselines.Recency(7), {"B": 7}),
    "H2O": (lambda: baselines.H2O(7), {"B": 7}),
    "Sinks": (lambda: baselines.Sinks(7), {"B": 7}),
    "SnapKV": (lambda: baselines.SnapKV(7, window=5), {"B": 7, "window": 5}),
    "SnapKVOnce": (lambda: baselines.SnapKVOnce(7, window=5), {}),
    "TOVA": (lambda: baselines.TOVA(7), {"B": 7}),
    "Redundancy": (lambda: baselines.Redundancy(7), {"B": 7}),
    "KeyDiff": (lambda: baselines.KeyDiff(7), {"B": 7}),
    "TTL": (lambda: baselines.TTL(idle=5, tau=1e-6), {"S": 6}),
    "KMeans": (lambda: baselines.KMeans(7), {"S": L}),
    "NEC": (lambda: baselines.NEC(7), {"S": 7}),
    "KVM": (lambda: baselines.KVM(factor=4), {"S": 35, "chunk": 16}),
    "OVQ": (lambda: baselines.OVQ(limit=10), {"S": 8, "chunk": 16}),
    "GroupSamples": (lambda: baselines.GroupSamples(1e-3, samples=2), {"G": L, "samples": 2}),
    "SubGen": (lambda: baselines.SubGen(9, 1e-3, 2), {"G": L, "samples": 2, "values": 9}),
    "HAM": (lambda: baselines.HAM(error=1e-6), {"n": L}),
    "DecayedSuperposition": (lambda: baselines.DecayedSuperposition(), {}),
    "Fourier": (lambda: baselines.Fourier(), {"features": 66}),
    "Kanerva": (lambda: baselines.Kanerva(), {"M": 64}),
    "Ridge": (lambda: baselines.Ridge(), {}),
    "Titans": (lambda: baselines.Titans(), {"H": 128}),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_gives_the_bytes(name, rng):
    make, letters = FORMULAS[name]
    memory = make()
    memory.write(rng.standard_normal((L, D)), np.ones((L, C)))
    product = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", getattr(baselines, name).card.size)
    assert memory.nbytes == eval(product, {"L": L, "D": D, "C": C, **letters})


@pytest.mark.parametrize(
    "name", ["Based", "Fourier", "Kanerva", "Ridge", "Superposition", "Titans"]
)
def test_a_fixed_state_does_not_grow_and_gives_no_ids(name, rng):
    state = getattr(baselines, name)()
    assert (state.write(rng.standard_normal((10, D)), np.ones((10, C))) == -1).all()
    before = len(state), state.nbytes
    state.write(rng.standard_normal((300, D)), np.ones((300, C)))
    assert (len(state), state.nbytes) == before


EVICTING = {
    "h2o": lambda: baselines.H2O(9, recent=2),
    "snapkv": lambda: baselines.SnapKV(9, window=4),
    "tova": lambda: baselines.TOVA(9),
    "redundancy": lambda: baselines.Redundancy(9),
    "keydiff": lambda: baselines.KeyDiff(9),
    "lru": lambda: baselines.LRU(9),
    "lfu": lambda: baselines.LFU(9),
    "ttl": lambda: baselines.TTL(9),
}


@pytest.mark.parametrize("make", EVICTING.values(), ids=EVICTING)
def test_twins_are_the_same_to_it_wherever_a_chunk_ends(make, rng):
    # Identical keys tie, and a tie must not be settled by the last bit of a sum.
    items = rng.integers(20, size=400)
    keys, values = rng.standard_normal((20, 13))[items], np.arange(400.0)[:, None]
    cuts = np.sort(rng.integers(400, size=30))
    whole, parts = make(), make()
    ids = whole.write(keys, values)
    pieces = zip(np.split(keys, cuts), np.split(values, cuts), strict=True)
    np.testing.assert_array_equal(np.concatenate([parts.write(*p) for p in pieces]), ids)
    # Not exact: the cache of LRU and LFU adds up its slots in an order that depends on chunks.
    np.testing.assert_allclose(parts.read(keys[:20]), whole.read(keys[:20]), rtol=1e-6)


def test_similarities_do_not_depend_on_the_order_of_addition(rng):
    keys = unit_rows("keys", rng.standard_normal((50, 40)), None)
    shuffled = keys[:, rng.permutation(40)]
    np.testing.assert_array_equal(similarity(keys, keys), similarity(shuffled, shuffled))
