"""Sizes given to ``distinctkv chat``, and what is told before torch is imported."""

import sys
from math import inf

import click
import pytest

from distinctkv.cli.chat import command

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--model", "gone"], "gone holds no model (no config.json); name a folder"),
        (["--kept", "25"], "25.0 is not in the range 0<x<=1; 0.25 holds a quarter"),
        (["--kept", "0.5", "--budget", "90"], "got --kept and --budget; choose one"),
        (["--threshold", "inf"], "to merge nothing say --kept 1"),
        (["--budget", "5"], "5 is not in the range x>=37; the first 4 tokens and"),
    ],
)
def test_simple_mistakes_are_told_before_torch_is_needed(chat, monkeypatch, given, said):
    monkeypatch.setitem(sys.modules, "distinctkv.hf", None)  # so that importing it fails
    assert "chat needs more" in chat().stderr
    result = chat(*given)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("threshold", value) for value in (-0.1, 0.0, 1e300, inf)),
        *(("kept", value) for value in (0.0, 1e-300, 1.0, 1.001)),
        *(("budget", value) for value in (0, 36, 37)),
    ],
)
def test_sizes_are_refused_by_the_rule_of_the_cache(name, value):
    from distinctkv.hf.plan import Plan

    def refused(make):
        try:
            make()
        except (ValueError, click.BadParameter):
            return True
        return False

    option = next(option for option in command.params if option.name == name)
    by_us = refused(lambda: option.type.convert(str(value), option, None))
    assert by_us == refused(lambda: Plan(**{name: value}))


def test_what_is_no_number_is_told_before_the_model_is_loaded(chat, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert "--kept must lie in (0, 1], got nan" in chat("--kept", "nan", model=tmp_path).stderr
