import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.data import Events, loghub
from reproduction.result import Result
from reproduction.studies import adaptive_real
from reproduction.studies.adaptive import MEASURES, Trace, evaluate
from reproduction.studies.adaptive_real import BGL, HORIZONS, PAPER, STREAMS
from reproduction.studies.runner import FULL, QUICK, Scale
from tests.reproduction.studies.small_streams import two_streams

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


def test_budgets_bind_and_too_few_slots_recall_less(found):
    assert found["bgl", "b14"]["peak"].mean == 14
    assert found["bgl", "b18"]["peak"].mean <= 18
    assert found["bgl", "b14"]["recall"].mean < found["bgl", "b45"]["recall"].mean - 0.05
    assert found["movielens", "unbounded"]["peak"].mean == pytest.approx(60, abs=2)


def test_a_gain_is_the_difference_of_two_rows(found):
    ours, theirs = found["bgl", "surprise"], found["bgl", "b18"]
    gain = found["gain", "bgl"]
    assert gain["gain"].mean == pytest.approx(ours["recall"].mean - theirs["recall"].mean)
    extra = ours["per token"].mean - theirs["per token"].mean
    assert gain["extra per token"].mean == pytest.approx(extra)


def test_every_decay_has_a_row_and_the_usual_one_is_that_of_the_table(found):
    assert len([name for table, name in found if table == "decay"]) == len(HORIZONS)
    usual = found["decay", "lasts_50"]
    assert usual["fixed"].mean == pytest.approx(found["bgl", "b18"]["recall"].mean)
    assert usual["adaptive"].mean == pytest.approx(found["bgl", "surprise"]["recall"].mean)


def test_the_furthest_miss_is_the_largest_of_the_best_decay():
    def runs(recall):
        numbers = np.array([recall])
        return [Trace(numbers, (0,), *[numbers] * 3)] * 2

    near = {
        (name, f"lasts_{horizon:g}"): runs(PAPER[name] + (0.01 if horizon == 50 else 0.2))
        for name in PAPER
        for horizon in HORIZONS
    }
    row = adaptive_real.closest_row(near)
    assert row.measures["furthest miss"].mean == pytest.approx(0.01)
    assert row.setting.startswith("decay 0.98,")


def test_series_are_of_one_length_and_end_with_the_stream(tiny):
    for stream in STREAMS:
        lines = [line for line in tiny.series if line.name.startswith(f"{stream.name}_")]
        assert {line.name for line in lines} == {
            f"{stream.name}_{name}" for name in ("demand", *stream.plotted)
        }
        assert {len(line.x) for line in lines} == {len(lines[0].y)}
        assert 590 < lines[0].x[-1] <= 600


def test_an_absent_stream_is_not_measured(bgl_only):
    rows = {(row.table, row.name): row for row in bgl_only.rows}
    assert bgl_only.missing == ("movielens",)
    assert rows["movielens", "b813"].missing == "movielens"
    assert rows["bgl", "b18"].measures
    claims = {claim.id: claim.verdict for claim in bgl_only.claims}
    assert claims["adaptive_real.movielens.b813.recall"] == "not measured"
    assert claims["adaptive_real.bgl.b18.phase end"] == "holds"
    assert "MovieLens" not in " ".join(bgl_only.findings)


def test_without_data_no_claim_is_judged(seed, tmp_path):
    with two_streams(tmp_path):
        result = adaptive_real.run((seed, seed + 1), TINY)
    assert result.missing == ("movielens", "loghub/BGL")
    assert {claim.verdict for claim in result.claims} == {"not measured"}
    assert result.rows == ()


def test_a_short_run_has_five_seeds_on_movielens_and_all_on_bgl():
    assert [len(adaptive_real.seeds_of(s, range(10), QUICK)) for s in STREAMS] == [5, 10]
    assert [len(adaptive_real.seeds_of(s, range(10), FULL)) for s in STREAMS] == [10, 10]
    assert [len(adaptive_real.seeds_of(s, range(2), QUICK)) for s in STREAMS] == [2, 2]


def test_a_result_can_be_read_back(tiny, bgl_only):
    assert Result.from_json(tiny.to_json()) == tiny
    assert Result.from_json(bgl_only.to_json()) == bgl_only


# Time windows


@pytest.fixture
def events():
    """Two windows of the 25 have events: sky twice; then apple, sky and apple."""
    items, times = np.array([0, 0, 1, 0, 1]), np.array([0, 1, 98, 99, 100])
    return Events(items, items, times, ("sky", "apple"), ("blue", "red"), "by hand")


def test_demand_counts_tokens_and_distinct_items(events):
    assert adaptive_real.demand(events) == ((2, 1), (3, 2))


def test_a_window_asks_for_each_of_its_items_once(events, seed):
    first, second = adaptive_real.draw(events, seed, width=8, noise=0.0)
    assert first.answers.tolist() == [0]
    assert second.answers.tolist() == [0, 1]
    assert second.values.argmax(axis=1).tolist() == [1, 0, 1]
    # An item has one direction in all windows.
    assert (first.keys[0] == second.keys[1]).all()
    assert (first.queries[0] == second.queries[0]).all()


def test_slots_are_counted_after_every_token_and_at_the_end_of_a_window(events, seed):
    phases = adaptive_real.draw(events, seed, width=8, noise=0.0)
    trace = evaluate(Cache(Concentration.fixed(0.1)), phases)
    assert trace.slots.tolist() == [1, 1, 2, 2, 2]
    assert trace.ends == (1, 4)
    assert trace.recall.tolist() == [1, 1]


def test_a_budget_of_one_forgets_the_other_item(events, seed):
    phases = adaptive_real.draw(events, seed, width=8, noise=0.0)
    trace = evaluate(Cache(Concentration.fixed(0.1, 1)), phases)
    assert MEASURES["recall"](trace) == 0.75
    assert MEASURES["phase end"](trace) == 1


@pytest.mark.data
def test_bgl_swings_as_the_paper_says():
    if loghub.original("BGL").find() is None:
        pytest.skip("BGL is not on this machine")
    items = [n_items for _, n_items in adaptive_real.demand(BGL.load())]
    assert (min(items), max(items), len(items)) == (2, 45, 25)


@pytest.mark.data
@pytest.mark.slow
def test_the_papers_numbers_hold_or_the_difference_is_explained():
    result = adaptive_real.run(range(10), QUICK)
    if result.missing:
        pytest.skip(f"{', '.join(result.missing)} is not on this machine")
    found = {(row.table, row.name): row.measures for row in result.rows}
    assert [claim.id for claim in result.claims if claim.unexplained] == []
    differ = {claim.id for claim in result.claims if claim.verdict == "differs"}
    assert {f"adaptive_real.{name}" for name in ("bgl.b18.recall", "gain.bgl.gain")} <= differ
    # The findings: a gap where usage decays slowly, none where it decays fast.
    assert found["decay", "lasts_200"]["gain"].mean > 0.1
    assert found["decay", "lasts_20"]["gain"].mean < 0.01
    assert found["decay", "lasts_500"]["worst case"].mean > 0.98


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_baselines_come_smaller_and_larger_than_the_adaptive_cache(stream, seed):
    if adaptive_real.missing_data(stream.data):
        pytest.skip(f"{stream.data} is not on this machine")
    runs = dict(adaptive_real.traces(stream, stream.load(), seed))
    cost = {name: one.slots.mean() for (table, name), one in runs.items() if table == stream.name}
    for prefix in ("b", "ttl"):
        costs = [cost[f"{prefix}{size}"] for size in stream.family_sizes(prefix)]
        assert min(costs) < cost["surprise"] < max(costs)
