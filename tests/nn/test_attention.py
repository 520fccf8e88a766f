"""Attention mixers: how keys are made and centred, and that a window is a window."""

import pytest
import torch

from distinctkv.nn.attention import (
    FullAttention,
    Heads,
    Projection,
    SlidingWindowAttention,
    attend,
    attend_near,
)
from distinctkv.nn.mixer import ShortConv

E, HEADS = 12, Heads(count=2, size=6)


@pytest.fixture
def normal(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator)


@pytest.mark.parametrize("before", [0, 2, 9])
@pytest.mark.parametrize("window", [1, 3, 4, 50])
def test_a_window_is_attention_under_a_banded_mask(normal, window, before):
    q, k, v = normal(2, 10, 2, 4), normal(2, 10 + before, 2, 4), normal(2, 10 + before, 2, 4)
    lag = torch.arange(10)[:, None] + before - torch.arange(10 + before)
    wanted = attend(q, k, v, (lag >= 0) & (lag < window))
    torch.testing.assert_close(attend_near(q, k, v, window), wanted)


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [None, True])
def test_full_attention_compiles_for_any_shape(normal, dynamic):
    torch._dynamo.reset()
    mixer = FullAttention(E, HEADS).eval()
    compiled = torch.compile(mixer, fullgraph=True, dynamic=dynamic, backend="eager")
    for streams, length in ((2, 9), (3, 7)) if dynamic else ((2, 9), (2, 7), (2, 11), (2, 1)):
        x, mask = normal(streams, length, E), torch.ones(streams, length, dtype=torch.bool)
        mask = mask if dynamic else None
        torch.testing.assert_close(compiled(x, mask=mask), mixer(x, mask=mask))


def test_a_window_keeps_no_more_than_it_needs(normal):
    mixer = SlidingWindowAttention(E, HEADS, window=4).eval()
    state = mixer.start(2)
    for length in (2, 5, 1, 30):
        mixer(normal(2, length, E), state)
    assert state.keys.shape[1] == 3


def test_keys_have_length_one_and_queries_their_scale(normal):
    project = Projection(E, Heads(count=2, size=6, scale=5.0))
    q, k, _, _ = project(normal(2, 9, E))
    torch.testing.assert_close(k.norm(dim=-1), torch.ones(2, 9, 2))
    torch.testing.assert_close(q.norm(dim=-1), torch.full((2, 9, 2), 5.0))


def test_centring_takes_the_common_part_off(normal):
    project = Projection(E, HEADS)
    x = normal(4, 50, E) + 5
    alike = project(x)[1].mean((0, 1)).norm(dim=-1)
    apart = project.eval()(x)[1].mean((0, 1)).norm(dim=-1)
    assert (alike > 0.5).all()  # the first batch meets a mean of zero
    assert (apart < 0.3).all()


def test_only_training_without_a_past_moves_the_mean(normal):
    project = Projection(E, HEADS)
    x = normal(2, 9, E)
    past = project.conv.start(2)
    project(x, past)
    project.eval()(x)
    assert project.mean.abs().max() == 0
    project.train()(x)
    assert project.mean.abs().max() > 0


def test_the_mean_follows_slowly_after_the_first_batches(normal):
    project = Projection(E, HEADS)
    for _ in range(99):
        project(normal(2, 50, E))
    before = project.mean.clone()
    project(normal(2, 50, E) + 1e4)
    step = project.mean - before
    project(normal(2, 50, E) + 1e4)
    torch.testing.assert_close(project.mean - before, 1.9 * step, rtol=0.02, atol=0.05)


def test_a_batch_that_is_not_finite_leaves_the_mean_alone(normal):
    project = Projection(E, HEADS)
    project(normal(2, 9, E))
    mean = project.mean.clone()
    project(torch.full((2, 9, E), torch.nan))
    assert torch.equal(project.mean, mean)
    assert project.batches == 1


@pytest.mark.parametrize("lag", [1, 2])
def test_with_a_lag_keys_alone_start_as_a_token_before_theirs(lag, normal, seed):
    x, found = normal(1, 7, E), []
    for behind in (0, lag):
        torch.manual_seed(seed)
        project = Projection(E, Heads(count=2, size=6, centre=False, lag=behind)).eval()
        found.append(project(x))
    raw = project.in_proj(x).reshape(1, 7, 3, 2, 6)[:, :-lag, 1]
    torch.testing.assert_close(found[1][1][:, lag:], torch.nn.functional.normalize(raw, dim=-1))
    for part in (0, 2, 3):
        assert torch.equal(found[0][part], found[1][part])


def test_a_short_convolution_looks_back_and_goes_on(normal):
    conv, x = ShortConv(3, taps=4), normal(2, 11, 3)
    whole, _ = conv(x)
    one, past = conv(x[:, :2])
    other, _ = conv(x[:, 2:], past)
    torch.testing.assert_close(torch.cat([one, other], 1), whole)
    dense = torch.nn.functional.conv1d(
        torch.nn.functional.pad(x.mT, (3, 0)), conv.weight.T[:, None], conv.bias, groups=3
    )
    torch.testing.assert_close(whole, dense.mT)
