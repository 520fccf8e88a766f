"""A pytest plugin for GPU tests where Hypothesis is not installed.

``python -m pytest --noconftest -p tests.nn.gpu_plugin -o addopts= -o filterwarnings=default
--import-mode=importlib -m gpu tests/nn/test_cuda.py tests/kernels/test_allocate.py ...``
"""

import numpy as np
import pytest
import torch

from tests.nn.conftest import batch as batch


@pytest.fixture(scope="session")
def seed() -> int:
    return 0


@pytest.fixture
def rng(seed) -> np.random.Generator:
    return np.random.default_rng(seed)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
