"""Kernels of `nn` in Triton's interpreter do as torch does, and compile for a GPU."""

from itertools import product

import pytest
import torch

from tests.kernels.processes import needs_triton, run
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


READS = list(product(("mass", "distinct"), ("mean", "first", "last")))


@pytest.mark.parametrize(("mode", "value"), READS)
def test_a_step_writes_and_reads_what_torch_does(wrong, mode, value):
    worst, *counted = wrong[f"steps {mode} {value}"]
    assert worst < 2e-6
    assert counted == [0, 0, 0, 0]


def test_a_step_counts_the_keys_and_values_it_refuses_and_holds_none_of_them(wrong):
    assert wrong["refused"] == [4, 1, 1, 0.0, True]


def test_the_kernels_read_what_torch_reads(wrong):
    assert max(wrong["reads"]) < 2e-6


def test_what_refused_tokens_hold_reaches_no_read(wrong):
    assert wrong["strange"] == [0, 0.0, 0.0]


def test_a_long_read_in_16_bits_goes_to_the_kernels_and_no_other_does(wrong):
    times_looked, mass, first = wrong["dispatched"]
    assert times_looked == 2
    assert mass < 4e-3
    assert first < 4e-3


@needs_triton
@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_and_keeps_its_products():
    for name, (shared, asked, given) in run("tests.kernels.compile").items():
        assert shared <= 227 * 1024, name
        assert given >= asked, name
