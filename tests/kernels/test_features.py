"""The kernels that route tokens on CUDA: interpreted on the CPU, compiled for a GPU, run on one."""

import pytest
import torch

from distinctkv.hf import merge
from tests.kernels.processes import needs_triton, run

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.mark.slow
@needs_triton
def test_interpreted_kernels_do_as_torch_does(seed):
    found = run("tests.kernels.interpret_features", str(seed))
    poured, featured, routed, turned, gathered = found
    assert max(map(max, poured)) < 1e-5
    assert featured == [[0] * 11] * 3
    assert routed == [[0] * 6] * 10
    assert max(map(max, turned)) < 1e-5
    assert max(map(max, gathered)) < 1e-6


@needs_triton
@pytest.mark.parametrize("width", [64, 128, 256, 512])
@pytest.mark.parametrize("n_tokens", [16, 8192])
def test_what_a_block_needs_lies_beside_the_processors(width, n_tokens):
    from distinctkv.kernels.features import cut

    for most in (128, 64):
        how = cut(n_tokens, width, most)
        # Two halves of two bytes: the block, and the tiles in flight.
        needed = 4 * width * (how["R"] + how["T"] * how["num_stages"])
        assert needed <= 232448  # what a processor of Hopper lends to one block


@pytest.mark.gpu
@needs_triton
@pytest.mark.parametrize("F", [128, 129])
def test_on_a_gpu_owners_are_those_of_float64(seed, F):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    here = {"device": "cuda", "generator": generator}
    book = torch.randn(4, 400, F, **here)
    tokens = book.repeat(1, 5, 1) + 0.2 * torch.randn(4, 2000, F, **here)
    tokens[..., 128:] = torch.arange(2000, device="cuda")[:, None] / 512
    present = torch.rand(4, 2000, **here) < 0.95
    none, empty = tokens[:, :0], torch.zeros(4, dtype=torch.int64, device="cuda")
    got = merge.allocate(tokens, present, none, present[:, :0], empty, 40.0)
    reach = torch.full((4, 2000), 40.0, dtype=torch.float64, device="cuda")
    wide = tokens.double()
    want = merge._allocate(wide, present, wide[:, :0], present[:, :0], empty, reach)
    assert torch.equal(got.owner, want.owner)
    assert torch.equal(got.lengths, want.lengths)
