"""Allocation in chunks is the rule, id for id and to the last bit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.nn import leaders
from distinctkv.nn.functional import SlotState, allocate, unit, write
from distinctkv.policy import Concentration
from distinctkv.rule import Rule, distances
from tests.nn.cases import KINDS, Case, differs, draw, rows
from tests.strategies import streams


@given(streams(most=60), st.floats(0, 2), st.integers(0, 60), st.integers(1, 70))
def test_a_stream_cut_anywhere_opens_the_slots_of_the_rule(stream, tau, cut, chunk):
    keys = unit(torch.tensor(stream.keys)).float()[None, :, None]
    rule = Rule(Concentration.fixed(tau))
    want = [rule.write(key) for key in keys[0, :, 0].numpy()]
    state, found = SlotState.empty(keys, keys, len(want)), []
    for part in keys.tensor_split([cut], dim=1):
        if part.shape[1]:
            said = allocate(part, tau, state=state, chunk=chunk)
            found += said.assign.flatten().tolist()
            write(state, part, part, said)
    assert found == want


@pytest.mark.parametrize("part", range(10))
def test_thirty_random_cases_are_the_rule(rng, part):
    for case in [draw(rng) for _ in range(30 * (part + 1))][-30:]:
        assert not differs(case), case


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_longer_than_many_chunks_is_the_rule(rng, kind):
    keys = unit(torch.tensor(rows(kind, (1, 700, 1, 8), 0.3, rng))).float()
    for chunk in (64, 1000):
        assert not differs(Case(kind, keys, 0.3, chunk, None))


def test_a_long_chain_inside_one_chunk_is_the_rule(rng):
    angle = torch.arange(200) * 0.1  # each token is within tau of the next and of no other
    keys = torch.stack([angle.cos(), angle.sin()], -1).reshape(1, 200, 1, 2)
    case = Case("chain", keys, 1 - float(np.cos(0.15)), 256, None)
    assert not differs(case)
    assert case.allocate().lead.flatten().tolist()[:6] == [True, False] * 3


def test_distances_are_those_of_the_law_to_the_last_bit(rng):
    for width in (1, 7, 64, 129):
        a, b = rng.standard_normal((2, 50, width)).astype(np.float32)
        want = np.array([distances(x, y[None])[0] for x, y in zip(a, b, strict=True)])
        assert (leaders.squared(torch.tensor(a), torch.tensor(b)).numpy() == want).all()


@pytest.mark.parametrize("width", [1, 3, 16, 64, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_product_is_further_off_than_the_bound(rng, width, dtype):
    a, b = (unit(torch.tensor(rng.standard_normal((200, width)))).to(dtype) for _ in range(2))
    b[:50] = a[:50] * 1.09
    half = (b.double().square().sum(-1) / 2).to(dtype)
    scores = (
        torch.addmm(half, a, b.mT, alpha=-1).double() + a.double().square().sum(-1)[:, None] / 2
    )
    true = torch.stack([leaders.squared(row[None], b) for row in a]) / 2
    assert (scores - true).abs().max() <= leaders.error(width, dtype)


def test_where_products_may_be_rounded_they_are_taken_in_float64(rng):
    keys = unit(torch.tensor(rng.standard_normal((1, 90, 1, 16)))).float()
    want = allocate(keys, 0.6)
    torch.set_float32_matmul_precision("medium")
    try:
        assert leaders.product_type(keys) is torch.float64
        assert torch.equal(allocate(keys, 0.6).assign, want.assign)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert leaders.product_type(keys) is torch.float32
