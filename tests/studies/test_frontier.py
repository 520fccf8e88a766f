import numpy as np
import pytest

from distinctkv.studies import frontier
from distinctkv.studies.result import Result
from distinctkv.studies.study import FULL, QUICK, Scale

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
    sweeps = (*frontier.POLICIES, *frontier.OTHERS, *frontier.STATES, frontier.WIDE, frontier.CACHE)
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


@pytest.mark.parametrize(
    ("lead", "said"), [([0.02, 0.021], True), ([0.004, 0.0041], False), ([0.1, -0.08], False)]
)
def test_a_lead_is_seen_in_print_and_beyond_chance(lead, said):
    gained = np.zeros((len(frontier.BUDGETS), 2))
    gained[3] = lead
    assert frontier.led(gained) == ([64] if said else [])


def test_the_papers_points_and_both_contested_claims_are_checked(tiny):
    claimed = {(claim.table, claim.row) for claim in tiny.claims}
    points = {("points", name) for name in ("recency", "sinks", "h2o", "dp")}
    assert claimed == points | {("lead", n) for n in ("recency", "sinks", "h2o", "redundancy")}


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


def test_the_reading_says_what_ties_and_what_bytes_say(tiny):
    text = " ".join(tiny.reading)
    assert "Redundancy eviction recalls" in text
    assert "8,448" in text


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.name)
def test_the_papers_frontier_holds_where_we_say_so(scale):
    claims = frontier.run(range(10), scale).claims
    assert [claim.id for claim in claims if not claim.holds] == []
    assert {claim.id for claim in claims if claim.contested} == {
        "frontier.lead.h2o.budgets led",
        "frontier.lead.redundancy.B=64",
        "frontier.lead.redundancy.budgets led",
    }
