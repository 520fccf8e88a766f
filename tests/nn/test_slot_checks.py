"""What a slot may not take in, and what was decided for other slots: refused, or counted."""

from itertools import product
from math import inf

import pytest
import torch
from torch import nn

from distinctkv.nn.functional import (
    SlotState,
    allocate,
    causal_novelty,
    read,
    slot_keys,
    soft_read,
    step,
    unit,
    write,
)
from tests.nn.cases import as_on_a_device

READS = list(product(("mass", "distinct"), ("mean", "first", "last")))


@pytest.fixture
def elsewhere(monkeypatch):
    """As on a device, where nobody looks at numbers."""
    as_on_a_device(monkeypatch)


@pytest.fixture
def halves(batch):
    """A batch, the state that its first half leaves, and the keys and values of the second."""
    data = batch(dtype=torch.float32)
    state = SlotState.empty(data.k, data.v, 40)
    step(data.q[:, :12], data.k[:, :12], data.v[:, :12], state, 0.1)
    return data, state, (data.q[:, 12:], data.k[:, 12:], data.v[:, 12:])


@pytest.fixture
def rows(seed):
    return torch.randn(9, 6, generator=torch.Generator().manual_seed(seed))


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_padding_of_zeros_passes_no_gradient(seed):
    torch.manual_seed(seed)
    table, line = nn.Embedding(5, 8, padding_idx=0), nn.Linear(8, 8, bias=False)
    tokens = torch.tensor([[0, 0, 1, 2, 0]])
    real = tokens != 0
    for use in (
        lambda k: read(k, k, k, allocate(k, 0.15, mask=real)),
        lambda k: causal_novelty(k, mask=real),
        lambda k: soft_read(k, k, k, -k[..., 0].abs(), mask=real),
    ):
        line.zero_grad()
        use(unit(line(table(tokens))).unsqueeze(2)).square().sum().backward()
        assert line.weight.grad.isfinite().all()
        assert line.weight.grad.abs().max() > 0


def test_unit_has_the_slope_of_a_direction_and_none_at_zero(batch):
    rows = batch(B=1, L=3).q.requires_grad_()
    assert torch.autograd.gradcheck(unit, [rows])
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    unit(zero).nan_to_num().sum().backward()
    assert (zero.grad == 0).all()


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e160, 5e-324])
def test_keys_of_any_size_have_a_direction(size):
    keys = unit(torch.tensor([size, size], dtype=torch.float64))
    torch.testing.assert_close(keys, torch.full((2,), 0.5**0.5, dtype=torch.float64))


def test_an_allocation_with_slots_from_before_is_not_read_without_them(halves):
    _, state, (q, k, v) = halves
    found = allocate(k, 0.1, state=state)
    for use in (lambda: read(q, k, v, found), lambda: slot_keys(k, found)):
        with pytest.raises(ValueError, match="made with slots from before; give state="):
            use()


def test_an_allocation_is_not_written_to_other_slots_nor_twice(halves):
    _, state, (q, k, v) = halves
    found, empty = allocate(k, 0.1, state=state), SlotState.empty(k, v, 40)
    for other in (empty, state.index_select(torch.tensor([1, 1]))):
        before = other.clone()
        with pytest.raises(ValueError, match="other tokens than the allocation knew"):
            write(other, k, v, found)
        assert same(other, before)
    write(state, k, v, found)
    with pytest.raises(ValueError, match=r"4 of 4 streams .* once each"):
        write(state, k, v, found)
    with pytest.raises(ValueError, match="read, then write"):
        read(q, k, v, found, state=state)


def test_where_nobody_looks_tokens_for_other_slots_are_left_out_and_counted(halves, elsewhere):
    _, state, (_, k, v) = halves
    found, empty = allocate(k, 0.1, state=state), SlotState.empty(k, v, 40)
    before = empty.clone()
    write(empty, k, v, found)
    assert same(empty[:6], before[:6])
    assert (empty.refused == 11).all()
    with pytest.raises(ValueError, match=r"44 keys .* allocated for other slots"):
        empty.check()
    write(state, k, v, found).check()
    write(state, k, v, found)
    assert (state.seen == 23).all()
    with pytest.raises(ValueError, match="allocate with this state"):
        state.check()


@pytest.mark.parametrize("bad", [torch.nan, inf, -inf])
def test_a_value_that_is_not_finite_is_an_error_and_changes_nothing(halves, bad):
    _, state, (q, k, v) = halves
    found, before = allocate(k, 0.1, state=state), state.clone()
    v[1, 3, 0, 1] = bad
    with pytest.raises(ValueError, match=r"1 keys .* values are not finite"):
        step(q, k, v, state, 0.1)
    with pytest.raises(ValueError, match=r"1 keys .* values are not finite"):
        step(q[:, 3:4], k[:, 3:4], v[:, 3:4], state, 0.1)
    with pytest.raises(ValueError, match="1 values are not finite"):
        write(state, k, v, found)
    assert same(state, before)


@pytest.mark.parametrize(("mode", "value"), READS)
@pytest.mark.parametrize("cuts", [(1,) * 11, (11,), (4, 1, 6)], ids=str)
def test_where_nobody_looks_it_is_left_out_like_padding(halves, elsewhere, mode, value, cuts):
    _, state, (q, k, v) = halves
    words, mask = {"mode": mode, "value": value}, torch.ones(2, 11, dtype=torch.bool)
    mask[0, 4] = mask[1, 7] = False
    states, outs = (state.clone(), state.clone()), ([], [])
    v[0, 4], v[1, 7, :, 1] = torch.nan, inf
    parts = zip(*(x.split(cuts, 1) for x in (q, k, v, mask)), strict=True)
    for q, k, v, m in parts:
        outs[0].append(step(q, k, v, states[0], 0.1, **words)[0])
        outs[1].append(step(q, k, v, states[1], 0.1, mask=m, **words)[0])
    assert torch.equal(torch.cat(outs[0], 1), torch.cat(outs[1], 1))
    assert same(states[0][:6], states[1][:6])
    assert states[0].refused.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("mode", "value"), READS)
def test_where_nobody_looks_a_read_leaves_refused_keys_out(batch, elsewhere, mode, value):
    data = batch(group=2)
    words, mask = {"mode": mode, "value": value}, torch.ones(2, 23, dtype=torch.bool)
    mask[0, :2] = mask[1, 5] = mask[1, 22] = False
    want = read(data.q, data.k, data.v, allocate(data.k, 0.1, mask=mask), **words)
    data.k[~mask] = torch.nan
    inputs = [x.requires_grad_() for x in (data.q, data.k, data.v)]
    found = allocate(data.k, 0.1)
    got = read(*inputs, found, **words)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    slopes = torch.autograd.grad(got.square().sum(), inputs)
    assert all(slope.isfinite().all() for slope in slopes)
    assert found.refused.sum() == 8
