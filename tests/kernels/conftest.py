"""Kernels that Triton's interpreter runs on the CPU, in a process of its own."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def call(module, *words):
    """What a module prints as JSON, in a process of its own."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'distinctkv[gpu]'")
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def run():
    """`call`."""
    return call


@pytest.fixture(scope="session")
def wrong(run, seed):
    """By the name of an operation how far the interpreted kernels are from torch."""
    return run("tests.kernels.interpret", str(seed))
