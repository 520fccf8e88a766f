"""What every memory must do. To join, a memory needs a line in MEMORIES and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.cache import Memory
from reproduction.baselines import (
    H2O,
    HAM,
    KNN,
    KVM,
    LFU,
    LRU,
    NEC,
    OVQ,
    TOVA,
    TTL,
    Attention,
    Based,
    DecayedSuperposition,
    Delta,
    Fourier,
    GatedDelta,
    GroupSamples,
    InfFormer,
    Kanerva,
    KeyDiff,
    KMeans,
    Recency,
    Redundancy,
    Ridge,
    Sinks,
    SnapKV,
    SnapKVOnce,
    SubGen,
    Superposition,
    Titans,
)
from reproduction.data import RecallTask

TOKENS = 60


@dataclass(frozen=True)
class Member:
    """A memory, the most slots it may hold, and whether one token is read back as it was.

    Without a budget, no memory holds more slots than tokens; a fixed state has all its rows from
    the first. A mechanism that takes a step towards a value, or shrinks it, is not ``exact``: it
    reads back a part of it. The first read of an ``offline`` memory fits it: it holds less after.
    """

    make: Callable[[], Memory]
    budget: int = TOKENS
    exact: bool = True
    offline: bool = False


MEMORIES = {
    "cache": Member(lambda: Cache(Concentration.fixed(tau=0.3))),
    "cache with a budget": Member(lambda: Cache(Concentration.fixed(tau=0.3, budget=5)), 5),
    "cache that adapts": Member(lambda: Cache(Concentration.surprise(base=4, gain=8)), 12),
    "superposition": Member(Superposition),
    "decayed superposition": Member(lambda: DecayedSuperposition(decay=0.9)),
    "ridge": Member(Ridge, exact=False),
    "ridge that forgets": Member(lambda: Ridge(penalty=0.01, decay=0.9), exact=False),
    "delta": Member(Delta, exact=False),
    "delta that overwrites": Member(lambda: Delta(rate=1.0)),
    "gated delta": Member(lambda: GatedDelta(rate=0.5, decay=0.9), exact=False),
    "based": Member(Based, budget=153),
    "based on projected keys": Member(lambda: Based(width=8), budget=45),
    "fourier": Member(Fourier, budget=132),
    "kanerva": Member(Kanerva, budget=64, exact=False),
    "kanerva sure of what it sees": Member(lambda: Kanerva(noise=0.01), budget=64, exact=False),
    "infformer": Member(lambda: InfFormer(n_waves=8, block=8), budget=15),
    "titans": Member(Titans, budget=128, exact=False),
    "titans that forgets": Member(lambda: Titans(decay=0.99), budget=128, exact=False),
    "attention": Member(Attention),
    "knn": Member(lambda: KNN(k=2)),
    "recency": Member(lambda: Recency(budget=5), 5),
    "h2o": Member(lambda: H2O(budget=5), 5),
    "h2o without a window": Member(lambda: H2O(budget=5, recent=0), 5),
    "h2o with nothing but a window": Member(lambda: H2O(budget=5, recent=5), 5),
    "sinks": Member(lambda: Sinks(budget=5, sinks=2), 5),
    "snapkv": Member(lambda: SnapKV(budget=5, window=2), 5),
    "snapkv with nothing but a window": Member(lambda: SnapKV(budget=5, window=5), 5),
    "snapkv once": Member(lambda: SnapKVOnce(budget=5, window=2)),
    "tova": Member(lambda: TOVA(budget=5), 5),
    "redundancy": Member(lambda: Redundancy(budget=5), 5),
    "redundancy of one": Member(lambda: Redundancy(budget=1), 1),
    "keydiff": Member(lambda: KeyDiff(budget=5), 5),
    "lru": Member(lambda: LRU(budget=5), 5),
    "lfu": Member(lambda: LFU(budget=5), 5),
    "lfu that never forgets": Member(lambda: LFU(budget=5, decay=1.0), 5),
    "ttl": Member(lambda: TTL(idle=5), 6),
    "kmeans": Member(lambda: KMeans(budget=5), offline=True),
    "kmeans at random": Member(lambda: KMeans(5, "random", tries=1), offline=True),
    "nec": Member(lambda: NEC(budget=5), 5),
    "nec with neighbours": Member(lambda: NEC(budget=5, k=3), 5),
    "kvm": Member(lambda: KVM(factor=2, chunk=4), 15 + 3),
    "kvm that never ends a chunk": Member(lambda: KVM(chunk=61)),
    "ovq": Member(lambda: OVQ(limit=8, chunk=4), 8 + 3),
    "group samples": Member(GroupSamples),
    "two samples of each group": Member(lambda: GroupSamples(samples=2)),
    "subgen": Member(lambda: SubGen(values=9), budget=9),
    "ham": Member(HAM, budget=16 + TOKENS),
}


@pytest.fixture(params=MEMORIES)
def member(request):
    return MEMORIES[request.param]


@pytest.fixture
def episode(rng):
    task = RecallTask(n_items=12, repeats=5, n_classes=4, width=16, noise=0.2)
    return task.draw(rng, n_queries=7)


def written(member, episode, chunk=60):
    memory = member.make()
    ids = [
        memory.write(episode.keys[start : start + chunk], episode.values[start : start + chunk])
        for start in range(0, len(episode.keys), chunk)
    ]
    return memory, np.concatenate(ids)


def test_a_token_gets_an_id_and_a_query_a_value(member, episode):
    memory, ids = written(member, episode)
    assert ids.shape == (60,)
    assert ids.dtype == np.int64
    assert ids.min() >= -1
    assert memory.read(episode.queries).shape == (7, 4)


def test_a_new_memory_is_empty(member):
    assert len(member.make()) == 0


def test_an_empty_stream_changes_nothing(member):
    memory = member.make()
    assert memory.write(np.empty((0, 16)), np.empty((0, 4))).shape == (0,)
    assert (len(memory), memory.nbytes) == (0, member.make().nbytes)


def test_an_empty_memory_cannot_be_read(member):
    with pytest.raises(ValueError, match="nothing was written"):
        member.make().read(np.ones((1, 16)))


def test_one_token_is_remembered(member, episode):
    memory = member.make()
    memory.write(episode.keys[:1], episode.values[:1])
    assert len(memory) >= 1
    read, value = memory.read(episode.keys[:1]), episode.values[:1]
    if member.exact:
        np.testing.assert_allclose(read, value, atol=1e-5)
    else:
        assert read.max() > 0
        np.testing.assert_allclose(read, read.max() * value, atol=1e-5)


def test_no_queries_get_no_values(member, episode):
    memory, _ = written(member, episode)
    assert memory.read(np.empty((0, 16))).shape == (0, 4)


def test_the_budget_is_kept_after_every_chunk(member, episode):
    memory = member.make()
    for start in range(0, 60, 7):
        memory.write(episode.keys[start : start + 7], episode.values[start : start + 7])
        assert 1 <= len(memory) <= member.budget


@pytest.mark.parametrize("chunk", [1, 7, 59])
def test_chunks_make_no_difference(member, episode, chunk):
    whole, ids = written(member, episode)
    parts, part_ids = written(member, episode, chunk)
    np.testing.assert_array_equal(part_ids, ids)
    assert len(parts) == len(whole)
    np.testing.assert_allclose(parts.read(episode.queries), whole.read(episode.queries), atol=1e-5)


def test_the_same_stream_gives_the_same_memory(member, episode):
    one, ids = written(member, episode)
    other, other_ids = written(member, episode)
    np.testing.assert_array_equal(ids, other_ids)
    np.testing.assert_array_equal(one.read(episode.queries), other.read(episode.queries))


def test_a_read_changes_nothing(member, episode):
    memory, _ = written(member, episode)
    if member.offline:
        memory.read(episode.queries)
    before = len(memory), memory.nbytes
    first = memory.read(episode.queries)
    np.testing.assert_array_equal(memory.read(episode.queries), first)
    assert (len(memory), memory.nbytes) == before


def test_queries_do_not_know_of_each_other(member, episode):
    memory, _ = written(member, episode)
    alone = [memory.read(query[None])[0] for query in episode.queries]
    np.testing.assert_allclose(alone, memory.read(episode.queries), atol=1e-5)


def test_the_length_of_a_key_does_not_matter(member, episode):
    memory, ids = written(member, episode)
    longer = member.make()
    np.testing.assert_array_equal(longer.write(episode.keys * 8, episode.values), ids)
    np.testing.assert_array_equal(longer.read(episode.queries * 4), memory.read(episode.queries))


def test_the_callers_arrays_stay_his(member, episode):
    memory = member.make()
    keys, values = episode.keys.copy(), episode.values.copy()
    memory.write(keys, values)
    np.testing.assert_array_equal(keys, episode.keys)
    before = memory.read(episode.queries)
    keys[:], values[:] = 1.0, 9.0
    np.testing.assert_array_equal(memory.read(episode.queries), before)


def arrays_of(thing, seen):
    """Every array that ``thing`` keeps alive, as its owner: a view counts all that it views."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        while isinstance(thing.base, np.ndarray):
            thing = thing.base
        seen.add(id(thing))
        yield id(thing), thing.nbytes
    elif isinstance(thing, dict | list | tuple):
        for part in thing.values() if isinstance(thing, dict) else thing:
            yield from arrays_of(part, seen)
    elif type(thing).__module__.startswith(("distinctkv", "reproduction")):
        names = [*getattr(type(thing), "__slots__", ()), *getattr(thing, "__dict__", {})]
        for name in names:
            yield from arrays_of(getattr(thing, name, None), seen)


def test_nbytes_is_what_is_held(member, episode):
    memory, _ = written(member, episode, chunk=7)
    assert memory.nbytes == sum(dict(arrays_of(memory, set())).values())


NAN = np.full((2, 16), np.nan)
INF = np.full((2, 16), np.inf)
KEYS, VALUES = np.ones((2, 16)), np.ones((2, 4))
BAD_WRITES = {
    "nan key": (NAN, VALUES),
    "infinite key": (INF, VALUES),
    "zero key": (np.zeros((2, 16)), VALUES),
    "narrow key": (KEYS[:, :15], VALUES),
    "cube of keys": (KEYS[None], VALUES),
    "nan value": (KEYS, NAN[:, :4]),
    "value beyond float32": (KEYS, VALUES * 1e300),
    "wide value": (KEYS, np.ones((2, 5))),
    "one value too many": (KEYS, np.ones((3, 4))),
    "one good row before a bad one": (np.concatenate([KEYS, NAN]), np.ones((4, 4))),
    "words": ([["a"] * 16] * 2, VALUES),
    "ragged": ([[1.0], [1.0, 2.0]], VALUES),
    "complex": (KEYS + 1j, VALUES),
}


@pytest.mark.parametrize("bad", BAD_WRITES)
def test_bad_input_is_refused_and_leaves_no_trace(member, episode, bad):
    memory, _ = written(member, episode)
    untouched, _ = written(member, episode)
    with pytest.raises((ValueError, TypeError)):
        memory.write(*BAD_WRITES[bad])
    assert (len(memory), memory.nbytes) == (len(untouched), untouched.nbytes)
    after, expected = (m.write(episode.keys, episode.values) for m in (memory, untouched))
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(memory.read(episode.queries), untouched.read(episode.queries))


def test_a_first_write_that_is_refused_leaves_no_trace(member, episode):
    memory = member.make()
    with pytest.raises(ValueError, match=r"\bnan\b"):
        memory.write(NAN[:, :9], VALUES)
    memory.write(episode.keys, episode.values)
    assert memory.read(episode.queries).shape == (7, 4)


@pytest.mark.parametrize("queries", [NAN, INF, np.zeros((1, 16)), np.ones((1, 15)), [["a"] * 16]])
def test_bad_queries_are_refused(member, episode, queries):
    memory, _ = written(member, episode)
    with pytest.raises((ValueError, TypeError)):
        memory.read(queries)
