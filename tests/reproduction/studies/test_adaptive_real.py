import numpy as np
import pytest

from reproduction.data import loghub
from reproduction.studies import adaptive_real, contest
from reproduction.studies.cases import BGL, CASES, LASTS, PAPER
from reproduction.studies.following import Trace
from reproduction.studies.result import Measure, Result
from reproduction.studies.study import FULL, QUICK, Scale
from tests.reproduction.studies.toys import two_streams

TINY = Scale("tiny", 0.1)


@pytest.fixture(scope="module")
def tiny(seed, tmp_path_factory):
    with two_streams(tmp_path_factory.mktemp("data"), "movielens", "bgl"):
        return adaptive_real.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def bgl_only(seed, tmp_path_factory):
    with two_streams(tmp_path_factory.mktemp("data"), "bgl"):
        return adaptive_real.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def found(tiny):
    return {(row.table, row.name): row.measures for row in tiny.rows}


def test_tables_come_in_the_order_of_their_headings(tiny):
    assert list(tiny.tables) == list(tiny.headings)


def test_the_demand_is_the_papers_and_not_marked_as_ours():
    assert {contest.demand_row(case, (), {}).role for case in CASES} == {"paper"}


def test_a_fixed_budget_is_never_exceeded(found):
    assert found["bgl", "b14"]["peak"].mean == 14
    assert found["bgl", "b18"]["peak"].mean <= 18


def test_too_few_slots_recall_less(found):
    assert found["bgl", "b14"]["recall"].mean < found["bgl", "b45"]["recall"].mean - 0.05


def test_without_a_budget_every_item_has_a_slot(found):
    assert found["movielens", "unbounded"]["peak"].mean == pytest.approx(60, abs=2)


def test_a_gain_is_the_difference_of_two_rows(found):
    ours, theirs = found["bgl", "surprise"], found["bgl", "b18"]
    gain = found["gain", "bgl"]
    assert gain["gain"].mean == pytest.approx(ours["recall"].mean - theirs["recall"].mean)
    extra = ours["per token"].mean - theirs["per token"].mean
    assert gain["extra per token"].mean == pytest.approx(extra)


def test_every_decay_has_a_row_and_the_usual_one_is_that_of_the_table(found):
    assert len([name for table, name in found if table == "decay"]) == len(LASTS)
    usual = found["decay", "lasts_50"]
    assert usual["fixed"].mean == pytest.approx(found["bgl", "b18"]["recall"].mean)
    assert usual["adaptive"].mean == pytest.approx(found["bgl", "surprise"]["recall"].mean)


def test_the_furthest_miss_is_the_largest_of_the_best_decay():
    def runs(recall):
        trace = Trace(recall, (0,), *[recall] * 3)
        return [trace, trace]

    def at(number):
        return np.array([number])

    right = {
        (name, f"lasts_{lasts:g}"): runs(at(PAPER[name] + (0.01 if lasts == 50 else 0.2)))
        for name in PAPER
        for lasts in LASTS
    }
    row = contest.closest_row(right)
    assert row.measures["furthest miss"].mean == pytest.approx(0.01)
    assert row.setting.startswith("decay 0.98,")


def test_lines_of_the_figure_are_of_one_length_and_end_with_the_stream(tiny):
    for case in CASES:
        lines = [line for line in tiny.series if line.name.startswith(f"{case.name}_")]
        assert {line.name for line in lines} == {
            f"{case.name}_{name}" for name in ("demand", *case.drawn)
        }
        assert {len(line.x) for line in lines} == {len(lines[0].y)}
        assert 590 < lines[0].x[-1] <= 600


def test_the_reading_finds_the_decay_at_which_the_worst_case_recalls_least(found):
    """Made-up opposites: it recalls least, and the fixed budget gains, where usage fades fast."""
    decay = {}
    for lasts in LASTS:
        poor = lasts == 10
        numbers = {"fixed": 0.9, "adaptive": 0.4, "worst case": 0.3 if poor else 0.9, "gain": -0.5}
        decay["decay", f"lasts_{lasts:g}"] = {
            name: Measure(number, 0.0, 3) for name, number in numbers.items()
        }
    _, decays, worst = adaptive_real.bursty(found | decay, BGL)
    assert "recalls least where a use counts for 10 tokens: 0.300" in worst
    assert decays.count("less than the fixed one") == 2
    assert "more than" not in decays


def test_a_stream_that_is_not_here_is_not_measured(bgl_only):
    rows = {(row.table, row.name): row for row in bgl_only.rows}
    assert bgl_only.absent == ("movielens",)
    assert rows["movielens", "b813"].absent == "movielens"
    assert rows["bgl", "b18"].measures
    claims = {claim.id: claim.kind for claim in bgl_only.claims}
    assert claims["adaptive_real.movielens.b813.recall"] == "absent"
    assert claims["adaptive_real.bgl.b18.phase end"] != "absent"
    assert "MovieLens" not in " ".join(bgl_only.reading)


def test_without_data_no_claim_is_judged(seed, tmp_path):
    with two_streams(tmp_path):
        result = adaptive_real.run((seed, seed + 1), TINY)
    assert result.absent == ("movielens", "loghub/BGL")
    assert {claim.kind for claim in result.claims} == {"absent"}
    assert result.rows == ()


def test_a_short_run_has_three_seeds_on_movielens_and_all_on_bgl():
    assert [len(adaptive_real.keyed(case, range(10), QUICK)) for case in CASES] == [3, 10]
    assert [len(adaptive_real.keyed(case, range(10), FULL)) for case in CASES] == [10, 10]
    assert [len(adaptive_real.keyed(case, range(2), QUICK)) for case in CASES] == [2, 2]


def test_a_result_can_be_read_back(tiny, bgl_only):
    assert Result.from_json(tiny.to_json()) == tiny
    assert Result.from_json(bgl_only.to_json()) == bgl_only


@pytest.mark.data
def test_bgl_swings_as_the_paper_says():
    if loghub.original("BGL").find() is None:
        pytest.skip("BGL is not on this machine")
    items = [n_items for _, n_items in adaptive_real.demand(BGL.load())]
    assert (min(items), max(items), len(items)) == (2, 45, 25)


@pytest.mark.data
@pytest.mark.slow
def test_the_papers_numbers_hold_or_are_contested_as_we_say():
    result = adaptive_real.run(range(10), QUICK)
    if result.absent:
        pytest.skip(f"{', '.join(result.absent)} is not on this machine")
    found = {(row.table, row.name): row.measures for row in result.rows}
    assert [claim.id for claim in result.claims if not claim.passes] == []
    contested = {
        claim.id.removeprefix("adaptive_real.")
        for claim in result.claims
        if claim.kind == "contested"
    }
    assert contested == {
        "movielens.surprise.recall",
        "bgl.b18.recall",
        "bgl.surprise.recall",
        "bgl.b45.recall",
        "gain.bgl.gain",
        "level.bgl_fixed.gain",
        "closest.together.furthest miss",
    }
    # What the reading says of decays: a gap where usage fades slowly, none where it fades fast.
    assert found["decay", "lasts_200"]["gain"].mean > 0.1
    assert found["decay", "lasts_20"]["gain"].mean < 0.01
    assert found["decay", "lasts_500"]["worst case"].mean > 0.98


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rivals_come_smaller_and_larger_than_the_adaptive_cache(case, seed):
    if adaptive_real.absent(case.data):
        pytest.skip(f"{case.data} is not on this machine")
    runs = dict(adaptive_real.compete(case, case.load(), seed))
    cost = {name: trace.slots.mean() for (table, name), trace in runs.items() if table == case.name}
    for prefix in ("b", "ttl"):
        costs = [cost[f"{prefix}{size}"] for size in case.ladder(prefix)]
        assert min(costs) < cost["surprise"] < max(costs)
