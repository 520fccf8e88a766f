"""Rules of other caches on the same layer: as in the baselines, and schedules that fit."""

import numpy as np
import pytest
import torch

from distinctkv.nn import Heads
from distinctkv.nn.baselines import KVMAttention, OVQAttention
from reproduction.baselines import KVM, OVQ

THETA = 0.05
PAIRS = [(KVMAttention, KVM, "factor", 1.5), (OVQAttention, OVQ, "limit", 20)]
LAYERS = [KVMAttention, OVQAttention]


def stream(seed, n=59, width=8):
    """Unit keys that repeat with noise, and values."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(12, width))[rng.integers(12, size=n)]
    keys = keys + 0.1 * rng.normal(size=keys.shape)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    return keys.astype(np.float32), rng.normal(size=(n, width)).astype(np.float32)


@pytest.mark.parametrize(("layer", "peer", "name", "number"), PAIRS)
def test_a_layer_reads_what_its_peer_reads(layer, peer, name, number, seed):
    keys, values = stream(seed)
    mixer = layer(16, Heads(count=1, size=8), chunk=4)
    setattr(mixer, name, number)
    memory = peer(number, chunk=4, theta=THETA)
    memory.write(keys, values)
    q, k, v = (torch.from_numpy(x)[None, None] for x in (keys / THETA, keys, values))
    state = mixer.start(1)
    last = mixer.attend(q, k, v, state)[0, 0, -1]
    assert state.counts.shape[2] + state.tail_keys.shape[2] == len(memory)
    np.testing.assert_allclose(last, memory.read(keys[-1:])[0], atol=2e-5)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("n_slots", [20, 33, 70])
def test_a_schedule_ends_with_the_slots_it_was_fitted_to(layer, n_slots, seed):
    torch.manual_seed(seed)
    mixer, state = layer(16, Heads(count=2, size=8)).eval(), None
    mixer.fit(n_slots, 160)
    state = mixer.start(2)
    mixer(torch.randn(2, 160, 16), state)
    assert state.counts.shape == (2, 2, n_slots)
    assert float(state.counts.sum()) == 2 * 2 * 160


def test_more_slots_than_tokens_are_refused():
    with pytest.raises(ValueError, match="40 tokens never fill 40 slots"):
        OVQAttention(16).fit(40, 40)


@pytest.fixture(params=LAYERS)
def mixer(request, seed):
    torch.manual_seed(seed)
    return request.param(16, Heads(count=2, size=8), chunk=4).eval()


@pytest.fixture
def x(mixer):
    """Two streams of 23 occurrences of six tokens."""
    return torch.randn(6, 16)[torch.randint(6, (2, 23))]


@torch.no_grad()
@pytest.mark.parametrize("cuts", [[], [1], [9, 10, 17], list(range(1, 23))], ids=len)
def test_a_stream_may_be_cut_anywhere(mixer, x, cuts):
    state = mixer.start(2)
    parts = [mixer(part, state) for part in torch.tensor_split(x, cuts, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), mixer(x), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_token_changes_no_output_before_it(mixer, x):
    other = x.clone()
    other[:, 14:] = -other[:, 14:].flip(1)
    before, after = mixer(x), mixer(other)
    torch.testing.assert_close(before[:, :14], after[:, :14], rtol=0, atol=1e-6)
    assert (before[:, 14:] - after[:, 14:]).abs().max() > 1e-4


def test_gradients_reach_every_weight(mixer, x):
    mixer.train()(x).square().sum().backward()
    for name, weight in mixer.named_parameters():
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


@torch.no_grad()
def test_picked_rows_go_on_as_they_would_have(mixer, x):
    state = mixer.start(2)
    mixer(x[:, :10], state)
    rows = torch.tensor([1, 0, 1])
    both = mixer(x[rows, 10:], state.index_select(rows))
    torch.testing.assert_close(both, mixer(x)[rows, 10:], rtol=0, atol=1e-5)


def test_padding_is_refused(mixer, x):
    mask = torch.ones(2, 23, dtype=torch.bool)
    mask[0, 0] = False
    with pytest.raises(ValueError, match="1 tokens are padding"):
        mixer(x, mask=mask)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_chunk_is_one_token_or_more(layer):
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        layer(16, chunk=0)
