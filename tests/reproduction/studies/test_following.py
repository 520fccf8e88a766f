import numpy as np
import pytest

from distinctkv import Cache, Concentration
from reproduction.baselines import TTL, Attention
from reproduction.data import PhasedTask, RecallTask
from reproduction.studies.following import MEASURES, Trace, at_cost, follow


@pytest.fixture
def phases(rng):
    return PhasedTask((RecallTask(n_items=6, repeats=6), RecallTask(n_items=30, repeats=6))).draw(
        rng
    )


def test_an_average_over_tokens_counts_every_token_alike(phases):
    trace = follow(Attention(), phases)
    assert MEASURES["phase end"](trace) == (36 + 216) / 2
    assert MEASURES["per token"](trace) == np.arange(1, 217).mean()
    assert MEASURES["peak"](trace) == 216


@pytest.mark.parametrize("make", [lambda: Cache(Concentration.surprise()), TTL])
def test_the_size_of_a_step_changes_no_answer(phases, make):
    fine = follow(make(), phases)
    coarse = follow(make(), phases, step=3)
    np.testing.assert_array_equal(fine.recall, coarse.recall)
    np.testing.assert_array_equal(fine.slots[2::3], coarse.slots)


def test_a_budget_is_followed_and_kept(phases):
    trace = follow(Cache(Concentration.surprise()), phases)
    assert (trace.slots <= trace.budget).all()
    assert trace.at_ends(trace.budget)[0] < trace.budget.max()


def test_a_rival_is_read_off_between_its_sizes_at_our_cost():
    def trace(slots, recall):
        return Trace(np.array([recall]), (0,), *np.full((3, 1), slots))

    sizes = [trace(24.0, 0.9), trace(20.0, 0.7)]
    assert at_cost(sizes, trace(23.0, 0.5)) == pytest.approx(0.85)
