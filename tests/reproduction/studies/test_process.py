import numpy as np
import pytest

from reproduction.claims import claims_for
from reproduction.result import Result
from reproduction.studies import process
from reproduction.studies.runner import FULL, QUICK, Scale

TINY = Scale("tiny", 0.02)


@pytest.fixture(scope="module")
def tiny(seed):
    return process.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def found(tiny):
    return {row.name: row.measures for row in tiny.rows}


@pytest.mark.parametrize("name", ["types_100", "types_1000", "types_10000", "tables"])
def test_the_rule_has_a_slot_for_each_thing_it_saw(found, name):
    assert found[name]["slots"].mean == pytest.approx(found[name]["distinct"].mean, abs=0.5)


def test_slots_stop_at_the_number_of_types(found):
    assert found["types_10000"]["slots"].mean == 64
    assert found["types_10000"]["slope"].mean < 1


def test_without_repeats_slots_grow_with_the_tokens(found):
    assert found["isotropic"]["slots"].mean > 0.95 * found["isotropic"]["distinct"].mean


def test_every_alpha_is_claimed(tiny):
    claimed = {claim.row for claim in tiny.claims if claim.table == "process"}
    assert claimed == {"alpha_1", "alpha_5", "alpha_20"}


def test_powers_of_ten_are_among_the_points():
    assert {1, 10, 100, 1000, 10_000} <= set(process.points(10_000).tolist())


def test_the_slope_is_that_of_the_last_decades():
    at = process.points(10_000)
    bent = np.where(at < 1000, 0.0, 3 * np.log(at / 1000))
    assert process.slope(at, bent, decades=1) == pytest.approx(3)


def test_a_result_can_be_read_back(tiny):
    assert Result.from_json(tiny.to_json()) == tiny


@pytest.mark.parametrize("alpha", process.ALPHAS)
def test_the_expected_slope_is_within_the_claim_whatever_the_seeds(alpha):
    at = process.points(process.GUESTS)
    expected = np.cumsum(alpha / (alpha + np.arange(process.GUESTS)))[at - 1]
    within = claims_for("process")["process"][f"alpha_{alpha}"]["slope / alpha"]["tolerance"]
    assert process.slope(at, expected, decades=2) / alpha == pytest.approx(1, abs=within)


def test_the_process_is_as_long_in_a_quick_run_as_in_a_full_one():
    lengths = {process.settings(scale)["tokens_of_the_process"] for scale in (TINY, QUICK, FULL)}
    assert lengths == {process.GUESTS}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_the_papers_slopes_and_saturation_hold(scale):
    result = process.run(range(10), scale)
    assert [claim.id for claim in result.claims if claim.unexplained] == []
