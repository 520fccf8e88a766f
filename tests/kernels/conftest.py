"""What the interpreted kernels said, once for all tests."""

from importlib.util import find_spec

import pytest

from tests.kernels.processes import run


@pytest.fixture(scope="session")
def wrong(seed):
    """By the name of an operation how far the interpreted kernels are from torch."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'distinctkv[gpu]'")
    return run("tests.kernels.interpret", str(seed))
