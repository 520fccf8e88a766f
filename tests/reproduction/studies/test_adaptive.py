from dataclasses import replace

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.baselines import TTL, Attention, Superposition
from reproduction.claims import check
from reproduction.data import PhasedTask, RecallTask
from reproduction.result import Measure, Result
from reproduction.studies import adaptive
from reproduction.studies.adaptive import MEASURES, STREAMS, Trace, evaluate
from reproduction.studies.runner import FULL, QUICK, Scale

TINY = Scale("tiny", 0.1)


@pytest.fixture(scope="module")
def tiny(seed):
    """The study on the first two phases of each stream."""
    with pytest.MonkeyPatch.context() as patch:
        short = {name: PhasedTask(stream.phases[:2]) for name, stream in STREAMS.items()}
        patch.setattr(adaptive, "STREAMS", short)
        return adaptive.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def found(tiny):
    return {(row.table, row.name): row.measures for row in tiny.rows}


def test_the_streams():
    """The paper's has phases of 36 and 180 tokens; the others differ from it in one thing each."""
    lengths = {name: stream.lengths for name, stream in STREAMS.items()}
    assert lengths["alternating"][:2] == (36, 180)
    assert sum(lengths["alternating"]) == sum(lengths["steady"]) == 864
    assert set(lengths["equal"]) == {180}


@pytest.mark.parametrize(
    ("name", "average"), [("attention", (36 + 216) / 2), ("b30", 18), ("b18", 12), ("b22", 14)]
)
def test_a_fixed_budget_is_full_but_for_the_first_phase(found, name, average):
    assert found["alternating", name]["phase end"].mean == pytest.approx(average, abs=0.6)


def test_every_row_of_the_papers_table_is_claimed(tiny):
    table = tiny.tables["alternating"]
    claimed = {claim.row for claim in tiny.claims if claim.table == "alternating"}
    assert claimed == {row.name for row in table if row.role != "added"}
    assert list(tiny.tables) == list(tiny.headings)


def test_a_gain_is_the_difference_of_two_rows(found):
    ours, theirs = found["equal", "surprise"], found["equal", "b18"]
    gain = found["gain", "equal_b18"]
    assert gain["gain"].mean == pytest.approx(ours["recall"].mean - theirs["recall"].mean)
    extra = ours["per token"].mean - theirs["per token"].mean
    assert gain["extra per token"].mean == pytest.approx(extra)


def test_a_gain_at_equal_cost_that_is_there_after_all_holds(tiny):
    rows = [
        replace(row, measures={**row.measures, "gain": Measure(0.08, 0.0, 2)})
        if row.name == "alternating_fixed"
        else row
        for row in tiny.rows
    ]
    claim = next(c for c in check("adaptive", rows) if c.row == "alternating_fixed")
    assert claim.verdict == "holds"


def test_the_result_names_its_settings_and_can_be_read_back(tiny):
    expected = {"tau": 0.44, "base": 8.0, "gain": 40.0, "rate": 0.05, "decay": 0.98}
    assert expected.items() <= tiny.settings.items()
    assert Result.from_json(tiny.to_json()) == tiny


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.name)
def test_the_papers_table_holds_and_its_gain_is_gone_at_equal_cost(scale):
    result = adaptive.run(range(10), scale)
    assert {claim.row for claim in result.claims if claim.verdict == "differs"} == {
        "alternating_fixed",
        "steady_b18",
    }
    # Baselines come smaller and larger than the adaptive cache.
    cost = {(row.table, row.name): row.measures.get("per token") for row in result.rows}
    for stream in STREAMS:
        for prefix in ("b", "ttl"):
            sizes = adaptive.family_sizes(stream, prefix)
            costs = [cost[stream, f"{prefix}{size}"].mean for size in sizes]
            assert min(costs) < cost[stream, "surprise"].mean < max(costs)


# Traces


@pytest.fixture
def phases(rng):
    tasks = (RecallTask(n_items=6, repeats=6), RecallTask(n_items=30, repeats=6))
    return PhasedTask(tasks).draw(rng)


def test_an_average_over_tokens_counts_every_token_alike(phases):
    trace = evaluate(Attention(), phases)
    assert MEASURES["phase end"](trace) == (36 + 216) / 2
    assert MEASURES["per token"](trace) == np.arange(1, 217).mean()
    assert MEASURES["peak"](trace) == 216


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cache(Concentration.surprise()),
        lambda: Cache(Concentration.surprise(0.4, 2, 9, rate=0.3)),
        lambda: Cache(Concentration.fixed(0.4, 18)),
        lambda: Cache(),
        lambda: TTL(idle=7),
        lambda: TTL(idle=40),
        Attention,
        Superposition,
    ],
)
def test_slots_and_budget_follow_from_the_ids(phases, make):
    """As counted after every token of a memory that is written token by token."""
    counted, keys = make(), np.concatenate([phase.keys for phase in phases])
    values, counts = np.concatenate([phase.values for phase in phases]), []
    for key, value in zip(keys, values, strict=True):
        counted.write(key, value)
        budget = counted.budget if isinstance(counted, Cache) else np.inf
        counts.append((len(counted), budget))
    memory = make()
    slots, budgets = adaptive.slots_held(memory, memory.write(keys, values))
    np.testing.assert_array_equal(slots, [count for count, _ in counts])
    np.testing.assert_array_equal(budgets, [budget for _, budget in counts])


def test_a_budget_is_traced_and_never_exceeded(phases):
    trace = evaluate(Cache(Concentration.surprise()), phases)
    assert (trace.slots <= trace.budget).all()
    assert trace.at_ends(trace.budget)[0] < trace.budget.max()


def test_a_baseline_is_interpolated_between_its_sizes_at_our_cost():
    def trace(slots, recall):
        return Trace(np.array([recall]), (0,), *np.full((3, 1), slots))

    sizes = [trace(24.0, 0.9), trace(20.0, 0.7)]
    assert adaptive.recall_at_cost(sizes, trace(23.0, 0.5)) == pytest.approx(0.85)
