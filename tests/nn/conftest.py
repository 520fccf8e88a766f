"""Tensors to try the functions on."""

from dataclasses import dataclass

import pytest
import torch

from distinctkv.nn.functional import unit


@dataclass
class Batch:
    """Queries, keys of length one, values and log gates, and a mask with padding on the left."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    log_gate: torch.Tensor
    mask: torch.Tensor


@pytest.fixture(autouse=True)
def seeded(seed):
    """Weights and tokens that torch draws are the same in each run."""
    torch.manual_seed(seed)


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


@pytest.fixture
def batch(seed):
    """A maker of batches whose keys are noisy repeats of a few things."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def make(B=2, L=23, H=2, D=4, C=3, *, group=1, things=5, noise=0.2, dtype=torch.float64):
        which = torch.randint(0, things, (B, L, H), generator=random)
        k = unit(normal(things, D)[which] + noise * normal(B, L, H, D))
        start = torch.randint(0, L // 3 + 1, (B, 1), generator=random)
        tensors = normal(B, L, H * group, D), k, normal(B, L, H, C), -normal(B, L, H).abs()
        return Batch(*(x.to(dtype) for x in tensors), torch.arange(L) >= start)

    return make
