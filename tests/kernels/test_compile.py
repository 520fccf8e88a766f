"""Every kernel compiles for a GPU; the interpreter takes more than the compiler does."""

import pytest

from tests.kernels.processes import needs_triton, run


@needs_triton
@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_and_keeps_its_products():
    for name, (shared, asked, given) in run("tests.kernels.compile").items():
        assert shared <= 227 * 1024, name
        assert given >= asked, name
