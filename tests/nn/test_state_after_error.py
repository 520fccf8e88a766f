"""An error on the way: a state is as it was, or it is not used again."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distinctkv.nn import HybridLM, Mixer
from distinctkv.nn.baselines import KVMAttention
from distinctkv.nn.mixer import State
from tests.nn.test_mixers import HEADS, MIXERS, E, _tensors

REFUSED = "an error (may have left .* written in part|came after some blocks had taken tokens in)"
MODES = pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
NAMES = ("mamba2", "diagonal", "delta", "full", "window", "distinct", "distinct-window")
KINDS = {name: MIXERS[name] for name in NAMES}
KINDS["kvm"] = lambda: KVMAttention(E, HEADS, chunk=4)
TOKENS = torch.tensor([[3, 4, 5, 3, 4], [6, 7, 6, 7, 7]])
MORE = torch.tensor([[1, 2], [6, 5]])


class StoppedError(Exception):
    """Of nobody's making, as out of memory or an interrupt are."""


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


def held(state):
    blocks = state.blocks if hasattr(state, "blocks") else [state]
    return [t for block in blocks for part in vars(block).values() for t in _tensors(part)]


def outcomes(run, first, n):
    """Run n times with errors ever later; whether each left the state as it was."""
    state = first.clone()
    with (whole := Stop(10_000)):
        run(state)
    total = 10_000 - whole.left
    for place in sorted({total * i // n for i in range(n)} | {total - 1}):
        state = first.clone()
        with Stop(place), pytest.raises(StoppedError):
            run(state)
        same = [torch.equal(a, b) for a, b in zip(held(first), held(state), strict=True)]
        try:
            run(state.clone())
        except ValueError:
            with pytest.raises(ValueError, match=REFUSED):
                state.check()
            yield False
        else:
            assert all(same)
            yield True


@MODES
@pytest.mark.parametrize("n_tokens", [1, 2])
@pytest.mark.parametrize("name", KINDS)
def test_wherever_a_layer_stops_its_state_is_whole_or_refused(name, n_tokens, mode, seed):
    torch.manual_seed(seed)
    mixer, x = KINDS[name]().eval(), torch.randn(2, 9 + n_tokens, E)
    with mode():
        first = mixer.start(2)
        mixer(x[:, :9], first)
        found = list(outcomes(lambda state: mixer(x[:, 9:], state), first, 7))
    assert found[0]
    assert all(found) == ("distinct" not in name)


@MODES
@pytest.mark.parametrize("layers", [("mamba2", "distinct"), ("distinct-window", "full")])
def test_wherever_a_model_stops_its_state_is_whole_or_refused(layers, mode, seed):
    torch.manual_seed(seed)
    model = HybridLM(11, E, [KINDS[name]() for name in layers], expand=1).eval()
    with mode():
        first = model.start(2)
        model(TOKENS, first)
        found = list(outcomes(lambda state: model(MORE, state), first, 12))
    assert found == sorted(found, reverse=True)  # as it was up to the first block's writes
    assert found[0]
    assert not found[-1]


@pytest.fixture
def model(seed):
    torch.manual_seed(seed)
    layers = [KINDS[name]() for name in ("mamba2", "distinct", "full")]
    return HybridLM(11, E, layers, expand=1).eval()


def fail(*given):
    raise StoppedError


@torch.no_grad()
@pytest.mark.parametrize("part", ["blocks.1.mixer", "blocks.1.narrow", "blocks.0.wide", "norm"])
def test_an_error_behind_the_first_mixer_marks_the_state(part, model, monkeypatch):
    state = model.start(2)
    model(TOKENS, state)
    with monkeypatch.context() as patch:
        if part == "norm":
            patch.delattr(model, "norm")
        else:
            patch.setattr(model.get_submodule(part), "forward", fail)
        with pytest.raises((StoppedError, AttributeError)):
            model.step(MORE[:, 0], state)
    for run in (lambda: model.step(MORE[:, 0], state), lambda: model(MORE, state.clone())):
        with pytest.raises(ValueError, match=f"{REFUSED}; start anew"):
            run()


@torch.no_grad()
def test_a_block_that_does_not_count_is_seen_to_have_taken_tokens_in(model, monkeypatch):
    first = model.mixers[0]
    monkeypatch.setattr(first, "forward", first._masked)  # the way of compiled code
    state = model.start(2)
    model(TOKENS, state)
    with monkeypatch.context() as patch:
        patch.setattr(model.blocks[1], "forward", fail)
        with pytest.raises(StoppedError):
            model(MORE, state)
    with pytest.raises(ValueError, match=REFUSED):
        model(MORE, state)


@MODES
def test_a_mask_that_does_not_fit_leaves_the_state_usable(mode, model):
    with mode():
        state, other = model.start(2), model.start(2)
        with pytest.raises(ValueError, match="mask must be bool"):
            model(TOKENS, state, torch.ones(2, 3, dtype=torch.bool))
        assert torch.equal(model(TOKENS, state), model(TOKENS, other))


@MODES
def test_padding_that_the_first_block_refuses_leaves_the_state_usable(mode, seed):
    torch.manual_seed(seed)
    model = HybridLM(11, E, [KINDS["kvm"](), KINDS["full"]()]).eval()
    with mode():
        state, other = model.start(2), model.start(2)
        with pytest.raises(ValueError, match="tokens are padding"):
            model(TOKENS, state, TOKENS != 5)
        assert torch.equal(model(TOKENS, state), model(TOKENS, other))


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (torch.tensor([[0], [5]]), "places 0 to 4 of 5 tokens, got 0 to 5"),
        (torch.tensor([[0], [-1]]), "got -1 to 0"),
        (torch.tensor([[0]]), r"whole numbers \(2, A\).* torch.int64 \(1, 1\)"),
        (torch.tensor([0, 1]), r"torch.int64 \(2,\)"),
        (torch.tensor([[0.0], [1.0]]), "torch.float32"),
        (torch.tensor([[True], [True]]), "torch.bool"),
    ],
)
@torch.no_grad()
def test_places_that_are_not_there_leave_the_state_as_it_was(at, told, model):
    state, other = model.start(2), model.start(2)
    with pytest.raises(ValueError, match=told):
        model(TOKENS, state, at=at)
    assert torch.equal(model(TOKENS, state), model(TOKENS, other))


@torch.no_grad()
def test_a_call_holds_on_to_what_one_block_held_and_no_more(seed):
    torch.manual_seed(seed)
    model = HybridLM(11, E, [KINDS["full"]() for _ in range(4)]).eval()
    state, alive = model.start(2), []
    model(TOKENS, state)
    old = [weakref.ref(block.keys) for block in state.blocks]
    model.blocks[-1].register_forward_pre_hook(
        lambda *_: alive.extend(ref() is not None for ref in old)
    )
    model(MORE, state)
    assert alive == [False, False, False, True]


class Counts(Mixer[State]):
    """A layer of a user's own, whose state is written in place and does not say so."""

    class Held(State):
        def __init__(self, n):
            self.n, self.all = n, []

    fails = False

    def start(self, batch):
        return self.Held(torch.zeros(batch))

    def mix(self, x, state=None, mask=None):
        state.n += x.shape[1]
        state.all.append(x)
        return fail() if self.fails else x


@MODES
def test_a_state_of_which_nobody_knows_is_refused_after_an_error(mode):
    layer, x = Counts(), torch.ones(2, 5, E)
    with mode():
        state = layer.start(2)
        layer(x, state)
        layer.fails = True
        with pytest.raises(StoppedError):
            layer(x, state)
        with pytest.raises(ValueError, match=REFUSED):
            layer(x, state)


@MODES
def test_writes_in_place_by_a_layer_of_ones_own_are_seen(mode, model, monkeypatch):
    with mode():
        model.blocks[0].mixer = Counts()
        state = model.start(2)
        with monkeypatch.context() as patch:
            patch.setattr(model.blocks[1], "forward", fail)
            with pytest.raises(StoppedError):
                model(TOKENS, state)
        with pytest.raises(ValueError, match=REFUSED):
            model(TOKENS, state)


@MODES
@pytest.mark.parametrize(("name", "n_tokens"), [("distinct", 1), ("distinct-window", 12)])
def test_slots_that_refuse_a_value_are_as_they_were(name, n_tokens, mode, seed):
    torch.manual_seed(seed)
    mixer, x = MIXERS[name]().eval(), torch.randn(1, 5, E)
    with mode():
        state = mixer.start(1)
        mixer(x, state)
        other = state.clone()
        with pytest.raises(ValueError, match="finite"):
            mixer(torch.full((1, n_tokens, E), 3e38), state)
        assert torch.equal(mixer.step(x[:, 0], state), mixer.step(x[:, 0], other))


@pytest.mark.slow
@pytest.mark.parametrize("layers", [["mamba2", "distinct"], ["distinct", "mamba2"]])
def test_a_compiled_mixer_that_moved_is_seen_by_its_model(layers, seed):
    torch.manual_seed(seed)
    model, tokens = HybridLM(16, 32, layers, expand=1).eval(), torch.randint(16, (1, 8))
    model.blocks[0].mixer.compile(backend="eager")
    with torch.no_grad():
        state = model.start(1, room=64)
        model(tokens[:, :5], state)
        hook = model.blocks[0].wide.register_forward_pre_hook(lambda *_: fail())
        with pytest.raises(StoppedError):
            model(tokens[:, 5:], state)
        hook.remove()
        with pytest.raises(ValueError, match=REFUSED):
            model(tokens[:, 5:], state)
