"""A tiny model and a text that repeats itself; without transformers there is nothing to test."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("torch") and find_spec("transformers") else ["test_*.py"]


@pytest.fixture(scope="session")
def tiny(seed):
    """One Llama for all tests that leave it as it is."""
    from tests.hf.models import build

    return build(seed)


@pytest.fixture
def text(seed):
    """One stream of 120 tokens: 20 lines, of which 4 are distinct."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    lines = torch.randint(2, 64, (4, 6), generator=generator)
    order = torch.randint(0, 4, (20,), generator=generator)
    return lines[order].reshape(1, -1)


@pytest.fixture(autouse=True)
def no_grad():
    import torch

    with torch.no_grad():
        yield
