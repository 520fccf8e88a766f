"""Tests of study ``gates``."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from reproduction.studies import gates, gating
from reproduction.studies.result import Measure
from reproduction.studies.study import QUICK


@pytest.fixture
def short(monkeypatch):
    """All gates, hardly trained."""
    monkeypatch.setattr(gates, "CASES", tuple(replace(one, steps=1) for one in gates.CASES))
    monkeypatch.setattr(gates, "STEPS", 1)
    monkeypatch.setattr(gates, "ASKED", 4)


def test_two_parameters_are_right_before_they_are_trained(short, seed):
    before, _, _ = gates.measure(next(one for one in gates.CASES if one.name == "two"), seed)
    assert before == 1.0


def test_a_gate_on_the_key_alone_keeps_whole_groups_of_repeats(short, seed):
    _, recall, _ = gates.measure(next(one for one in gates.CASES if one.name == "key"), seed)
    assert recall < 0.5


def found(recall, before):
    """All rows alike."""
    means = {"before": before, "recall": recall, "kept": 64.0}
    measures = {name: Measure(mean, 0.0, 3) for name, mean in means.items()}
    return {case.name: measures for case in gates.CASES}


@pytest.mark.parametrize("number", [0.0, 0.5])
def test_nothing_is_concluded_from_numbers_that_do_not_bear_it(number):
    said = " ".join(gates.reading(found(number, number)))
    assert f"{number:.3f}" in said
    concluded = ("comes out", "did not have to be", "of a signal", "fails", "not the sign")
    assert [words for words in concluded if words in said] == []


def test_what_the_numbers_bear_is_concluded():
    numbers = found(1.0, 1.0)
    for row, recall in {"mlp": 0.39, "neither": 0.39, "key": 0.3}.items():
        numbers[row] = {**numbers[row], "recall": Measure(recall, 0.0, 3)}
    said = " ".join(gates.reading(numbers))
    concluded = ("comes out", "did not have to be", "of a signal", "fails", "not the sign")
    assert [words for words in concluded if words not in said] == []


def test_the_settings_are_those_that_the_gates_are_trained_with():
    told = gates.settings(QUICK)
    assert (told["kept"], told["streams_per_step"]) == (gating.KEPT, gating.STREAMS)
    assert told["learning_rate"] == 0.01
