import numpy as np
import pytest

from reproduction.baselines import Attention, InfFormer


def test_tokens_that_wait_are_read_by_attention(rng):
    keys, values = rng.standard_normal((7, 6)), rng.standard_normal((7, 3))
    curve, attention = InfFormer(block=8, theta=0.1), Attention(theta=0.1)
    curve.write(keys, values)
    attention.write(keys, values)
    np.testing.assert_allclose(curve.read(keys), attention.read(keys), atol=1e-6)


def test_with_a_wave_for_every_token_all_are_told_apart():
    curve = InfFormer(n_waves=8, block=8, penalty=1e-6)
    curve.write(np.eye(8), np.eye(8))
    assert curve.read(np.eye(8)).argmax(axis=1).tolist() == list(range(8))


def test_a_stream_of_one_thing_stays_that_thing():
    curve = InfFormer(n_waves=6, block=4, penalty=1e-6)
    curve.write([[0.6, 0.8]] * 400, [[5.0]] * 400)
    np.testing.assert_allclose(curve.read([[0.6, 0.8]]), [[5.0]], atol=1e-3)


def test_the_past_is_squeezed_out_in_the_end():
    curve = InfFormer(n_waves=6, block=4, contraction=0.5)
    curve.write(np.eye(2)[[0] * 8 + [1] * 80], [[1.0]] * 8 + [[0.0]] * 80)
    assert abs(curve.read([[1.0, 0.0]])[0, 0]) < 0.1


def test_with_room_in_proportion_it_is_not():
    curve = InfFormer(n_waves=24, block=4, contraction=None)
    curve.write(np.eye(2)[[0] * 8 + [1] * 80], [[1.0]] * 8 + [[0.0]] * 80)
    assert curve.read([[1.0, 0.0]])[0, 0] > 0.5


def test_it_holds_its_waves_and_less_than_a_block(rng):
    curve = InfFormer(n_waves=6, block=4)
    curve.write(rng.standard_normal((403, 5)), np.ones((403, 2)))
    assert (len(curve), curve.nbytes) == (6 + 3, 9 * 7 * 4)


@pytest.mark.parametrize(
    "wrong",
    [{"n_waves": 0}, {"block": 0}, {"contraction": 1.0}, {"contraction": 0.0}, {"penalty": 0.0}],
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        InfFormer(**wrong)
