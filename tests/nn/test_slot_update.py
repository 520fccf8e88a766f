"""Steps through the slots give what a read of the whole gives, and the same slots; what a slot
may not take in is refused, or counted where nobody looks."""

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


def walk(data, state, cuts, masked, **words):
    """Outputs of steps that cut the tokens at these places."""
    outs = []
    for a, b in zip([0, *cuts], [*cuts, data.k.shape[1]], strict=True):
        part = [x[:, a:b] for x in (data.q, data.k, data.v)]
        mask = data.mask[:, a:b] if masked else None
        out, state = step(*part, state, 0.1, mask=mask, **words)
        outs.append(out)
    return torch.cat(outs, 1), state


def compare(data, cuts, masked, tolerance, **words):
    found = allocate(data.k, 0.1, mask=data.mask if masked else None)
    want = read(data.q, data.k, data.v, found, **words)
    state = SlotState.empty(data.k, data.v, int(found.n_slots.max()))
    for buffer in (state.keys, state.values):
        buffer.fill_(torch.nan)
    state.counts.fill_(77)
    out, state = walk(data, state, cuts, masked, **words)
    torch.testing.assert_close(out, want, rtol=0, atol=tolerance)
    assert torch.equal(state.n_slots, found.n_slots)
    return found, state


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("mode", "value"), READS)
def test_tokens_and_parts_of_any_length_are_the_whole(batch, mode, value):
    words = {"mode": mode, "value": value}
    single = batch(L=23, group=2, dtype=torch.float32)
    compare(single, range(1, 23), False, 1e-5, **words)
    double = batch(L=23, group=2)
    compare(double, range(1, 23), True, 1e-12, **words)
    compare(double, [3, 4, 11, 19], True, 1e-12, **words)


@pytest.mark.parametrize(("mode", "value"), READS)
def test_a_write_of_many_leaves_the_slots_that_writes_of_one_leave(batch, mode, value):
    data = batch()
    words = {"mode": mode, "value": value}
    found, one_by_one = compare(data, range(1, 23), True, 1e-12, **words)
    state = SlotState.empty(data.k, data.v, one_by_one.capacity)
    with pytest.raises(ValueError, match="allocate with state"):
        write(state, data.k, data.v, found)
    found = allocate(data.k, 0.1, mask=data.mask, state=state)
    state = write(state, data.k, data.v, found, value=value)
    for a, b in zip(state, one_by_one, strict=True):
        a, b = (x[state.used] if x.ndim > 2 else x for x in (a, b))
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_queries_of_many_steps_have_their_gradients(batch):
    data = batch()
    data.q.requires_grad_()
    found = allocate(data.k, 0.1)
    want = read(data.q, data.k, data.v, found)
    got, _ = walk(data, SlotState.empty(data.k, data.v, 30), range(1, 23), False)
    slopes = [torch.autograd.grad(out.square().sum(), data.q)[0] for out in (got, want)]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)


def test_a_state_can_grow_be_picked_from_and_say_when_it_is_full(batch):
    data = batch(noise=1.0)
    found = allocate(data.k, 0.1)
    most = int(found.n_slots.max())
    state = SlotState.empty(data.k, data.v, most - 1)
    with pytest.raises(ValueError, match="slots taken"):
        walk(data, state, range(1, 23), False)
    want = read(data.q, data.k, data.v, found)
    out, _ = walk(data, state.empty(data.k, data.v, 2).grown(most), [5, 6], False)
    torch.testing.assert_close(out, want, rtol=0, atol=1e-12)
    swapped = state.index_select(torch.tensor([1, 0, 1]))
    assert torch.equal(swapped.n_slots, state.n_slots[[1, 0, 1]])
    state.overflow[0, 0] = 3
    with pytest.raises(ValueError, match="3 novel tokens"):
        state.check()


def test_a_state_is_made_smaller_only_where_it_is_empty(batch):
    data = batch()
    found = allocate(data.k, 0.1)
    most = int(found.n_slots.max())
    _, state = walk(data, SlotState.empty(data.k, data.v, 30), [9], False)
    small = state.resized(most)
    assert small.capacity == most
    assert torch.equal(small.keys, state.keys[:, :, :most])
    with pytest.raises(ValueError, match=f"{most} slots are filled"):
        state.resized(most - 1)


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


def test_padding_of_zeros_passes_no_gradient():
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
        with pytest.raises(ValueError, match="slots from before"):
            use()


def test_an_allocation_is_not_written_to_other_slots_nor_twice(halves):
    _, state, (q, k, v) = halves
    found, empty = allocate(k, 0.1, state=state), SlotState.empty(k, v, 40)
    for other in (empty, state.index_select(torch.tensor([1, 1]))):
        before = other.clone()
        with pytest.raises(ValueError, match="other tokens"):
            write(other, k, v, found)
        assert same(other, before)
    write(state, k, v, found)
    with pytest.raises(ValueError, match="once each"):
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
def test_a_value_that_is_not_finite_or_a_long_key_is_an_error_and_changes_nothing(halves, bad):
    _, state, (q, k, v) = halves
    found, before = allocate(k, 0.1, state=state), state.clone()
    with pytest.raises(ValueError, match="length one"):
        step(q[:, :1], 3 * k[:, :1], v[:, :1], state, 0.1)
    v[1, 3, 0, 1] = bad
    for part in (slice(None), slice(3, 4)):
        with pytest.raises(ValueError, match=r"1 keys .* values are not finite"):
            step(q[:, part], k[:, part], v[:, part], state, 0.1)
    with pytest.raises(ValueError, match="1 values are not finite"):
        write(state, k, v, found)
    assert same(state, before)


@pytest.mark.parametrize(("mode", "value"), READS)
@pytest.mark.parametrize("cuts", [(1,) * 11, (11,), (4, 1, 6)], ids=str)
def test_where_nobody_looks_what_is_refused_is_left_out_like_padding(
    halves, elsewhere, mode, value, cuts
):
    _, state, (q, k, v) = halves
    words, mask = {"mode": mode, "value": value}, torch.ones(2, 11, dtype=torch.bool)
    mask[0, 4] = mask[1, 7] = False
    states, outs = (state.clone(), state.clone()), ([], [])
    v[0, 4], k[1, 7, 0], v[1, 7, 1, 1] = torch.nan, 0.0, inf
    parts = zip(*(x.split(cuts, 1) for x in (q, k, v, mask)), strict=True)
    for q, k, v, m in parts:
        outs[0].append(step(q, k, v, states[0], 0.1, **words)[0])
        outs[1].append(step(q, k, v, states[1], 0.1, mask=m, **words)[0])
    assert torch.equal(torch.cat(outs[0], 1), torch.cat(outs[1], 1))
    assert same(states[0][:6], states[1][:6])
    assert states[0].refused.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match="4 keys"):
        states[0].check()


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
