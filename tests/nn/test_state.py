"""States carried on: by the layer they are of, compiled, cut off from gradients, said in words."""

import pytest
import torch

from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    Heads,
    HybridLM,
    Mamba2,
    Reading,
)
from distinctkv.nn.baselines import KVMAttention
from distinctkv.nn.hybrid import MIXERS as NAMES
from distinctkv.policy import Concentration
from tests.nn.test_mixers import HEADS, MIXERS, E, _tensors

KINDS = {
    **{name: MIXERS[name] for name in ("mamba2", "diagonal", "delta", "full", "window")},
    **{name: MIXERS[name] for name in ("distinct", "distinct-first", "distinct-window")},
    "window-2": MIXERS["window-2"],
    "distinct-bf16": MIXERS["distinct-bf16"],
    "kvm": lambda: KVMAttention(E, HEADS),
    "other heads": lambda: FullAttention(E, Heads(1, 16)),
    "other states": lambda: Mamba2(E, states=5, head=8, chunk=8),
}


COMPILED = ("mamba2", "diagonal", "delta", "full", "window", "distinct-first", "distinct-window")


def held(state):
    return [part for value in vars(state).values() for part in _tensors(value)]


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_a_state_goes_on_with_its_own_kind_of_layer_alone(name, seed):
    torch.manual_seed(seed)
    x, layer = torch.randn(2, 3, E), KINDS[name]().eval()
    for other in KINDS:
        state = KINDS[other]().start(2)
        before = [part.clone() for part in held(state)]
        if other == name:
            layer(x, state)
            continue
        with pytest.raises(ValueError, match=r"started by .* use one state for each layer"):
            layer(x, state)
        assert all(torch.equal(a, b) for a, b in zip(before, held(state), strict=True))


def model(*layers):
    return HybridLM(11, E, [KINDS[name]() for name in layers]).eval()


@torch.no_grad()
@pytest.mark.parametrize("layers", [("mamba2",), ("distinct", "mamba2"), ("mamba2", "full")])
def test_a_model_goes_on_from_its_own_states_alone(layers):
    mine, tokens = model("mamba2", "distinct"), torch.tensor([[1, 2, 3]])
    state = model(*layers).start(1)
    with pytest.raises(ValueError, match="use one state for each"):
        mine(tokens, state)
    assert not state.interrupted
    with pytest.raises(ValueError, match="use one state for each"):
        mine(tokens, mine.start(2))


@torch.no_grad()
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) for name in ("distinct", *COMPILED)],
)
def test_a_model_with_a_state_compiles_whole_and_steps(name, seed):
    torch.manual_seed(seed)
    torch._dynamo.reset()
    plain = model(name)
    words = {"fullgraph": True, "backend": "aot_eager"}
    prompt, step = torch.compile(plain, **words), torch.compile(plain.step, **words)
    tokens, said = torch.randint(11, (2, 14)), []
    for first, next_ in ((prompt, step), (plain, plain.step)):
        state = plain.start(2, room=32)
        parts = [first(tokens[:, :8], state)]
        parts += [next_(token, state)[:, None] for token in tokens[:, 8:12].T]
        parts.append(plain(tokens[:, 12:], state))
        said.append(torch.cat(parts, 1))
        state.check()
    torch.testing.assert_close(*said, rtol=0, atol=1e-5)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", ["distinct", *COMPILED])
def test_padding_before_a_state_compiles_whole(name, seed):
    torch.manual_seed(seed)
    torch._dynamo.reset()
    layer, x = KINDS[name]().eval(), torch.randn(2, 9, E)
    real = torch.arange(9) >= torch.tensor([[0], [4]])
    said = []
    for run in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        state = layer.start(2)
        said.append([run(x, state, real), *(part for part in held(state) if part.ndim < 5)])
    for a, b in zip(*said, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@torch.no_grad()
def test_compiled_room_is_what_the_state_was_started_with(seed):
    torch.manual_seed(seed)
    torch._dynamo.reset()
    layer = DistinctAttention(E, HEADS, concentration=Concentration.fixed(0.0)).eval()
    x, state = torch.randn(1, 9, E), layer.start(1, room=4)
    torch.compile(layer, fullgraph=True, backend="eager")(x, state)
    assert state.slots.capacity == 4
    with pytest.raises(ValueError, match=r"novel tokens found all 4 slots taken.*room"):
        state.check()


@torch.no_grad()
def test_room_that_was_asked_for_is_kept(seed):
    torch.manual_seed(seed)
    layer = MIXERS["distinct"]().eval()
    state = layer.start(2, room=100)
    layer(torch.randn(2, 9, E), state)
    assert state.slots.capacity == 100
    layer(torch.randn(2, 200, E), state)
    assert state.slots.capacity >= 100


@pytest.mark.parametrize("name", KINDS)
def test_segments_are_trained_one_by_one(name, seed):
    """Without `detach` the second segment goes back through the first, which is gone."""
    torch.manual_seed(seed)
    mixer, x = KINDS[name](), torch.randn(2, 8, E)
    state = mixer.start(2)
    for part in x.split(4, 1):
        state = state.detach()
        mixer.zero_grad()
        mixer(part, state).square().sum().backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in mixer.parameters())
    assert not any(part.requires_grad for part in held(state.detach()))


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_a_copy_of_a_state_is_not_touched(name, seed):
    torch.manual_seed(seed)
    lm, tokens = model(name), torch.randint(11, (2, 12))
    state = lm.start(2)
    lm(tokens[:, :6], state)
    copy = state.clone()
    want = lm(tokens[:, 6:], state)
    for other in (copy.clone, copy.detach, lambda: copy):
        assert torch.equal(lm(tokens[:, 6:], other()), want)


def test_states_and_layers_say_what_they_are():
    layer = DistinctAttention(E, HEADS, reading=Reading(window=3), slot_dtype=torch.bfloat16)
    words = "heads=2, size=8, taps=4, read=mass mean, window=3, slots=bfloat16"
    assert f"(tau=0.15, {words}" in repr(layer).replace("\n  ", "")
    state = layer.start(2)
    slots = repr(state.slots)
    assert slots == f"SlotState(2 x 2 streams, up to 0 of 16 slots, {state.slots.nbytes} bytes)"
    want = f"State(DistinctAttention({words}), 2 streams, {slots}, {state.nbytes} bytes)"
    assert repr(state) == want
    lm = HybridLM(11, 64, list(NAMES))
    whole = lm.start(3)
    assert str(whole).startswith(f"ModelState(6 blocks, {whole.nbytes} bytes:\n")
    assert all(repr(block) in str(whole) for block in whole.blocks)
    assert "window=128" in repr(lm)
