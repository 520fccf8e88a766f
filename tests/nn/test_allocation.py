"""Allocation in chunks is the rule, id for id and to the last bit; its state, limits and checks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.nn import leaders
from distinctkv.nn.functional import SlotState, allocate, unit, write
from distinctkv.policy import Concentration
from distinctkv.rule import Rule, distances
from tests.nn.cases import KINDS, Case, as_on_a_device, differs, draw, rows
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


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a[:2], b[:2], strict=True))


@pytest.mark.parametrize("places", [[7, 8], list(range(1, 50))])
def test_a_stream_in_parts_is_the_stream_whole(batch, places):
    data = batch(L=50, noise=0.4, dtype=torch.float32)
    whole = allocate(data.k, 0.1, mask=data.mask)
    state = SlotState.empty(data.k, data.v, 50)
    parts = []
    for a, b in zip([0, *places], [*places, 50], strict=True):
        k, v = data.k[:, a:b], data.v[:, a:b]
        parts.append(allocate(k, 0.1, state=state, mask=data.mask[:, a:b]))
        state = write(state, k, v, parts[-1])
    for name in ("lead", "assign"):
        joined = torch.cat([getattr(part, name) for part in parts], 1)
        assert torch.equal(joined, getattr(whole, name))
    assert torch.equal(state.n_slots, whole.n_slots)
    assert torch.equal(state.seen, data.mask.sum(1, keepdim=True).expand(-1, 2))


def test_tau_may_be_a_number_a_tensor_or_one_for_each_head(batch):
    keys = batch(noise=0.4).k
    both = allocate(keys, torch.tensor([0.05, 0.4], dtype=torch.float64))
    for h, tau in enumerate((0.05, 0.4)):
        alone = allocate(keys[:, :, h : h + 1], torch.tensor(tau, dtype=torch.float64))
        assert torch.equal(both.assign[:, :, h : h + 1], alone.assign)
        assert same(alone, allocate(keys[:, :, h : h + 1], tau))


def test_a_token_without_room_is_counted_and_an_error_on_the_cpu(batch, monkeypatch):
    keys = batch(things=9, noise=0.0).k
    most = int(allocate(keys, 0.0).n_slots.max())
    with pytest.raises(ValueError, match="found all 2 slots taken"):
        allocate(keys, 0.0, capacity=2)
    assert int(allocate(keys, 0.0, capacity=most).n_slots.max()) == most
    as_on_a_device(monkeypatch)
    full = [allocate(keys, 0.0, capacity=2, chunk=chunk) for chunk in (1, 5, 64)]
    assert (full[0].n_slots == 2).all()
    assert torch.equal(full[0].overflow, (allocate(keys, 0.0).assign >= 2).sum(1))
    assert all(same(one, full[0]) and torch.equal(one.overflow, full[0].overflow) for one in full)


@pytest.mark.parametrize("bad", [0.0, torch.nan, torch.inf, 3.0])
def test_a_key_that_is_no_row_of_length_one_is_refused(batch, bad, monkeypatch):
    keys = batch().k
    keys[1, 4] = bad
    with pytest.raises(ValueError, match=r"2 keys are not finite rows of length one.*unit"):
        allocate(keys, 0.1)
    mask = torch.ones(2, 23, dtype=torch.bool)
    mask[1, 4] = False
    padded = allocate(keys, 0.1, mask=mask)
    as_on_a_device(monkeypatch)
    left_out = allocate(keys, 0.1)
    assert same(left_out, padded)
    assert left_out.refused.tolist() == [[0, 0], [1, 1]]


def test_routing_is_float32_under_autocast_and_in_half_precision(batch):
    keys = batch(L=50, D=16, noise=0.4, dtype=torch.float32).k
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = allocate(keys, 0.3)
    assert same(inside, allocate(keys, 0.3))
    short = keys.bfloat16()
    assert same(allocate(short, 0.3), allocate(short.float(), 0.3))


def test_a_tau_of_nan_that_nobody_can_look_at_refuses_all(batch, monkeypatch):
    as_on_a_device(monkeypatch)
    found = allocate(batch().k, torch.tensor([0.1, float("nan")]))
    assert found.refused.tolist() == [[0, 23], [0, 23]]
    with pytest.raises(ValueError, match="tau is nan"):
        found.check()
