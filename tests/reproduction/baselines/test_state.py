import numpy as np
import pytest

from reproduction.baselines import Based, DecayedSuperposition, Fourier, Kanerva, Ridge, Titans

STATES = [Based, DecayedSuperposition, Fourier, Kanerva, Ridge, Titans]
D, C = 8, 4
SIZES = {
    Based: 2 * (D + 1) * (D + 2) * (C + 1),
    DecayedSuperposition: 4 * D * C,
    Fourier: 4 * 66 * C + 2 * 66 * D,
    Kanerva: 4 * 64 * (64 + C + D),
    Ridge: 4 * D * (D + C),
    Titans: 8 * 64 * (D + C),
}


@pytest.mark.parametrize("make", STATES)
def test_a_longer_stream_costs_nothing_more(rng, make):
    state = make()
    state.write(rng.standard_normal((10, D)), np.ones((10, C)))
    before = len(state), state.nbytes
    state.write(rng.standard_normal((300, D)), np.ones((300, C)))
    assert (len(state), state.nbytes) == before


@pytest.mark.parametrize("make", STATES)
def test_the_size_is_what_the_card_says(make):
    state = make()
    state.write(np.eye(D), np.ones((D, C)))
    assert state.nbytes == SIZES[make]


@pytest.mark.parametrize("make", STATES)
def test_no_token_has_a_slot_of_its_own(make):
    assert make().write(np.eye(3), np.eye(3)).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.1, np.inf])
@pytest.mark.parametrize("make", [DecayedSuperposition, Ridge, Titans])
def test_a_decay_is_a_fraction(make, decay):
    with pytest.raises(ValueError, match=r"decay must lie in \(0, 1\]"):
        make(decay=decay)
