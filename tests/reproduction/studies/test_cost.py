import pytest

from reproduction.studies import cost
from reproduction.studies.result import Result
from reproduction.studies.study import FULL, Scale

TINY = Scale("tiny", 0.01)


def lap(tokens, slots=64):
    """What a machine would measure on which all takes just as long as it should."""
    reads = {"attention batch": tokens * 1.0, "attention single": tokens * 0.1}
    reads |= {"cache batch": slots * 1.0, "cache single": slots * 0.1, "call": 9.0}
    sizes = {
        "tokens": tokens,
        "slots": slots,
        "bytes": slots * 200,
        "attention bytes": tokens * 192,
    }
    return {**reads, **sizes, "append": tokens * 0.1, "build": tokens * 1.0}


@pytest.fixture
def ideal(monkeypatch, seed):
    """The study on a machine without noise."""

    def apart(order, _):
        return [
            lap(size.n_items * repeats, size.n_items)
            for size in order.sizes
            for repeats in order.lengths
        ]

    monkeypatch.setattr(cost, "apart", apart)
    return cost.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def tiny(seed):
    return cost.run((seed, seed + 1), TINY)


def test_every_size_and_length_has_a_row_in_every_table(tiny):
    names = [f"k{size.n_items}_r{r}" for size in cost.SIZES for r in cost.LENGTHS]
    for table in cost.TABLES:
        assert [row.name for row in tiny.tables[table]] == names


def test_the_slots_are_the_items_at_every_length(tiny):
    for row in tiny.tables["build"]:
        n_items = int(row.name[1:].split("_")[0])
        assert row.measures["slots"].mean == pytest.approx(n_items, abs=1)


def test_every_time_is_a_time(tiny):
    rows = (*tiny.tables["batch"], *tiny.tables["single"])
    assert all(measure.mean > 0 for row in rows for measure in row.measures.values())


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


def test_the_result_names_the_machine_and_the_thread():
    settings = cost.settings(FULL)
    assert settings["threads"] == 1
    assert settings["processor"]
    assert settings["blas"]


def test_progress_counts_the_seeds(monkeypatch, seed):
    told = []
    laps = [lap(s.n_items * r, s.n_items) for s in cost.SIZES for r in cost.LENGTHS]
    monkeypatch.setattr(cost, "apart", lambda *_: laps)
    cost.run((seed, seed + 1), TINY, lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_the_claims_hold_on_a_machine_that_takes_as_long_as_it_should(ideal):
    assert [claim.id for claim in ideal.claims if not claim.passes] == []


def test_the_growth_of_a_flat_thing_is_0_and_of_a_linear_one_1(ideal):
    growth = {row.name: row.measures["K=64"].mean for row in ideal.tables["growth"]}
    assert growth == {"slots": 0, "cache": 0, "attention": 1, "build": 1}


def test_a_build_that_grows_with_the_square_fails(ideal, monkeypatch):
    square = cost.GROWTH | {"build": ("Build", lambda lap: lap["tokens"] ** 2)}
    monkeypatch.setattr(cost, "GROWTH", square)
    result = cost.run(ideal.seeds, TINY)
    failed = [claim.id for claim in result.claims if not claim.passes]
    assert failed == ["cost.growth.build.K=64", "cost.growth.build.K=256"]


def test_the_papers_speed_ups_stand_beside_ours(ideal):
    claims = {claim.row: claim.paper for claim in ideal.claims if claim.table == "speedup"}
    assert claims == {"k64_r4": 3, "k64_r128": 37}
    aside = {claim.id for claim in ideal.claims if not claim.judged}
    assert aside == {
        "cost.speedup.k64_r4.speed-up",
        "cost.speedup.k64_r128.speed-up",
        "cost.rise.k64.128 over 4",
    }


def test_a_speed_up_grows_as_the_redundancy_where_a_row_takes_as_long_as_a_row(ideal):
    found = {row.name: row.measures for row in ideal.tables["rise"]}
    assert found["k64"]["128 over 4"].mean == 32
    assert found["k256"]["steps that rise"].mean == 1


def test_a_speed_up_that_falls_at_one_step_fails(ideal, monkeypatch):
    def falls(order, _):
        laps = [lap(s.n_items * r, s.n_items) for s in order.sizes for r in order.lengths]
        laps[2]["attention batch"] = laps[1]["attention batch"] / 2
        return laps

    monkeypatch.setattr(cost, "apart", falls)
    result = cost.run(ideal.seeds, TINY)
    assert [c.id for c in result.claims if not c.passes] == ["cost.rise.k64.steps that rise"]


def test_tables_come_in_the_order_of_their_headings(ideal):
    assert list(ideal.tables) == list(ideal.headings)


def test_the_reading_says_when_the_build_is_paid_back(ideal):
    # 32,768 tokens, .9 more for each; a query saves (32,768 - 256) / 64.
    assert "paid back after 58 queries" in " ".join(ideal.reading)


def test_a_read_that_is_no_faster_never_pays():
    slow = [lap(64)]
    assert cost._break_even(slow) == "Reads do not pay it back here."
