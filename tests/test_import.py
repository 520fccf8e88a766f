"""`import distinctkv` costs NumPy; the command line answers before anything heavy loads."""

import subprocess
import sys
from time import perf_counter

import pytest

import distinctkv

HEAVY = {"jinja2", "matplotlib", "numba", "scipy", "sklearn", "torch", "transformers"}

IMPORT = """
import sys
import distinctkv
distinctkv.Cache
print(*sys.modules)
"""

HELP = """
import sys
from distinctkv.cli import main
sys.argv = ["distinctkv", "--help"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_the_package_imports_nothing_heavier_than_numpy():
    loaded = set(run(IMPORT).stdout.split())
    assert "numpy" in loaded
    assert not loaded & (HEAVY | {"click", "rich", "safetensors.torch"})


def test_the_help_loads_nothing_heavy():
    start = perf_counter()
    answer = run(HELP)
    print(f"distinctkv --help answered in {perf_counter() - start:.2f} s")
    assert "Usage" in answer.stdout
    assert not set(answer.stderr.split()) & (HEAVY | {"numpy", "rich"})


def test_every_public_name_is_there_and_no_other():
    assert all(getattr(distinctkv, name).__name__ == name for name in distinctkv.__all__)
    assert set(distinctkv.__all__) <= set(dir(distinctkv))
    with pytest.raises(AttributeError, match="no attribute 'Cash'"):
        getattr(distinctkv, "Cash")  # noqa: B009
