import numpy as np
import pytest

from reproduction.baselines import Attention, Recency


def test_the_window_reads_as_attention_over_its_last_tokens(rng):
    keys, values = rng.standard_normal((20, 6)), rng.standard_normal((20, 3))
    window, attention = Recency(budget=7), Attention()
    window.write(keys, values)
    attention.write(keys[-7:], values[-7:])
    np.testing.assert_array_equal(window.read(keys), attention.read(keys))


def test_a_window_has_at_least_one_token():
    with pytest.raises(ValueError, match="budget must be at least 1"):
        Recency(budget=0)
