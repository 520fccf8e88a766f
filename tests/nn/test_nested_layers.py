"""An error on the way through a layer of layers: its state holds their states."""

import pytest
import torch

from distinctkv.nn import Mixer
from distinctkv.nn.mixer import State
from tests.nn.test_mixers import E
from tests.nn.test_state_after_error import KINDS, MODES, REFUSED, StoppedError, fail


class Pair(Mixer[State]):
    """Two layers one after the other, and an error if one is wanted."""

    class Held(State):
        writes = 0  # but what its two states count

        def __init__(self, one, two):
            self.one, self.two = one, two

        @property
        def streams(self):
            return self.one.streams

    def __init__(self, one, two):
        super().__init__()
        self.one, self.two, self.fails = one, two, False

    def start(self, batch):
        return self.Held(self.one.start(batch), self.two.start(batch))

    def mix(self, x, state=None, mask=None):
        y = self.two(self.one(x, state.one, mask), state.two, mask)
        return fail() if self.fails else y


@MODES
@pytest.mark.parametrize(("two", "whole"), [("mamba2", True), ("distinct", False)])
def test_states_in_a_state_are_whole_or_refused_with_it(two, whole, mode, seed):
    torch.manual_seed(seed)
    pair, x = Pair(KINDS["full"](), KINDS[two]()).eval(), torch.randn(2, 5, E)
    with mode():
        state, other = pair.start(2), pair.start(2)
        pair.fails = True
        with pytest.raises(StoppedError):
            pair(x, state)
        pair.fails = False
        if whole:
            assert torch.equal(pair(x, state), pair(x, other))
        else:
            with pytest.raises(ValueError, match=REFUSED):
                pair(x, state)
