import numpy as np
import pytest

from reproduction.studies import frontier
from reproduction.studies.result import Claim, Result
from reproduction.studies.study import FULL, QUICK, Scale
from tests.reproduction.studies.test_leading import leads_of

TINY = Scale("tiny", 0.02)


@pytest.fixture(scope="module")
def tiny(seed):
    return frontier.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def lines(tiny):
    return {line.name: line for line in tiny.series}


def test_every_policy_has_a_point_at_the_number_of_items(tiny):
    rows = (*tiny.tables["points"], *tiny.tables["others"])
    policies = {policy.name for policy in (*frontier.POLICIES, *frontier.OTHERS)}
    assert {row.name for row in rows} == policies | {"dp"}


def test_every_line_is_drawn_by_slots_and_by_bytes(lines):
    policies = (*frontier.POLICIES, *frontier.OTHERS, *frontier.GROWING)
    sweeps = (*policies, *frontier.STATES, frontier.WIDE, frontier.CACHE)
    for sweep in sweeps:
        assert len(lines[f"{sweep.name}.slots"].x) == len(sweep.sizes)
        assert len(lines[f"{sweep.name}.bytes"].sd) == len(sweep.sizes)


def test_a_policy_holds_its_budget(lines):
    assert lines["redundancy.slots"].x == frontier.BUDGETS


def test_a_higher_threshold_opens_fewer_slots(lines):
    assert (np.diff(lines["dp.slots"].x) <= 0).all()


def test_the_cache_has_a_perfect_point_at_the_number_of_items(tiny):
    row = next(row for row in tiny.tables["points"] if row.name == "dp")
    assert row.measures["recall"].mean == pytest.approx(1, abs=0.01)
    assert row.measures["slots"].mean == pytest.approx(64, abs=0.5)


def test_a_lead_is_the_cache_less_the_policy(lines):
    lead = dict(zip(lines["recency.lead"].x, lines["recency.lead"].y, strict=True))
    theirs = dict(zip(frontier.BUDGETS, lines["recency.slots"].y, strict=True))
    assert lead[128] == pytest.approx(1 - theirs[128], abs=1e-4)


def test_the_cache_has_no_lead_over_itself_under_a_budget(lines):
    assert lines["lfu.lead"].y[frontier.BUDGETS.index(64)] == pytest.approx(0, abs=0.01)


def test_a_rival_is_not_asked_for_fewer_slots_than_it_can_have(lines):
    assert min(lines["ham.lead"].x) == frontier.TASK.width
    assert "snapkv_once.lead" not in lines


def test_the_verdict_says_where_the_lead_is(monkeypatch):
    claim = Claim("frontier.lead.h2o.worst", 0.0, 0.0, 0.0, 0.005, "rounding", "holds", "holds")
    monkeypatch.setattr(frontier, "leads", lambda *_: leads_of(0.0, 0.1, 0.1))
    assert (
        frontier.qualify(claim, {}).verdict
        == "holds, leads by 0.005 beyond chance only at B = 32, 48"
    )


def test_only_the_papers_rivals_have_claims(tiny):
    claimed = {(claim.table, claim.row) for claim in tiny.claims}
    rivals = ("recency", "sinks", "h2o")
    points = {("points", name) for name in (*rivals, "dp")}
    assert claimed == points | {("lead", name) for name in rivals}


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


def test_the_reading_gives_the_measured_recall_at_the_number_of_items(tiny, lines):
    measured = lines["recency.slots"].y[frontier.BUDGETS.index(64)]
    assert f"recency {measured:.3f}" in tiny.reading[0]


def test_the_reading_tells_of_the_sum_that_needs_fewer_bytes(tiny):
    wide = next(row for row in tiny.tables["bytes"] if row.name == "wide")
    said = " and ".join(f"{wide.measures[size].mean:.3f}" for size in ("4 KiB", "8 KiB"))
    assert f"on streams of its own, recalls {said}" in " ".join(tiny.reading)


def test_the_reading_names_the_prior_work_of_the_same_rule(tiny):
    row = next(row for row in tiny.tables["growing"] if row.name == "subgen")
    assert row.measures["slots"].mean == pytest.approx(64, abs=0.5)
    assert any("SubGen (2024)" in text for text in tiny.reading)


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.name)
def test_the_papers_frontier_holds_whatever_the_number_of_seeds(scale, n_seeds):
    claims = frontier.run(range(n_seeds), scale).claims
    assert {claim.kind for claim in claims} == {"holds"}
