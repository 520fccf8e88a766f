import inspect

import numpy as np
import pytest

from reproduction import baselines as peers
from reproduction.baselines import (
    H2O,
    LFU,
    LRU,
    TOVA,
    TTL,
    Based,
    DecayedSuperposition,
    Fourier,
    Kanerva,
    KeyDiff,
    Redundancy,
    Ridge,
    SnapKV,
    Titans,
)
from reproduction.baselines.base import similarity, unit_rows

BUDGETED = [
    peers.Recency, peers.Sinks, peers.H2O, peers.SnapKV, peers.SnapKVOnce, peers.TOVA,
    peers.Redundancy, peers.KeyDiff,
]  # fmt: skip


CLASSES = [getattr(peers, name) for name in peers.__all__]


def made(make):
    """A baseline with the settings it cannot do without."""
    signature = inspect.signature(make).parameters.values()
    needed = {one.name: 8 for one in signature if one.default is one.empty}
    return make(**needed)


# A call, and the setting that it must name.
ERRORS = [
    (lambda: peers.Attention(0.0), "theta"),
    (lambda: peers.Attention(np.inf), "theta"),
    (lambda: peers.Attention(np.nan), "theta"),
    (lambda: peers.KNN(k=0), "k must"),
    (lambda: peers.Hopfield(steps=0), "steps"),
    (lambda: peers.Recency(budget=0), "budget"),
    (lambda: peers.Sinks(4, sinks=4), "sinks"),
    (lambda: peers.Sinks(8, sinks=-1), "sinks"),
    (lambda: peers.H2O(4, recent=5), "recent"),
    (lambda: peers.H2O(4, score_theta=0.0), "score_theta"),
    (lambda: peers.SnapKV(8, window=0), "window"),
    (lambda: peers.SnapKV(8, window=9), "window"),
    (lambda: peers.SnapKVOnce(8, window=9), "window"),
    (lambda: peers.TOVA(0), "budget"),
    (lambda: peers.LRU(0), "budget"),
    (lambda: peers.LFU(4, tau=-1), "tau"),
    (lambda: peers.TTL(idle=0), "idle"),
    (lambda: peers.TTL(tau=-0.1), "tau"),
    (lambda: peers.TTL(tau=2.5), "tau"),
    (lambda: peers.SubGen(delta=0.0), "delta"),
    (lambda: peers.SubGen(samples=0), "samples"),
    (lambda: peers.HAM(error=0.0), "error"),
    (lambda: peers.HAM(rate=2.0), "rate"),
    (lambda: peers.HAM(near=1.5), "near"),
    (lambda: peers.NEC(4, k=0), "k must"),
    (lambda: peers.KVM(factor=0.0), "factor"),
    (lambda: peers.OVQ(limit=0), "limit"),
    (lambda: peers.OVQ(chunk=0), "chunk"),
    (lambda: peers.KMeans(2, tries=0), "tries"),
    (lambda: peers.KMeans(2, "first"), "start"),
    (lambda: peers.DecayedSuperposition(decay=0.0), "decay"),
    (lambda: peers.GatedDelta(rate=1.5), "rate"),
    (lambda: peers.Ridge(penalty=0.0), "penalty"),
    (lambda: peers.Ridge(decay=1.1), "decay"),
    (lambda: peers.Based(width=0), "width"),
    (lambda: peers.Fourier(n_features=7), "n_features"),
    (lambda: peers.Fourier(scale=0.0), "scale"),
    (lambda: peers.Kanerva(n_rows=0), "n_rows"),
    (lambda: peers.Kanerva(noise=0.0), "noise"),
    (lambda: peers.InfFormer(n_waves=0), "n_waves"),
    (lambda: peers.InfFormer(contraction=1.0), "contraction"),
    (lambda: peers.Titans(hidden=0), "hidden"),
    (lambda: peers.Titans(momentum=1.0), "momentum"),
    (lambda: peers.Reformer(buckets=3), "buckets"),
    (lambda: peers.Reformer(rounds=0), "rounds"),
    (lambda: peers.Routing(groups=0), "groups"),
    (lambda: peers.Landmark(block=0), "block"),
    (lambda: peers.Memorizing(4, k=0), "k must"),
    (lambda: peers.EMLLM(gamma=np.inf), "gamma"),
    (lambda: peers.EMLLM(window=0), "window"),
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
    memory, full = make(budget), peers.Attention()
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


@pytest.mark.parametrize("make", [peers.Superposition, peers.KVM, peers.Ridge, peers.Based])
def test_a_sum_beyond_float32_is_refused_at_the_read(make):
    memory = make()
    memory.write(np.eye(3)[[0, 1, 2] * 24], np.full((72, 2), 3e38))
    with pytest.raises(ValueError, match="beyond float32"):
        memory.read(np.eye(3))


@pytest.mark.parametrize("make", [peers.Attention, peers.TTL, peers.SubGen])
def test_a_theta_that_divides_beyond_floats_is_named_at_the_read(make):
    memory = make(theta=1e-320)
    memory.write(np.eye(3), np.eye(3))
    with pytest.raises(ValueError, match="a theta this near 0"):
        memory.read(np.eye(3))


def test_a_start_that_fails_can_be_tried_again(monkeypatch):
    memory = peers.Fourier()
    with monkeypatch.context() as broken:
        broken.setattr(memory, "scale", "wide")
        with pytest.raises(TypeError):
            memory.write(np.eye(3), np.eye(3))
    memory.write(np.eye(3), np.eye(3))
    assert memory.read(np.eye(3)).shape == (3, 3)


STATES = [Based, DecayedSuperposition, Fourier, Kanerva, Ridge, Titans]


D, C = 8, 4


SIZES = {
    Based: 2 * (D + 1) * (D + 2) * (C + 1),
    DecayedSuperposition: 4 * D * C,
    Fourier: 4 * 66 * C + 2 * 66 * D,
    Kanerva: 4 * 64 * (64 + C + D),
    Ridge: 4 * D * (D + C),
    Titans: 8 * 64 * (D + C),
}


@pytest.mark.parametrize("make", STATES)
def test_a_longer_stream_costs_nothing_more(rng, make):
    state = make()
    state.write(rng.standard_normal((10, D)), np.ones((10, C)))
    before = len(state), state.nbytes
    state.write(rng.standard_normal((300, D)), np.ones((300, C)))
    assert (len(state), state.nbytes) == before


@pytest.mark.parametrize("make", STATES)
def test_the_size_is_what_the_card_says(make):
    state = make()
    state.write(np.eye(D), np.ones((D, C)))
    assert state.nbytes == SIZES[make]


@pytest.mark.parametrize("make", STATES)
def test_no_token_has_a_slot_of_its_own(make):
    assert make().write(np.eye(3), np.eye(3)).tolist() == [-1, -1, -1]


PEERS = {
    "h2o": lambda: H2O(9, recent=2),
    "snapkv": lambda: SnapKV(9, window=4),
    "tova": lambda: TOVA(9),
    "redundancy": lambda: Redundancy(9),
    "keydiff": lambda: KeyDiff(9),
    "lru": lambda: LRU(9),
    "lfu": lambda: LFU(9),
    "ttl": lambda: TTL(9),
}


@pytest.mark.parametrize("make", PEERS.values(), ids=PEERS)
def test_twins_are_the_same_to_it_wherever_a_chunk_ends(make, rng):
    # Identical keys tie, and a tie must not be settled by the last bit of a sum.
    items = rng.integers(20, size=400)
    keys, values = rng.standard_normal((20, 13))[items], np.arange(400.0)[:, None]
    cuts = np.sort(rng.integers(400, size=30))
    whole, parts = make(), make()
    ids = whole.write(keys, values)
    pieces = zip(np.split(keys, cuts), np.split(values, cuts), strict=True)
    np.testing.assert_array_equal(np.concatenate([parts.write(*p) for p in pieces]), ids)
    np.testing.assert_array_equal(parts.read(keys[:20]), whole.read(keys[:20]))


def test_similarities_do_not_depend_on_the_order_of_addition(rng):
    keys = unit_rows("keys", rng.standard_normal((50, 40)), None)
    shuffled = keys[:, rng.permutation(40)]
    np.testing.assert_array_equal(similarity(keys, keys), similarity(shuffled, shuffled))
