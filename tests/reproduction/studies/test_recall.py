import inspect

import pytest

from distinctkv import Cache
from reproduction.result import Result
from reproduction.studies import recall
from reproduction.studies.runner import FULL, Scale


@pytest.fixture(scope="module")
def small(seed):
    return recall.run(range(seed, seed + 4), Scale("small", 0.05))


def test_every_row_has_recall_slots_and_bytes(small):
    assert [row.name for row in small.rows] == [method.name for method in recall.METHODS]
    assert all(tuple(row.measures) == recall.MEASURES for row in small.rows)


def test_all_six_rows_of_the_paper_are_claimed_and_hold(small):
    claimed = {claim.row for claim in small.claims}
    assert claimed == {row.name for row in small.rows if row.role != "added"}
    assert [claim.id for claim in small.claims if claim.unexplained] == []


def test_the_cache_holds_the_distinct_items(small):
    slots = {row.name: row.measures["slots"].mean for row in small.rows}
    assert slots["dp"] == pytest.approx(64, abs=0.5)
    assert slots["attention"] == 256


def test_the_same_seeds_give_the_same_rows(seed):
    first, again = (recall.run((seed, seed + 1), Scale("tiny", 0.004)) for _ in range(2))
    assert (again.rows, again.series) == (first.rows, first.series)


def test_a_result_can_be_read_back(small):
    assert Result.from_json(small.to_json()) == small
    assert small.settings["episodes"] == 15


def test_every_memory_is_read_at_the_same_temperature():
    theta = recall.settings(FULL)["read_theta"]
    assert inspect.signature(Cache.read).parameters["theta"].default == theta
    memories = [method.make() for method in recall.METHODS]
    assert {memory.theta for memory in memories if hasattr(memory, "theta")} == {theta}


@pytest.mark.parametrize("name", ["fourier", "kanerva"])
def test_states_have_at_most_the_bytes_of_a_key_and_a_value_for_each_item(small, name):
    n_bytes = next(row for row in small.rows if row.name == name).measures["bytes"].mean
    assert 0.97 * recall.LEAST < n_bytes <= recall.LEAST


@pytest.mark.slow
def test_the_papers_first_table_holds():
    result = recall.run(range(10), FULL)
    assert [claim.id for claim in result.claims if claim.unexplained] == []
