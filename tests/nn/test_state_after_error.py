"""An error on the way: a state is as it was, or it is refused from then on."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distinctkv.nn import HybridLM
from distinctkv.nn.baselines import KVMAttention
from tests.nn.test_mixers import HEADS, MIXERS, E, _tensors

NAMES = ("mamba2", "diagonal", "delta", "full", "distinct", "distinct-window", "distinct-evicting")
KINDS = {name: MIXERS[name] for name in NAMES}
KINDS["kvm"] = lambda: KVMAttention(E, HEADS, chunk=4)
TOKENS = torch.tensor([[3, 4, 5, 3, 4], [6, 7, 6, 7, 7]])


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


def held(state):
    blocks = getattr(state, "blocks", [state])
    return [t for block in blocks for part in vars(block).values() for t in _tensors(part)]


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
            assert all(torch.equal(a, b) for a, b in zip(held(first), held(state), strict=True))
    assert state.interrupted


@torch.no_grad()
def test_wherever_a_model_stops_its_state_is_whole_or_refused(seed):
    torch.manual_seed(seed)
    model = HybridLM(11, E, [KINDS["mamba2"](), KINDS["distinct"]()], expand=1).eval()
    state = model.start(2)
    model(TOKENS, state)
    check_interruptions(lambda state: model(TOKENS, state), state, 12)


@torch.no_grad()
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mask": torch.ones(2, 3, dtype=torch.bool)}, "mask must be bool"),
        ({"at": torch.tensor([[0], [5]])}, "places 0 to 4 of 5 tokens, got 0 to 5"),
        ({"at": torch.tensor([[0], [-1]])}, "got -1 to 0"),
        ({"at": torch.tensor([[0]])}, r"at must be \(2, A\).* got \(1, 1\)"),
    ],
)
def test_what_is_refused_leaves_a_state_as_it_was(wrong, said, seed):
    torch.manual_seed(seed)
    model = HybridLM(11, E, [KINDS["mamba2"](), KINDS["distinct"]()]).eval()
    state, other = model.start(2), model.start(2)
    with pytest.raises(ValueError, match=said):
        model(TOKENS, state, **wrong)
    assert torch.equal(model(TOKENS, state), model(TOKENS, other))
