import inspect
from dataclasses import replace

import pytest

from distinctkv import Cache
from reproduction.studies import recall
from reproduction.studies.result import Measure, Result
from reproduction.studies.study import FULL, QUICK, Scale

TINY = Scale("tiny", 0.02)


@pytest.fixture(scope="module")
def tiny(seed):
    return recall.run((seed, seed + 1), TINY)


def test_every_row_has_recall_slots_and_bytes(tiny):
    assert [row.name for row in tiny.rows] == [one.name for one in recall.CONTENDERS]
    assert all(tuple(row.measures) == recall.MEASURES for row in tiny.rows)


def test_all_six_rows_of_the_paper_are_claimed(tiny):
    claimed = {claim.row for claim in tiny.claims}
    assert claimed == {row.name for row in tiny.rows if row.role != "added"}


def test_the_cache_keeps_the_distinct_items(tiny):
    slots = {row.name: row.measures["slots"].mean for row in tiny.rows}
    assert slots["dp"] == pytest.approx(64, abs=0.5)
    assert slots["attention"] == 256


def test_the_same_seeds_give_the_same_rows(tiny):
    again = recall.run(tiny.seeds, TINY)
    assert (again.rows, again.series) == (tiny.rows, tiny.series)


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


def test_the_result_says_what_made_it(tiny):
    assert tiny.settings["episodes"] == 6
    assert {"distinctkv", "code", "numpy", "python"} <= set(tiny.versions)
    assert tiny.seconds > 0


def test_progress_counts_to_the_end(seed):
    told = []
    recall.run((seed, seed + 1), TINY, lambda done, total: told.append((done, total)))
    assert told == [(step, 12) for step in range(1, 13)]


def test_every_memory_is_read_at_the_same_temperature():
    theta = recall.settings(FULL)["read_theta"]
    assert inspect.signature(Cache.read).parameters["theta"].default == theta
    peers = [one.make() for one in recall.CONTENDERS]
    assert {peer.theta for peer in peers if hasattr(peer, "theta")} == {theta}


def test_every_item_is_asked_for(tiny):
    assert tiny.settings["queries"] == recall.TASK.n_items


@pytest.mark.parametrize("name", ["redundancy", "fourier", "kanerva", "ridge", "delta"])
@pytest.mark.parametrize(("mean", "said"), [(1.0, "as much as"), (0.5, "less than")])
def test_words_follow_the_numbers(tiny, name, mean, said):
    rows = {row.name: row for row in tiny.rows}
    number = Measure(mean, 0.0, 9)
    rows["dp"] = replace(rows["dp"], measures={**rows["dp"].measures, "recall": Measure(1, 0, 9)})
    rows[name] = replace(rows[name], measures={**rows[name].measures, "recall": number})
    assert f"{mean:.3f}, {said} the cache" in " ".join(recall.reading(rows))


def test_the_papers_two_numbers_for_one_row_are_both_told(tiny):
    assert "its table prints .83 for the fixed state and .70 for recency." in " ".join(tiny.reading)


@pytest.fixture(scope="module")
def quick():
    return recall.run(range(10), QUICK)


def test_the_papers_first_table_holds_in_the_quick_run(quick):
    assert [claim.id for claim in quick.claims if not claim.passes] == []


def test_asking_for_all_makes_the_spread_smaller_than_the_papers(quick):
    spread = {row.name: row.measures["recall"].sd for row in quick.rows}
    assert spread["superposition"] < 0.02
    assert spread["recency"] < 0.03


def test_redundancy_eviction_ties(quick):
    rows = {row.name: row for row in quick.rows}
    assert recall.compared(rows["redundancy"], rows["dp"]) == "as much as"


@pytest.mark.parametrize("name", ["fourier", "kanerva"])
def test_states_have_at_most_the_bytes_of_a_key_and_a_value_for_each_item(tiny, name):
    held = next(row for row in tiny.rows if row.name == name).measures["bytes"].mean
    assert 0.97 * recall.LEAST < held <= recall.LEAST


@pytest.mark.slow
def test_the_papers_first_table_holds():
    result = recall.run(range(10), FULL)
    assert [claim.id for claim in result.claims if not claim.passes] == []
