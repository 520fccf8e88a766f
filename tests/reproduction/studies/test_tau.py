import numpy as np
import pytest

from reproduction.result import Result
from reproduction.studies import tau as study
from reproduction.studies.runner import FULL, QUICK, missing_data
from reproduction.studies.synthetic_keys import drugs
from tests.reproduction.studies.small_streams import streams


@pytest.fixture(scope="module")
def small(seed, tmp_path_factory):
    with streams(tmp_path_factory.mktemp("data"), "movielens", "mimic", "synpuf"):
        return study.run((seed, seed + 1), QUICK)


@pytest.fixture(scope="module")
def partly(seed, tmp_path_factory):
    with streams(tmp_path_factory.mktemp("data"), "mimic"):
        return study.run((seed, seed + 1), QUICK)


def column(result, table, measure):
    return np.array([row.measures[measure].mean for row in result.tables[table]])


@pytest.mark.parametrize("name", ["movielens", "mimic", "synpuf"])
def test_a_stricter_threshold_opens_no_fewer_slots(small, name):
    assert (np.diff(column(small, name, "slots")) >= 0).all()


@pytest.mark.parametrize("name", ["movielens", "mimic", "synpuf"])
def test_there_is_a_range_with_a_slot_for_each_item(small, name):
    ratios = dict(zip(study.SIMILARITIES, column(small, name, "slots / distinct"), strict=True))
    assert ratios[0.6] == ratios[0.7] == 1
    assert ratios[0.2] < 0.6
    assert ratios[0.9] > 1


def test_rows_say_both_similarity_and_tau(small):
    labels = [row.label for row in small.tables["movielens"]]
    assert labels[0] == "Similarity 0.2, tau 0.8"
    assert labels[-1] == "Similarity 0.9, tau 0.1"


def test_duplicates_grow_with_the_noise(small):
    ratios = column(small, "noise", "MovieLens")
    assert (np.diff(ratios) >= 0).all()
    assert ratios[-1] > 2 * ratios[0]


def test_more_noise_makes_repeats_less_alike(small):
    cosines = column(small, "noise", "cosine of repeats")
    assert cosines == pytest.approx([1 / (1 + noise**2) for noise in study.NOISES], abs=1e-6)


def test_a_stream_that_is_absent_has_rows_and_no_columns(partly):
    assert [row.missing for row in partly.tables["synpuf"]] == ["synpuf"] * 8
    assert list(partly.tables["noise"][0].measures) == ["cosine of repeats", "MIMIC-IV demo"]
    assert "DE-SynPUF:" not in " ".join(partly.findings)


def test_a_result_can_be_read_back(partly):
    assert Result.from_json(partly.to_json()) == partly


def test_without_any_stream_nothing_is_measured(seed, tmp_path):
    with streams(tmp_path):
        result = study.run((seed, seed + 1), QUICK)
    assert (result.rows, result.missing) == ((), ("movielens", "mimic", "synpuf"))


@pytest.mark.data
def test_from_six_tenths_to_eight_tenths_nothing_changes_on_mimic(seed):
    if missing_data("mimic"):
        pytest.skip("MIMIC is not on this machine")
    slots = dict(zip(study.SIMILARITIES, study.threshold_sweep(drugs(), seed)[:, 0], strict=True))
    assert slots[0.6] == slots[0.7] == slots[0.8] == 631
    assert slots[0.4] < 610
    assert slots[0.9] > 900


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("scale", [QUICK, FULL])
def test_the_papers_plateau_is_as_we_say(scale):
    if missing := missing_data(*study.STREAMS):
        pytest.skip(f"not on this machine: {', '.join(missing)}")
    result = study.run(range(10), scale)
    assert [claim.id for claim in result.claims if claim.unexplained] == []
