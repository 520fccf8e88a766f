"""What Hypothesis draws is the same in every order of the tests."""

import sys
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn():
    """The examples of a test that takes any."""
    seen = []

    @given(st.lists(st.integers()))
    def draw(numbers):
        seen.append(numbers)

    draw()
    return seen


def test_examples_do_not_change_with_what_is_loaded(tmp_path, monkeypatch):
    if not settings().derandomize:
        pytest.skip("this profile draws new examples")
    before, late = drawn(), ModuleType("late")
    late.__file__ = str(tmp_path / "late.py")
    (tmp_path / "late.py").write_text(f"NUMBERS = {[*range(10**6, 10**6 + 99)]}\n")
    monkeypatch.setitem(sys.modules, "late", late)
    assert drawn() == before
