"""`kernels.slot_decode`: one token is written and reads."""

from itertools import product

import pytest

READS = list(product(("mass", "distinct"), ("mean", "first", "last")))


@pytest.mark.parametrize(("mode", "value"), READS)
def test_a_step_writes_and_reads_what_torch_does(wrong, mode, value):
    worst, *counted = wrong[f"steps {mode} {value}"]
    assert worst < 2e-6
    assert counted == [0, 0, 0, 0]


def test_a_step_counts_the_keys_and_values_it_refuses_and_holds_none_of_them(wrong):
    assert wrong["refused"] == [4, 1, 1, 0.0, True]
