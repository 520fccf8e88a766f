import pytest

from distinctkv import Cache, Concentration
from reproduction.data import movielens
from reproduction.result import Result
from reproduction.studies import real_frontier as study
from reproduction.studies.runner import FULL, QUICK, missing_data
from reproduction.studies.synthetic_keys import SyntheticKeys, correct_answers
from tests.reproduction.studies.small_streams import streams


@pytest.fixture(scope="module")
def small(seed, tmp_path_factory):
    """2,000 ratings of 400 movies, with all rows."""
    with streams(tmp_path_factory.mktemp("data"), "movielens"):
        return study.run((seed, seed + 1), FULL)


@pytest.fixture(scope="module")
def found(small):
    return {(row.table, row.name): row.measures for row in small.rows}


def test_the_cache_has_a_slot_for_each_movie_and_knows_it(found):
    point = found["points", "dp_plain"]
    assert point["slots"].mean == pytest.approx(400, abs=2)
    assert point["recall"].mean > 0.99


def test_recency_forgets_what_came_long_ago(found):
    assert found["budgets", "recency"]["347"].mean < 0.7


def test_redundancy_eviction_keeps_as_many_movies_as_it_has_slots(found):
    known = 347 / 400
    assert found["budgets", "redundancy"]["347"].mean == pytest.approx(known, abs=0.06)


def test_what_is_popular_is_kept_sooner(found):
    point = found["points", "recency"]
    assert point["by rating"].mean > point["recall"].mean


def test_the_strongest_policy_is_named_with_its_setting(small, found):
    best = small.tables["best"][0]
    everyone = [found["points", name]["recall"].mean for name in study.EVICTING]
    assert best.measures["recall"].mean == max(everyone)
    assert best.setting.startswith("B=1600")


def test_the_tuned_setting_of_h2o_is_one_of_its_table(small, found):
    assert len(small.tables["hitters"]) == 2 * len(study.THETAS)
    one = found["hitters", "r0_t20"]["recall"].mean
    assert one == found["points", "h2o_tuned"]["recall"].mean
    half = found["hitters", "r800_t145"]["recall"].mean
    assert half == found["points", "h2o"]["recall"].mean


def test_a_quick_run_leaves_out_long_scans_and_nothing_that_is_claimed(small, seed, tmp_path):
    with streams(tmp_path, "movielens"):
        quick = study.run((seed, seed + 1), QUICK)
    assert "hitters" not in quick.tables
    assert quick.tables["points"] == small.tables["points"]
    assert [claim.id for claim in quick.claims] == [claim.id for claim in small.claims]
    rows = {row.name for row in quick.tables["budgets"]}
    assert rows == {row.name for row in small.tables["budgets"]} - {*study.LONG_SCANS}


def test_every_row_has_its_bytes_and_its_setting(small):
    assert all(row.setting and row.measures["bytes"].mean > 0 for row in small.tables["points"])


def test_a_result_can_be_read_back(small):
    assert Result.from_json(small.to_json()) == small


def test_without_movielens_nothing_is_measured(seed, tmp_path):
    with streams(tmp_path):
        result = study.run((seed, seed + 1), QUICK)
    assert (result.rows, result.missing) == ((), ("movielens",))
    assert {claim.verdict for claim in result.claims} == {"not measured"}


@pytest.mark.data
def test_the_movies_have_a_slot_each(rng):
    if missing_data("movielens"):
        pytest.skip("MovieLens is not on this machine")
    cache = Cache(Concentration.fixed(study.PLAIN))
    right = correct_answers(cache, SyntheticKeys(movielens.load().head(study.EVENTS)).draw(rng))
    assert len(right) == 1388
    assert len(cache) == pytest.approx(1385, abs=6)
    assert right.mean() > 0.99


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_the_papers_frontier_is_as_we_say(scale):
    if missing_data("movielens"):
        pytest.skip("MovieLens is not on this machine")
    result = study.run(range(10), scale)
    assert [claim.id for claim in result.claims if claim.unexplained] == []
