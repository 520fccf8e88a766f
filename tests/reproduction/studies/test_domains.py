import numpy as np
import pytest

from reproduction.result import Result
from reproduction.studies import domains as study
from reproduction.studies.runner import FULL, QUICK, missing_data
from reproduction.studies.synthetic_keys import SyntheticKeys, drugs
from tests.reproduction.studies.small_streams import routed, streams, tailed


@pytest.fixture(scope="module")
def small(seed, tmp_path_factory):
    with streams(tmp_path_factory.mktemp("data"), *study.NEEDS):
        return study.run((seed, seed + 1), QUICK)


@pytest.fixture(scope="module")
def partly(seed, tmp_path_factory):
    """Only MIMIC and one log."""
    with streams(tmp_path_factory.mktemp("data"), "mimic", "loghub/HDFS"):
        return study.run((seed, seed + 1), QUICK)


@pytest.fixture(scope="module")
def found(small):
    return {(row.table, row.name): row.measures for row in small.rows}


@pytest.mark.parametrize("name", ["movielens", "mimic", "synpuf", "genres", "chapters"])
def test_slots_are_as_many_as_distinct_items(found, name):
    one, n_distinct = found["keyed", name], found["counts", name]["distinct"].mean
    assert one["slots"].mean == pytest.approx(n_distinct, abs=2)
    assert one["recall"].mean > 0.98


def test_redundancy_is_events_over_distinct(found):
    assert found["counts", "movielens"]["redundancy"].mean == 2000 / 400


def test_a_quarter_of_the_slots_recalls_little_more_than_a_quarter(found):
    one = found["quarter", "movielens"]
    assert one["budget"].mean == 100
    assert 0.2 < one["least used leaves"].mean < 0.5


def test_tables_come_in_the_order_of_their_headings(small):
    assert list(small.tables) == list(small.headings)


def test_the_parser_finds_the_sentences(found):
    assert found["logs", "HDFS_parser"]["GA"].mean == 1
    assert found["logs", "HDFS_parser"]["templates"].mean == 4


@pytest.mark.parametrize(
    ("policy", "truth"), [("first", 0), ("last", 1), ("counts", 2), ("attention", 2)]
)
def test_a_slot_answers_by_its_policy(rng, policy, truth):
    events = routed()
    answers = study.answer(events, SyntheticKeys(events, 0.1).draw(rng), policy)
    assert (answers == study.first_last_commonest(events)[truth]).all()


def test_attention_is_asked_for_some_items_and_none_twice(rng, seed):
    part = study.some_queries(SyntheticKeys(tailed()).draw(rng), seed)
    assert len(part.answers) == study.MAX_QUERIES
    assert len(np.unique(part.queries, axis=0)) == study.MAX_QUERIES


def test_a_stream_that_is_absent_leaves_its_rows_unmeasured(partly):
    lacking = {row.name: row.missing for row in partly.rows if row.missing}
    assert lacking["genres"] == "movielens"
    assert lacking["BGL_parser"] == "loghub/BGL"
    assert partly.missing == ("movielens", "synpuf", "loghub/BGL")


def test_claims_on_it_are_not_judged_and_the_others_are(partly):
    kinds = {claim.id: claim.verdict for claim in partly.claims}
    assert kinds["domains.keyed.movielens.recall"] == "not measured"
    assert kinds["domains.keyed.mimic.recall"] != "not measured"


def test_the_reading_speaks_only_of_what_is_here(partly):
    said = " ".join(partly.findings)
    assert "of the MIMIC-IV demo" in said
    assert "of DE-SynPUF" not in said


def test_a_result_can_be_read_back(partly):
    assert Result.from_json(partly.to_json()) == partly


def test_without_any_stream_nothing_is_measured(seed, tmp_path):
    with streams(tmp_path):
        result = study.run((seed, seed + 1), QUICK)
    assert (result.rows, result.missing) == ((), study.NEEDS)


@pytest.mark.data
def test_the_drugs_of_mimic_have_a_slot_each(seed):
    if missing_data("mimic"):
        pytest.skip("MIMIC is not on this machine")
    found = study.measure(drugs(), (seed, seed + 1))
    assert (found["events"].mean, found["distinct"].mean) == (18_087, 631)
    assert found["slots"].mean == pytest.approx(630, abs=3)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_the_papers_table_is_as_we_say(scale):
    if missing := missing_data(*study.NEEDS):
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    result = study.run(range(10), scale)
    assert [claim.id for claim in result.claims if claim.unexplained] == []
