"""Packed slots take the bytes that are counted for them, and go on where they were."""

import pytest
import torch

from distinctkv.nn.functional import SlotState, allocate, pack, step, unit, write

B, L, H, D, C = 2, 40, 3, 8, 16


@pytest.fixture
def filled(seed):
    torch.manual_seed(seed)
    k, v = unit(torch.randn(B, L, H, D)), torch.randn(B, L, H, C)
    k[:, :, 0] = k[:, :1, 0]  # a head with one slot
    state = SlotState.empty(k, v, 64)
    write(state, k, v, allocate(k, 0.3, state=state))
    return state


def test_only_slots_are_held_each_at_its_size(filled):
    packed, n = pack(filled), int(filled.n_slots.sum())
    assert packed.nbytes == n * (4 * D + 2 * C + 4) + 4 * 8 * B * H
    assert len(packed.keys) == n < filled.keys[..., 0].numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unpacked_they_are_what_they_were(filled, dtype):
    back = pack(filled, dtype).unpacked()
    assert back.capacity == int(filled.n_slots.max())
    again = back.resized(filled.capacity)
    rounded = {"rtol": 2**-8 if dtype == torch.bfloat16 else 1e-6, "atol": 1e-6}
    torch.testing.assert_close(again.values[filled.used], filled.values[filled.used], **rounded)
    assert torch.equal(again.keys[filled.used], filled.keys[filled.used])
    for one, other in zip(again[2:], filled[2:], strict=True):
        assert torch.equal(one, other)


def test_later_tokens_find_the_same_slots(filled):
    q, k, v = unit(torch.randn(B, 5, H, D)), unit(torch.randn(B, 5, H, D)), torch.randn(B, 5, H, C)
    tau = torch.tensor(0.3, dtype=torch.float64)
    want, state = step(q, k, v, filled.clone(), tau, scale=1.0)
    found, other = step(q, k, v, pack(filled).unpacked(64), tau, scale=1.0)
    torch.testing.assert_close(found, want, rtol=0, atol=0.02)
    assert torch.equal(state.counts, other.counts)
    assert torch.equal(state.keys[state.used], other.keys[other.used])


def test_values_of_one_token_are_no_sums(seed):
    torch.manual_seed(seed)
    k, v = unit(torch.randn(B, L, H, D)), torch.randn(B, L, H, C)
    state = SlotState.empty(k, v, 64)
    write(state, k, v, allocate(k, 0.3, state=state), value="first")
    back = pack(state, torch.float32, "first").unpacked(64)
    assert torch.equal(back.values[state.used], state.values[state.used])


def test_too_little_room_is_refused(filled):
    most = int(filled.n_slots.max())
    with pytest.raises(ValueError, match=f"{most} slots are filled, got a capacity of {most - 1}"):
        pack(filled).unpacked(most - 1)


def test_no_streams_and_no_slots_come_back():
    empty = SlotState.empty(torch.zeros(0, 1, H, D), torch.zeros(0, 1, H, C), 4)
    assert pack(empty).unpacked().keys.shape == (0, H, 1, D)
    blank = SlotState.empty(torch.zeros(B, 1, H, D), torch.zeros(B, 1, H, C), 4)
    assert pack(blank).unpacked(4).values.shape == blank.values.shape
