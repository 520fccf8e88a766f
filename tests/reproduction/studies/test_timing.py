import numpy as np
import pytest

from reproduction.baselines import Attention
from reproduction.data import RecallTask
from reproduction.studies import timing

SMALL = RecallTask(n_items=6)
ORDER = timing.Order([SMALL], [2, 4], batch=3, tau=0.3, theta=0.05, rounds=1)


def test_the_bare_read_is_attention(rng):
    episode = SMALL.draw(rng, n_queries=5)
    peer = Attention()
    peer.write(episode.keys, episode.values)
    arrays = (episode.queries, episode.keys, episode.values, np.zeros((5, len(episode.keys))))
    queries, keys, values, room = (array.astype(np.float32) for array in arrays)
    found = timing.attend(queries, keys, values, 0.05, room)
    np.testing.assert_allclose(found, peer.read(episode.queries), atol=1e-5)


def test_a_lap_is_measured_for_each_length(seed):
    laps = timing.here(ORDER, seed)
    assert [lap["tokens"] for lap in laps] == [12, 24]
    assert all(value > 0 for lap in laps for value in lap.values())


def test_attention_holds_every_token_and_the_cache_does_not(seed):
    lap = timing.here(ORDER, seed)[1]
    assert lap["attention bytes"] == 4 * 24 * (SMALL.width + SMALL.n_classes)
    assert lap["slots"] == 6


def test_a_process_of_its_own_measures_the_same_streams(seed):
    here, apart = timing.here(ORDER, seed), timing.apart(ORDER, seed)
    assert [lap.keys() for lap in apart] == [lap.keys() for lap in here]
    assert [lap["bytes"] for lap in apart] == [lap["bytes"] for lap in here]


def test_the_process_is_told_to_keep_to_one_thread(seed, monkeypatch):
    told = {}

    def run(command, env, **_):
        told.update(env)
        return type("Done", (), {"stdout": "[]"})

    monkeypatch.setattr(timing.subprocess, "run", run)
    timing.apart(ORDER, seed)
    assert {told[name] for name in timing.ONE_THREAD} == {"1"}


def test_contestants_take_turns():
    order = []
    timing.race({"one": lambda: order.append(1), "two": lambda: order.append(2)}, rounds=2)
    changes = [name for name, before in zip(order, [0, *order], strict=False) if name != before]
    assert changes == [1, 2, 1, 2]


def test_the_best_round_counts(monkeypatch):
    ticks = iter([0.0, 5.0, 10.0, 12.0])
    monkeypatch.setattr(timing, "clock", lambda: next(ticks))
    monkeypatch.setattr(timing, "TURN", 0.0)
    assert timing.race({"one": lambda: None}, rounds=2) == {"one": pytest.approx(2.0)}


def test_the_machine_has_a_name():
    assert timing.processor()
    assert timing.blas()
