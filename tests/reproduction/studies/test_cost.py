import numpy as np
import pytest

from reproduction.baselines import Attention
from reproduction.data import RecallTask
from reproduction.result import Result
from reproduction.studies import cost
from reproduction.studies.runner import FULL, Scale

TINY = Scale("tiny", 0.01)
SMALL = RecallTask(n_items=6)
JOB = cost.Job([SMALL], [2, 4], batch=3, tau=0.3, theta=0.05, rounds=1)


def sample(tokens, slots=64):
    """What a machine would measure on which all takes just as long as it should."""
    reads = {"attention batch": tokens * 1.0, "attention single": tokens * 0.1}
    reads |= {"cache batch": slots * 1.0, "cache single": slots * 0.1, "call": 9.0}
    sizes = {
        "tokens": tokens,
        "slots": slots,
        "bytes": slots * 200,
        "attention bytes": tokens * 192,
    }
    return {**reads, **sizes, "append": tokens * 0.1, "build": tokens * 1.0}


def samples(job, seed):
    return [sample(size.n_items * r, size.n_items) for size in job.sizes for r in job.lengths]


@pytest.fixture
def ideal(monkeypatch, seed):
    """The study on a machine without noise."""
    monkeypatch.setattr(cost, "time_in_subprocess", samples)
    return cost.run((seed, seed + 1), TINY)


def test_every_size_and_length_has_a_row_in_every_table(ideal):
    names = [f"k{size.n_items}_r{r}" for size in cost.SIZES for r in cost.LENGTHS]
    for table in cost.TABLES:
        assert [row.name for row in ideal.tables[table]] == names
    assert list(ideal.tables) == list(ideal.headings)
    assert Result.from_json(ideal.to_json()) == ideal


def test_the_result_names_the_machine_and_the_thread():
    settings = cost.settings(FULL)
    assert settings["threads"] == 1
    assert settings["processor"]
    assert settings["blas"]


def test_progress_counts_the_seeds(monkeypatch, seed):
    steps = []
    monkeypatch.setattr(cost, "time_in_subprocess", samples)
    cost.run((seed, seed + 1), TINY, lambda done, total: steps.append((done, total)))
    assert steps == [(1, 2), (2, 2)]


def test_the_claims_hold_on_a_machine_that_takes_as_long_as_it_should(ideal):
    assert [claim.id for claim in ideal.claims if claim.unexplained] == []
    growth = {row.name: row.measures["K=64"].mean for row in ideal.tables["growth"]}
    assert growth == {"slots": 0, "cache": 0, "attention": 1, "build": 1}
    rise = {row.name: row.measures for row in ideal.tables["rise"]}
    assert rise["k64"]["128 over 4"].mean == 32
    assert rise["k256"]["steps that rise"].mean == 1


def test_a_build_that_grows_with_the_square_fails(ideal, monkeypatch):
    square = cost.GROWTH | {"build": ("Build", lambda s: s["tokens"] ** 2)}
    monkeypatch.setattr(cost, "GROWTH", square)
    result = cost.run(ideal.seeds, TINY)
    failed = [claim.id for claim in result.claims if claim.unexplained]
    assert failed == ["cost.growth.build.K=64", "cost.growth.build.K=256"]


def test_a_speed_up_that_falls_at_one_step_fails(ideal, monkeypatch):
    def falls(job, seed):
        found = samples(job, seed)
        found[2]["attention batch"] = found[1]["attention batch"] / 2
        return found

    monkeypatch.setattr(cost, "time_in_subprocess", falls)
    result = cost.run(ideal.seeds, TINY)
    assert [c.id for c in result.claims if c.unexplained] == ["cost.rise.k64.steps that rise"]


def test_a_speed_up_that_differs_is_explained(ideal):
    claims = {claim.row: claim.paper for claim in ideal.claims if claim.table == "speedup"}
    assert claims == {"k64_r4": 3, "k64_r128": 37}
    assert all(claim.explanation for claim in ideal.claims if claim.verdict == "differs")


def test_faster_reads_make_up_for_the_build_or_never_do(ideal):
    # 32,768 tokens, .9 more for each; a query saves (32,768 - 256) / 64.
    assert cost.queries_to_break_even([sample(32_768, 256)]) == pytest.approx(58.05, abs=0.01)
    assert cost.queries_to_break_even([sample(64)]) is None
    assert "after 58 queries" in " ".join(ideal.findings)


# Timing


def test_the_bare_read_is_attention(rng):
    episode = SMALL.draw(rng, n_queries=5)
    baseline = Attention()
    baseline.write(episode.keys, episode.values)
    arrays = (episode.queries, episode.keys, episode.values, np.zeros((5, len(episode.keys))))
    queries, keys, values, weights = (array.astype(np.float32) for array in arrays)
    found = cost.attend(queries, keys, values, 0.05, weights)
    np.testing.assert_allclose(found, baseline.read(episode.queries), atol=1e-5)


def test_a_subprocess_with_one_thread_times_the_same_streams(seed, monkeypatch):
    environments = []
    run = cost.subprocess.run
    monkeypatch.setattr(
        cost.subprocess, "run", lambda *a, **k: environments.append(k["env"]) or run(*a, **k)
    )
    here, there = cost.time_streams(JOB, seed), cost.time_in_subprocess(JOB, seed)
    assert [one.keys() for one in there] == [one.keys() for one in here]
    assert [one["bytes"] for one in there] == [one["bytes"] for one in here]
    assert [one["tokens"] for one in here] == [12, 24]
    assert here[1]["attention bytes"] == 4 * 24 * (SMALL.width + SMALL.n_classes)
    assert here[1]["slots"] == 6
    assert all(value > 0 for one in (*here, *there) for value in one.values())
    assert {environments[0][name] for name in cost.ONE_THREAD} == {"1"}


def test_calls_alternate_within_a_round():
    order = []
    calls = {"one": lambda: order.append(1), "two": lambda: order.append(2)}
    cost.best_times(calls, rounds=2)
    changes = [name for name, before in zip(order, [0, *order], strict=False) if name != before]
    assert changes == [1, 2, 1, 2]


def test_the_best_round_counts(monkeypatch):
    ticks = iter([0.0, 5.0, 10.0, 12.0])
    monkeypatch.setattr(cost, "clock", lambda: next(ticks))
    monkeypatch.setattr(cost, "MIN_SECONDS", 0.0)
    assert cost.best_times({"one": lambda: None}, rounds=2) == {"one": pytest.approx(2.0)}
