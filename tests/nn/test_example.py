"""The example runs: a few steps are enough to see that."""

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"


def test_the_example_trains_and_shows_its_slots(capsys, seed):
    runpy.run_path(str(EXAMPLE))["main"](steps=3, seed=seed)
    said = capsys.readouterr().out
    assert "slots" in said
    assert "recall 0." in said
    assert "tau 0.15: recall" in said


def test_the_example_is_short():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 60
