"""Padding is as if it were not there: in every mixer, wherever it stands, whatever it holds."""

import pytest
import torch

from distinctkv.nn.attention import Heads, Projection
from distinctkv.nn.baselines import KVMAttention
from distinctkv.nn.distinct import DistinctAttention
from distinctkv.nn.hybrid import HybridLM
from distinctkv.nn.ssm import Mamba2
from tests.nn.test_mixers import MIXERS, E

L = 23


@pytest.fixture(params=MIXERS)
def mixer(request, seed):
    torch.manual_seed(seed)
    mixer = MIXERS[request.param]()
    mixer(torch.randn(2, L, E))
    return mixer.eval()


@pytest.fixture
def x(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, E, generator=generator)[torch.randint(6, (4, L), generator=generator)]


@pytest.fixture
def mask(seed):
    """Padding on the left, on the right, here and there, and in all of a stream."""
    place = torch.arange(L)
    holes = torch.rand(L, generator=torch.Generator().manual_seed(seed)) > 0.4
    return torch.stack([place >= 6, place < 15, holes, place < 0])


@torch.no_grad()
def test_a_padded_stream_is_the_stream_alone(mixer, x, mask):
    padded = mixer(torch.where(mask[..., None], x, torch.nan), mask=mask)
    for stream, kept, y in zip(x, mask, padded, strict=True):
        alone = mixer(stream[None, kept])[0]
        torch.testing.assert_close(y[kept], alone, rtol=0, atol=2e-6)
    assert (padded[~mask] == 0).all()


@torch.no_grad()
def test_a_padded_stream_may_be_cut_anywhere(mixer, x, mask):
    state, parts = mixer.start(4), []
    for a, b in [(0, 5), (5, 6), (6, 7), (7, 20), (20, L)]:
        parts.append(mixer(x[:, a:b], state, mask[:, a:b]))
    torch.testing.assert_close(torch.cat(parts, 1), mixer(x, mask=mask), rtol=0, atol=1e-5)
    rest = mixer(x[:, :3], state)  # and it goes on without a mask
    for stream, kept, y in zip(x, mask, rest, strict=True):
        whole = mixer(torch.cat([stream[kept], stream[:3]])[None])[0, -3:]
        torch.testing.assert_close(y, whole, rtol=0, atol=1e-5)


def test_padding_takes_and_gives_no_gradient(mixer, x, mask):
    mixer.train()
    x = torch.where(mask[..., None], x, torch.nan).requires_grad_()
    loss = mixer(x, mask=mask).square().sum()
    if getattr(mixer, "gate", None) is not None:
        loss = loss + mixer.write_loss(torch.ones(4, L, dtype=torch.bool))
    loss.backward()
    assert all(weight.grad.isfinite().all() for weight in mixer.parameters())
    assert (x.grad[~mask] == 0).all()
    assert x.grad[mask].isfinite().all()


def test_a_layer_that_cannot_leave_tokens_out_says_so(x, mask):
    with pytest.raises(ValueError, match="sequences of one length"):
        KVMAttention(E, Heads(2, 8))(x, mask=mask)


def test_a_mask_of_another_shape_or_kind_is_refused(x, mask):
    mixer = MIXERS["full"]()
    for wrong in (mask[:, 1:], mask.int()):
        with pytest.raises(ValueError, match=r"mask must be bool \(4, 23\)"):
            mixer(x, mask=wrong)


def test_the_mean_key_is_that_of_the_real_tokens(x, mask):
    alone, padded = Projection(E, Heads(2, 8, taps=1)), Projection(E, Heads(2, 8, taps=1))
    padded.load_state_dict(alone.state_dict())
    alone(x[mask][None])
    padded(x, mask=mask)
    torch.testing.assert_close(padded.mean, alone.mean)


@pytest.fixture
def model(seed):
    torch.manual_seed(seed)
    layers = [Mamba2(E, states=4, head=8), DistinctAttention(E, Heads(2, 8))]
    return HybridLM(11, E, layers, expand=2).eval()


def test_prompts_of_different_lengths_are_answered_as_if_alone(model, seed):
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(seed))
    for kept in (torch.arange(9) >= 4, torch.arange(9) < 5):
        mask = torch.stack([torch.ones(9, dtype=torch.bool), kept])
        said = model.generate(tokens, 6, mask=mask)
        assert torch.equal(said[:1], model.generate(tokens[:1], 6))
        assert torch.equal(said[1:], model.generate(tokens[1:, kept], 6))


@torch.no_grad()
def test_the_logits_of_a_padded_batch_are_those_of_its_streams(model, seed):
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(seed))
    mask = torch.tensor([[False] * 3 + [True] * 6, [True] * 9])
    logits = model(tokens, mask=mask)
    torch.testing.assert_close(logits[0, 3:], model(tokens[:1, 3:])[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[1], model(tokens[1:])[0], rtol=0, atol=1e-5)


def test_a_prompt_of_padding_alone_is_refused(model):
    mask = torch.tensor([[True, True], [False, False]])
    with pytest.raises(ValueError, match="1 of 2 prompts have no real token"):
        model.generate(torch.zeros(2, 2, dtype=torch.long), 3, mask=mask)
