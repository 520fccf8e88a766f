"""Every kernel compiles for a GPU; the interpreter takes more than the compiler does."""

import pytest


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_and_keeps_its_products(run):
    for name, (shared, asked, given) in run("tests.kernels.compile").items():
        assert shared <= 227 * 1024, name
        assert given >= asked, name
