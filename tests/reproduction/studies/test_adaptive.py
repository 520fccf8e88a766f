from dataclasses import replace

import pytest

from reproduction.studies import adaptive, adaptive_words
from reproduction.studies.claims import check
from reproduction.studies.contenders import STREAMS, ladder
from reproduction.studies.result import Measure, Result
from reproduction.studies.study import FULL, QUICK, Scale

TINY = Scale("tiny", 0.1)


@pytest.fixture(scope="module")
def tiny(seed):
    return adaptive.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def found(tiny):
    return {(row.table, row.name): row.measures for row in tiny.rows}


def test_the_papers_stream_has_864_tokens():
    assert sum(STREAMS["alternating"].lengths) == 864
    assert STREAMS["alternating"].lengths[:2] == (36, 180)


def test_the_other_streams_differ_in_one_thing_each():
    assert set(STREAMS["equal"].lengths) == {180}
    assert sum(STREAMS["steady"].lengths) == 864


def test_a_point_of_the_figure_never_crosses_a_phase():
    lengths = [n for stream in STREAMS.values() for n in stream.lengths]
    assert all(n % adaptive.SHOWN == 0 for n in lengths)


def test_attention_averages_450_slots_at_phase_ends(found):
    assert found["alternating", "attention"]["phase end"].mean == 450


@pytest.mark.parametrize(("name", "average"), [("b30", 27.0), ("b18", 16.5), ("b22", 20.0)])
def test_a_fixed_budget_is_full_but_for_the_first_phase(found, name, average):
    assert found["alternating", name]["phase end"].mean == pytest.approx(average, abs=0.1)


def test_every_row_of_the_papers_table_is_claimed(tiny):
    table = tiny.tables["alternating"]
    claimed = {claim.row for claim in tiny.claims if claim.table == "alternating"}
    assert claimed == {row.name for row in table if row.role != "added"}


def test_tables_come_in_the_order_of_their_headings(tiny):
    assert list(tiny.tables) == list(tiny.headings)


def test_a_gain_is_the_difference_of_two_rows(found):
    ours, theirs = found["equal", "surprise"], found["equal", "b18"]
    gain = found["gain", "equal_b18"]
    assert gain["gain"].mean == pytest.approx(ours["recall"].mean - theirs["recall"].mean)
    extra = ours["per token"].mean - theirs["per token"].mean
    assert gain["extra per token"].mean == pytest.approx(extra)


@pytest.mark.parametrize("prefix", ["b", "ttl"])
@pytest.mark.parametrize("stream", list(STREAMS))
def test_rivals_come_smaller_and_larger_than_the_adaptive_cache(found, stream, prefix):
    names = [one.name for one in ladder(stream, prefix)]
    costs = [found[stream, name]["per token"].mean for name in names]
    assert min(costs) < found[stream, "surprise"]["per token"].mean < max(costs)


def test_words_follow_the_numbers(found):
    for name in ("alternating_fixed", "equal_expiry"):
        better = {**found["level", name], "gain": Measure(0.2, 0.001, 9)}
        text = " ".join(adaptive.reading(found | {("level", name): better}))
        assert "+0.200 ± 0.000, more than" in text


def test_the_trace_ends_with_the_stream(tiny):
    assert {line.name for line in tiny.series} >= {"demand", "budget", "surprise", "b18", "ttl40"}
    assert all(line.x[-1] == 864 for line in tiny.series)


def test_a_gain_that_stays_is_not_called_gone(tiny):
    rows = [
        replace(row, measures={**row.measures, "gain": Measure(0.04, 0.0, 2)})
        if row.name == "alternating_fixed"
        else row
        for row in tiny.rows
    ]
    claim = next(c for c in check("adaptive", rows) if c.row == "alternating_fixed")
    assert (claim.verdict, claim.passes) == ("fails", False)


@pytest.mark.parametrize(
    ("mean", "said"), [(0.03, "more than"), (-0.03, "less than"), (0.009, "as much as")]
)
def test_a_difference_within_two_standard_errors_is_none(mean, said):
    assert adaptive_words.compared(Measure(mean, 0.01, 4)) == said


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


def test_the_result_names_its_settings(tiny):
    expected = {"tau": 0.44, "base": 8.0, "gain": 40.0, "rate": 0.05, "decay": 0.98}
    assert expected.items() <= tiny.settings.items()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.name)
def test_the_papers_table_holds_and_its_gain_is_gone_at_equal_cost(scale):
    result = adaptive.run(range(10), scale)
    contested = {claim.row: claim.verdict for claim in result.claims if claim.kind == "contested"}
    assert result.passes
    assert contested == {
        "alternating_fixed": "none at equal slots per token",
        "steady_b18": "the fixed budget is better",
    }
