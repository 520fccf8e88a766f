"""Tests of study ``gates``."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from distinctkv.studies import gates


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
