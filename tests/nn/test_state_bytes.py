"""What every mixer holds: as many bytes as it says, in 32 bits, never poisoned, never half done."""

from copy import deepcopy

import pytest
import torch

from distinctkv.nn.attention import FullAttention, Heads
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.gates import WriteGate
from distinctkv.policy import Concentration
from tests.nn.test_mixers import MIXERS, E, _tensors


@pytest.fixture(params=MIXERS)
def name(request):
    return request.param


@pytest.fixture
def mixer(name, seed):
    torch.manual_seed(seed)
    return MIXERS[name]().eval()


@pytest.fixture
def x(seed):
    return torch.randn(2, 19, E, generator=torch.Generator().manual_seed(seed))


def held(state):
    return [part for value in vars(state).values() for part in _tensors(value)]


@torch.no_grad()
def test_no_more_memory_is_held_than_is_said(mixer, x):
    state = mixer.start(2)
    for part in (x, x[:, :1], x[:, :7]):
        mixer(part, state)
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in held(state)}
        assert sum(storage.nbytes() for storage in storages.values()) <= state.nbytes


@torch.no_grad()
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_a_model_of_16_bits_runs_steps_and_keeps_its_state_in_32(name, mixer, x, kind):
    exact = mixer(x)
    mixer.to(kind)
    low, state = x.to(kind), mixer.start(2)
    parts = [mixer(low[:, :8], state)]
    parts += [mixer.step(low[:, t], state)[:, None] for t in range(8, 19)]
    whole = mixer(low)
    assert whole.dtype == kind
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=0.008)
    torch.testing.assert_close(whole.float(), exact, rtol=0, atol=0.06)
    few = {t.dtype for t in held(state) if t.is_floating_point() and t.dtype.itemsize < 4}
    assert not few or "bf16" in name or few == {kind}


def test_tau_and_the_mean_key_are_not_rounded_with_the_weights(x):
    mixer = DistinctAttention(E, Heads(2, 8), concentration=Concentration.fixed(0.15))
    mixer(x)
    mean = mixer.project.mean.clone()
    mixer.bfloat16()
    assert float(mixer.tau) == 0.15
    assert torch.equal(mixer.project.mean, mean)
    assert mixer.double().project.mean.dtype == torch.float64


@torch.no_grad()
def test_a_token_that_is_not_finite_is_an_error_and_changes_nothing(mixer, x):
    state = mixer.start(2)
    mixer(x, state)
    before = [part.clone() for part in held(state)]
    for bad in (torch.nan, torch.inf):
        y = x.clone()
        y[1, 4] = bad
        with pytest.raises(ValueError, match="1 of 38 tokens hold nan or inf"):
            mixer(y, state)
    assert all(torch.equal(a, b) for a, b in zip(before, held(state), strict=True))


def test_zero_tokens_have_small_gradients(mixer):
    mixer.train()
    zero = torch.zeros(1, 5, E, requires_grad=True)
    mixer(zero).sum().backward()
    assert zero.grad.abs().max() < 1e3


@torch.no_grad()
def test_a_prefill_leaves_room_for_its_slots_and_little_more(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(20, E, generator=generator)[torch.randint(20, (1, 900), generator=generator)]
    for reading in (Reading(), Reading(window=8)):
        mixer = DistinctAttention(E, Heads(2, 8, taps=1), reading=reading).eval()
        state, full = mixer.start(1), FullAttention(E, Heads(2, 8, taps=1)).eval()
        tokens = full.start(1)
        full(x, tokens)
        for part in x.split(300, 1):
            mixer(part, state)
            assert int(state.slots.n_slots.max()) <= 20
            assert state.slots.capacity <= 32
        assert 10 * state.nbytes < tokens.nbytes


@torch.no_grad()
def test_a_stream_of_novel_tokens_is_held_with_a_quarter_to_spare(seed):
    x = torch.randn(1, 400, E, generator=torch.Generator().manual_seed(seed))
    heads = Heads(1, 16, taps=1)
    mixer = DistinctAttention(E, heads, concentration=Concentration.fixed(0.0)).eval()
    state = mixer.start(1)
    mixer(x[:, :300], state)
    for token in x[:, 300:].unbind(1):
        mixer.step(token, state)
        used = int(state.slots.n_slots.max())
        assert used <= state.slots.capacity <= 1.25 * used + 17
    assert used == 400


def test_a_model_in_training_can_be_copied(x):
    mixer = DistinctAttention(E, Heads(2, 8), reading=Reading(window=1), gate=WriteGate(E))
    x = torch.nn.Linear(E, E)(x)
    mixer(x)
    copy = deepcopy(mixer)
    assert mixer.write_loss() > 0
    assert copy.write_loss() == 0
    assert torch.equal(copy.eval()(x), mixer.eval()(x))


@torch.no_grad()
@pytest.mark.parametrize("shape", [(2, 0, E), (0, 4, E)], ids=["no tokens", "no streams"])
def test_nothing_in_nothing_out(mixer, shape):
    state = mixer.start(shape[0])
    before = [part.clone() for part in held(state)]
    assert mixer(torch.zeros(shape)).shape == shape
    assert mixer(torch.zeros(shape), state).shape == shape
    assert all(torch.equal(a, b) for a, b in zip(before, held(state), strict=True))
