"""States carried on: by the layer they are of, compiled, cut off from gradients, interrupted."""

from copy import deepcopy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distinctkv.nn import DistinctAttention, FullAttention, Heads, HybridLM, Mamba2, Reading
from distinctkv.nn.gates import WriteGate
from distinctkv.policy import Concentration
from tests.nn.test_mixers import HEADS, MIXERS, E, held

pytestmark = pytest.mark.usefixtures("no_grad")
COMPILED = ("mamba2", "diagonal", "delta", "full", "window", "distinct-first", "distinct-window")
KINDS = {
    **{name: MIXERS[name] for name in (*COMPILED, "window-2", "distinct", "distinct-bf16", "kvm")},
    "other heads": lambda: FullAttention(E, Heads(1, 16)),
    "other states": lambda: Mamba2(E, states=5, head=8, chunk=8),
}
TOKENS = torch.tensor([[3, 4, 5, 3, 4], [6, 7, 6, 7, 7]])


@pytest.mark.parametrize("name", KINDS)
def test_a_state_goes_on_with_its_own_kind_of_layer_alone(name):
    x, layer = torch.randn(2, 3, E), KINDS[name]().eval()
    for other in KINDS:
        state = KINDS[other]().start(2)
        before = [part.clone() for part in held(state)]
        if other == name:
            layer(x, state)
            continue
        with pytest.raises(ValueError, match="started by"):
            layer(x, state)
        assert all(torch.equal(a, b) for a, b in zip(before, held(state), strict=True))


def model(*layers):
    return HybridLM(11, E, [KINDS[name]() for name in layers]).eval()


@pytest.mark.parametrize("layers", [("mamba2",), ("distinct", "mamba2"), ("mamba2", "full")])
def test_a_model_goes_on_from_its_own_states_alone(layers):
    mine, tokens = model("mamba2", "distinct"), torch.tensor([[1, 2, 3]])
    state = model(*layers).start(1)
    with pytest.raises(ValueError, match="use one state for each"):
        mine(tokens, state)
    assert not state.interrupted
    with pytest.raises(ValueError, match="use one state for each"):
        mine(tokens, mine.start(2))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["distinct", *COMPILED])
@pytest.mark.parametrize("padded", [False, True])
def test_a_model_with_a_state_compiles_whole_and_steps(name, padded):
    torch._dynamo.reset()
    plain = model(name)
    words = {"fullgraph": True, "backend": "aot_eager"}
    prompt, step = torch.compile(plain, **words), torch.compile(plain.step, **words)
    real = torch.arange(8) >= torch.tensor([[0], [4]]) if padded else None
    tokens, said = torch.randint(11, (2, 14)), []
    for first, next_ in ((prompt, step), (plain, plain.step)):
        state = plain.start(2, room=32)
        parts = [first(tokens[:, :8], state, real)]
        parts += [next_(token, state)[:, None] for token in tokens[:, 8:12].T]
        parts.append(plain(tokens[:, 12:], state))
        said.append(torch.cat(parts, 1))
        state.check()
    torch.testing.assert_close(*said, rtol=0, atol=1e-5)


def test_compiled_room_is_what_the_state_was_started_with():
    torch._dynamo.reset()
    layer = DistinctAttention(E, HEADS, concentration=Concentration.fixed(0.0)).eval()
    x, state = torch.randn(1, 9, E), layer.start(1, room=4)
    torch.compile(layer, fullgraph=True, backend="eager")(x, state)
    assert state.slots.capacity == 4
    with pytest.raises(ValueError, match=r"novel tokens found all 4 slots taken.*room"):
        state.check()


def test_room_that_was_asked_for_is_kept():
    layer = MIXERS["distinct"]().eval()
    state = layer.start(2, room=100)
    layer(torch.randn(2, 9, E), state)
    assert state.slots.capacity == 100
    layer(torch.randn(2, 200, E), state)
    assert state.slots.capacity >= 100


@pytest.mark.parametrize("name", KINDS)
@torch.enable_grad()
def test_segments_are_trained_one_by_one(name):
    """Without `detach` the second segment goes back through the first, which is gone."""
    mixer, x = KINDS[name](), torch.randn(2, 8, E)
    state = mixer.start(2)
    for part in x.split(4, 1):
        state = state.detach()
        mixer.zero_grad()
        mixer(part, state).square().sum().backward()
    assert all(w.grad is None or w.grad.isfinite().all() for w in mixer.parameters())
    assert not any(part.requires_grad for part in held(state.detach()))


@pytest.mark.parametrize("name", KINDS)
def test_a_copy_of_a_state_is_not_touched(name):
    lm, tokens = model(name), torch.randint(11, (2, 12))
    state = lm.start(2)
    lm(tokens[:, :6], state)
    copy = state.clone()
    want = lm(tokens[:, 6:], state)
    for other in (copy.clone, copy.detach, lambda: copy):
        assert torch.equal(lm(tokens[:, 6:], other()), want)


def test_a_state_says_what_it_is():
    layer = DistinctAttention(E, HEADS, reading=Reading(window=3), slot_dtype=torch.bfloat16)
    words = "heads=2, size=8, taps=4, read=mass mean, window=3, slots=bfloat16"
    assert words in repr(layer).replace("\n  ", "")
    assert words in repr(state := layer.start(2))
    whole = HybridLM(11, E, [layer]).start(2)
    assert repr(whole.blocks[0]) == repr(state) in str(whole)


class StoppedError(Exception):
    """As an interrupt, or a device out of memory."""


class Stop(TorchDispatchMode):
    """Let so many operations of torch pass and no more."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.left == 0:
            raise StoppedError
        self.left -= 1
        return func(*args, **(kwargs or {}))


def check_interruptions(run, first, n):
    """Run n times with errors ever later; a state that changed is refused."""
    state = first.clone()
    with (whole := Stop(10_000)):
        run(state)
    total = 10_000 - whole.left
    for place in sorted({total * i // n for i in range(n)} | {total - 1}):
        state = first.clone()
        with Stop(place), pytest.raises(StoppedError):
            run(state)
        if state.interrupted:
            for use in (run, lambda state: run(state.clone()), lambda state: state.check()):
                with pytest.raises(ValueError, match="an error interrupted an update"):
                    use(state)
        else:
            assert all(torch.equal(a, b) for a, b in zip(parts(first), parts(state), strict=True))
    assert state.interrupted


def parts(state):
    return [tensor for block in state.blocks for tensor in held(block)]


def test_wherever_a_model_stops_its_state_is_whole_or_refused():
    mixers = model("mamba2", "distinct")
    state = mixers.start(2)
    mixers(TOKENS, state)
    check_interruptions(lambda state: mixers(TOKENS, state), state, 12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mask": torch.ones(2, 3, dtype=torch.bool)}, "mask must be bool"),
        ({"at": torch.tensor([[0], [5]])}, "places 0 to 4 of 5 tokens, got 0 to 5"),
        ({"at": torch.tensor([[0], [-1]])}, "got -1 to 0"),
        ({"at": torch.tensor([[0]])}, r"at must be \(2, A\).* got \(1, 1\)"),
    ],
)
def test_what_is_refused_leaves_a_state_as_it_was(wrong, said):
    mixers = model("mamba2", "distinct")
    state, other = mixers.start(2), mixers.start(2)
    with pytest.raises(ValueError, match=said):
        mixers(TOKENS, state, **wrong)
    assert torch.equal(mixers(TOKENS, state), mixers(TOKENS, other))


def test_a_prefill_leaves_room_for_its_slots_and_little_more():
    x = torch.randn(20, E)[torch.randint(20, (1, 900))]
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


@pytest.mark.parametrize("budget", [torch.inf, 500])
def test_a_stream_of_novel_tokens_is_held_with_a_quarter_to_spare(budget):
    x = torch.randn(1, 400, E)
    heads, policy = Heads(1, 16, taps=1), Concentration.fixed(0.0, budget=budget)
    mixer = DistinctAttention(E, heads, concentration=policy).eval()
    state = mixer.start(1)
    mixer(x[:, :300], state)
    for token in x[:, 300:].unbind(1):
        mixer.step(token, state)
        used = int(state.slots.n_slots.max())
        assert used <= state.slots.capacity <= 1.25 * used + 17
    assert used == 400


@torch.enable_grad()
def test_a_model_in_training_can_be_copied():
    mixer = DistinctAttention(E, HEADS, reading=Reading(window=1), gate=WriteGate(E))
    x = torch.nn.Linear(E, E)(torch.randn(2, 19, E))
    mixer(x)
    copy = deepcopy(mixer)
    assert mixer.write_loss() > 0
    assert copy.write_loss() == 0
    assert torch.equal(copy.eval()(x), mixer.eval()(x))
