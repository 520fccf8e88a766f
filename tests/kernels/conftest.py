"""What the interpreted kernels said, once for all tests."""

from importlib.util import find_spec

import pytest

from tests.hf.conftest import text as text
from tests.kernels.processes import run


@pytest.fixture(scope="session")
def wrong(seed):
    """By the name of an operation how far the interpreted kernels are from torch."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'distinctkv[gpu]'")
    return run("tests.kernels.interpret", str(seed))


@pytest.fixture
def no_grad():
    """For tests of a language model's cache, which keeps no gradients."""
    import torch

    with torch.no_grad():
        yield
