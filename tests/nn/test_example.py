"""The example runs: a few steps are enough to see that."""

import runpy
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"
WITHOUT_TORCH = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1])"


def test_the_example_trains_and_shows_its_slots(seed):
    main = runpy.run_path(str(EXAMPLE))["main"]
    said = CliRunner().invoke(main, ["3", str(seed)]).stdout
    assert "slots" in said
    assert "tau 0.15: recall" in said


def test_without_torch_it_says_so_in_one_line():
    given = [sys.executable, "-c", WITHOUT_TORCH, str(EXAMPLE)]
    answer = subprocess.run(given, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "pip install '.[torch]'" in answer.stderr
