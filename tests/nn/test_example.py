"""The example runs: a few steps are enough to see that."""

import runpy
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
WITHOUT_TORCH = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1])"


def run(*arguments):
    return CliRunner().invoke(runpy.run_path(str(EXAMPLE))["main"], arguments)


def test_the_example_trains_and_shows_its_slots(seed):
    said = run("3", str(seed)).stdout
    assert "slots" in said
    assert "recall 0." in said
    assert "tau 0.15: recall" in said


def test_its_help_says_what_it_takes():
    answer = run("--help")
    assert answer.exit_code == 0
    assert "[STEPS] [SEED]" in answer.output
    assert "STEPS is 400" in answer.output


def test_without_torch_it_says_so_in_one_line():
    given = [sys.executable, "-c", WITHOUT_TORCH, str(EXAMPLE)]
    answer = subprocess.run(given, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stderr == "this example needs torch: pip install '.[torch]'\n"
