"""Screens, and records one by one: whatever spares the work, decisions are those of the rule."""

from math import inf

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.dedup import Deduplicator, NGrams, compiled, inline, records


@pytest.fixture(params=["numpy", "plain", "compiled"])
def way(request, monkeypatch):
    """How single records are decided: by NumPy, or by what numba compiles, compiled or not."""
    if request.param == "plain":
        made = compiled.Compiled(compiled.find, compiled.count)
        for module in (inline, records):
            monkeypatch.setattr(module, "compiled", lambda: made)
    elif request.param == "compiled":
        pytest.importorskip("numba")
    patience = -1 if request.param == "numpy" else 2
    for module in (inline, records):
        monkeypatch.setattr(module, "PATIENCE", patience)
    return request.param


def stream(rng, n_rows, n_things=600, noise=0.1):
    """Rows near things that lie near a plane, as texts do; some are exact repeats."""
    things = rng.standard_normal((n_things, 12)) @ rng.standard_normal((12, 48))
    rows = things[rng.integers(0, n_things, n_rows)]
    rows += noise * rng.standard_normal(rows.shape) * (rng.random((n_rows, 1)) < 0.8)
    return rows.astype(np.float32)


def told(verdicts):
    return [(one.kept, one.number, one.of, one.similarity) for one in verdicts]


def dumped(seen):
    tensors, state = seen._shelf.cache._dump()
    return {name: array.tolist() for name, array in tensors.items()}, state


def test_a_screened_batch_decides_as_the_cache_does(rng):
    rows = stream(rng, 6000)
    cache, seen = Cache(Concentration.similar(0.97, decay=1.0)), Deduplicator(0.97)
    ids = cache.write(rows)
    verdicts = [one for part in np.array_split(rows, 3) for one in seen.add_many(part)]
    assert seen._shelf._screened.screen.worthwhile
    firsts = cache.slots.first_seen
    assert [one.number if one.kept else one.of for one in verdicts] == firsts[ids].tolist()
    assert dumped(seen)[0]["keys"] == cache.slots.keys.tolist()


def test_a_screen_that_lets_all_pass_is_not_used(rng):
    rows = rng.standard_normal((1500, 40)) + 1
    seen, cache = Deduplicator(0.75), Cache(Concentration.similar(0.75, decay=1.0))
    ids = [slot for part in np.array_split(rows, 5) for slot in cache.write(part)]
    verdicts = [one for part in np.array_split(rows, 5) for one in seen.add_many(part)]
    assert len(seen) > 256
    assert not seen._shelf._screened.screen.worthwhile
    firsts = cache.slots.first_seen
    assert [one.number if one.kept else one.of for one in verdicts] == firsts[ids].tolist()


@pytest.mark.parametrize("budget", [inf, 300, 7])
def test_single_records_are_decided_and_written_as_a_batch_is(rng, way, budget):
    n_rows = 700 if way == "plain" else 2500
    rows = stream(rng, n_rows, n_things=n_rows // 2)
    batch, single = (Deduplicator(0.97, budget=budget) for _ in range(2))
    verdicts = [single.add(row) for row in rows[: n_rows // 2]]
    verdicts += single.add_many(rows[n_rows // 2 : -100])
    verdicts += [single.add(row) for row in rows[-100:]]
    assert told(verdicts) == told(batch.add_many(rows))
    assert dumped(single) == dumped(batch)


@pytest.mark.parametrize("scale", [1e-120, 1e120, 1e-40])
def test_single_rows_of_any_length_are_compared(rng, way, scale):
    rows = stream(rng, 200, n_things=40).astype(np.float64) * scale
    rows[7], rows[9] = 0, np.nan
    batch, single = (Deduplicator(0.97, on_bad="skip") for _ in range(2))
    assert told(map(single.add, rows)) == told(batch.add_many(rows))


def test_a_text_alone_is_encoded_as_among_others(way):
    texts = ["", "a", "the door is open", "ärger 🚪", "x" * 500, "\ud800", "aXbXaX"] * 2
    reader = records.Reader(NGrams(64, 3), None)
    rows = [reader.row(text, 64) for text in texts]
    assert np.array_equal(rows, NGrams(64, 3)(texts))


def test_a_numba_that_does_not_work_is_told_and_done_without(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no locator available")

    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba, "njit", broken)
    with pytest.warns(UserWarning, match="no locator available.*NumPy takes over"):
        assert compiled.compiled.__wrapped__() is None
    monkeypatch.setattr(compiled, "find_spec", lambda _: None)
    assert compiled.compiled.__wrapped__() is None


class Kept:
    """What numba gives when it is to keep what it compiles, and finds the disk full."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *_):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("rest", ["works", "fails", "is wrong"])
def test_a_numba_that_fails_at_its_first_call_stops_nothing(monkeypatch, rest):
    def njit(function, cache):
        if cache:
            return Kept(function)
        wrong = {"fails": lambda *_: 1 / 0, "is wrong": lambda *_: (7, 0.0)}
        return wrong.get(rest, function)

    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba, "njit", njit)
    if rest == "works":
        made = compiled.compiled.__wrapped__()
        assert made.find.__code__ is compiled.find.__code__
        return
    with pytest.warns(UserWarning, match="NumPy takes over"):
        assert compiled.compiled.__wrapped__() is None
