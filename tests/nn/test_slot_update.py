"""Steps through the slots give what a read of the whole gives, and the same slots."""

from itertools import product

import pytest
import torch

from distinctkv.nn.functional import SlotState, allocate, read, step, write
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
    out, state = walk(data, state, cuts, masked, **words)
    torch.testing.assert_close(out, want, rtol=0, atol=tolerance)
    assert torch.equal(state.n_slots, found.n_slots)
    return found, state


@pytest.mark.parametrize(("mode", "value"), READS)
def test_token_by_token_is_the_whole(batch, mode, value):
    words = {"mode": mode, "value": value}
    single = batch(L=23, group=2, dtype=torch.float32)
    compare(single, range(1, 23), False, 1e-5, **words)
    double = batch(L=23, group=2)
    compare(double, range(1, 23), True, 1e-12, **words)


@pytest.mark.parametrize(("mode", "value"), READS)
def test_parts_of_any_length_are_the_whole(batch, mode, value):
    compare(batch(), [3, 4, 11, 19], True, 1e-12, mode=mode, value=value)


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


def test_bytes_do_not_depend_on_the_tokens_seen(batch):
    data = batch()
    state = SlotState.empty(data.k, data.v, 30)
    before = state.nbytes
    _, state = walk(data, state, range(1, 23), False)
    assert state.nbytes == before == 2 * 2 * (30 * (4 * 8 + 3 * 8 + 4) + 4 * 8)


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


def test_keys_that_nobody_could_be_told_of_are_counted(batch, monkeypatch):
    """As on a device, and when compiled."""
    as_on_a_device(monkeypatch)
    data = batch()
    data.k[1, 4] = torch.nan
    data.k[0, 15, 1] = 0.0
    for cuts in (range(1, 23), [10]):
        _, state = walk(data, SlotState.empty(data.k, data.v, 30), cuts, False)
        assert state.refused.tolist() == [[0, 1], [1, 1]]
        with pytest.raises(ValueError, match="3 keys were not finite rows of length one"):
            state.check()


def test_a_refused_step_leaves_the_slots_as_they_were(batch):
    data = batch()
    state = SlotState.empty(data.k, data.v, 30)
    _, state = walk(data, state, [4], False)
    before = state.clone()
    with pytest.raises(ValueError, match="length one"):
        step(data.q[:, :1], 3 * data.k[:, :1], data.v[:, :1], state, 0.1)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))
