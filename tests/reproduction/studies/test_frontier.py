import numpy as np
import pytest

from reproduction.result import Result
from reproduction.studies import frontier
from reproduction.studies.frontier import BUDGETS
from reproduction.studies.runner import FULL, QUICK, Scale

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


def test_every_method_is_drawn_by_slots(lines):
    policies = (*frontier.POLICIES, *frontier.OTHERS, *frontier.GROWING)
    for method in (*policies, *frontier.STATES, frontier.WIDE, frontier.CACHE):
        assert len(lines[f"{method.name}.slots"].x) == len(method.sizes)


def test_a_policy_holds_its_budget(lines):
    assert lines["redundancy.slots"].x == BUDGETS


def test_a_higher_threshold_opens_fewer_slots(lines):
    assert (np.diff(lines["dp.slots"].x) <= 0).all()


def test_the_cache_and_groups_open_a_slot_per_item(tiny):
    cache = next(row for row in tiny.tables["points"] if row.name == "dp")
    groups = next(row for row in tiny.tables["growing"] if row.name == "groups")
    assert cache.measures["recall"].mean == pytest.approx(1, abs=0.01)
    assert cache.measures["slots"].mean == pytest.approx(64, abs=0.5)
    assert groups.measures["slots"].mean == pytest.approx(64, abs=0.5)


def test_a_margin_is_the_cache_less_the_policy(tiny):
    points, leads = ({row.name: row for row in tiny.tables[name]} for name in ("points", "lead"))
    ours, theirs = (points[name].measures["recall"].mean for name in ("dp", "recency"))
    assert leads["recency"].measures["B=64"].mean == pytest.approx(ours - theirs, abs=0.01)
    assert leads["ham"].setting.startswith(f"B={frontier.TASK.width} ")  # it cannot be smaller


def test_only_the_papers_baselines_have_claims(tiny):
    claimed = {(claim.table, claim.row) for claim in tiny.claims}
    baselines = ("recency", "sinks", "h2o")
    points = {("points", name) for name in (*baselines, "dp")}
    assert claimed == points | {("lead", name) for name in (*baselines, "snapkv")}


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.name)
def test_the_papers_frontier_holds_whatever_the_number_of_seeds(scale, n_seeds):
    claims = frontier.run(range(n_seeds), scale).claims
    assert {claim.verdict for claim in claims} == {"holds"}
