"""`kernels.allocate` and the kernels it launches: the slots that torch opens."""

import pytest
import torch

from tests.nn.cases import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernels_open_the_slots_that_torch_opens(wrong, kind):
    assert wrong[f"allocation {kind}"] == [0, 0, 0]


def test_allocations_by_the_kernels_and_by_torch_are_equal(wrong):
    assert [sum(counts) for counts in wrong["fields"]] == [0, 0, 0]


def test_the_kernels_leave_out_keys_that_are_not_of_length_one(wrong):
    assert wrong["left out"] == [2, 7, 0, 0, 0]


@pytest.mark.gpu
@pytest.mark.parametrize(("D", "noise", "tau"), [(128, 0.1, 0.3), (64, 1.0, 0.5), (16, 0.7, 0.15)])
def test_on_a_gpu_the_slots_are_those_of_torch(seed, D, noise, tau):
    from distinctkv.nn.functional import allocate, unit

    torch.manual_seed(seed)
    things = unit(torch.randn(400, D, device="cuda"))
    picks = torch.randint(0, 400, (2, 3000, 2), device="cuda")
    keys = unit(things[picks] + noise * D**-0.5 * torch.randn(2, 3000, 2, D, device="cuda"))
    got, want = (allocate(keys, tau, impl=impl) for impl in ("triton", "torch"))
    for a, b in zip(got[:6], want[:6], strict=True):
        assert torch.equal(a, b)
