"""Rules of other caches on the same layer: as in the baselines, and schedules that fit."""

import numpy as np
import pytest
import torch

from distinctkv.nn import Heads
from distinctkv.nn.baselines import KVMAttention, OVQAttention
from reproduction.baselines import KVM, OVQ

THETA = 0.05
PAIRS = [(KVMAttention, KVM, "factor", 1.5), (OVQAttention, OVQ, "limit", 20)]


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


@pytest.mark.parametrize("layer", [KVMAttention, OVQAttention])
@pytest.mark.parametrize("n_slots", [20, 33, 70])
def test_a_schedule_ends_with_the_slots_it_was_fitted_to(layer, n_slots):
    mixer, state = layer(16, Heads(count=2, size=8)).eval(), None
    mixer.fit(n_slots, 160)
    state = mixer.start(2)
    mixer(torch.randn(2, 160, 16), state)
    assert state.counts.shape == (2, 2, n_slots)
    assert float(state.counts.sum()) == 2 * 2 * 160
