"""Slots of heads of many lengths, end to end, in parts of one tensor, or with room behind each."""

import pytest
import torch

from distinctkv.hf.slots import FLAT, SlotBuffer, Slots, Source, absorb, pool


def drawn(rng, *lengths):
    """Slots of two heads of each sequence."""
    sizes = torch.tensor(lengths)
    n = int(sizes.sum())
    keys, values = (torch.tensor(rng.standard_normal((n, width))) for width in (4, 3))
    counts = torch.arange(1, n + 1, dtype=torch.int32)
    weight, received = torch.tensor(rng.random((2, n)), dtype=torch.float32)
    return Slots(keys, values, counts, counts + 7, weight, received, sizes)


def same(one, other):
    assert torch.equal(one.lengths, other.lengths)
    one, other = one.compact(), other.compact()
    assert torch.equal(one.spans(), other.spans())
    for name in FLAT:
        assert torch.equal(getattr(one, name), getattr(other, name))


def test_parts_joined_again_are_the_same_memory(rng):
    whole = drawn(rng, [2, 3], [1, 0], [4, 2], [5, 1])
    joined = Slots.join(whole.parts(2)).compact()
    same(joined, whole)
    assert joined.keys.data_ptr() == whole.keys.data_ptr()
    assert Slots.join(whole.parts(2)[1:]).compact().keys.data_ptr() > whole.keys.data_ptr()
    same(Slots.join(part.compact() for part in whole.parts(4)), whole)


def test_a_buffer_holds_what_was_put_in(rng):
    layers = [drawn(rng, [2, 3], [1, 0]), drawn(rng, [4, 2], [5, 1])]
    buffer = SlotBuffer(layers, 3)
    for held, layer in zip(buffer.layers, layers, strict=True):
        same(held, layer)
        same(held.select(torch.tensor([1, 0, 1])), layer.select(torch.tensor([1, 0, 1])))
    same(Slots.join(buffer.layers), Slots.join(layers))
    assert buffer.has_room(3)
    assert not buffer.has_room(4)


def test_absorbed_tokens_are_weighed_as_tokens(rng):
    held, tokens = drawn(rng, [1, 2]), drawn(rng, [3, 3])
    buffer = SlotBuffer([held], 2)
    owner = torch.tensor([[0, 1, 1], [-1, 2, 0]])
    opened = torch.tensor([[False, True, False], [False, True, False]])
    absorb(tokens, owner, opened, buffer.layers[0])
    lengths = torch.tensor([2, 3])
    buffer.grow(lengths)
    buffer.count(lengths)
    now = buffer.layers[0].compact()
    assert now.lengths.tolist() == [[2, 3]]
    assert now.counts.tolist() == [1 + 1, 2 + 3, 2 + 6, 3, 5]
    assert now.positions.tolist() == [8, 9, 9, 10, 12]
    first = (held.values[0] * held.received[0] + tokens.values[0] * tokens.received[0]) / (
        held.received[0] + tokens.received[0]
    )
    torch.testing.assert_close(now.values[0], first, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(now.weight[0], torch.maximum(held.weight[0], tokens.weight[0]))
    torch.testing.assert_close(now.keys[4], tokens.keys[4])
    assert torch.equal(now.values[3], held.values[2])


@pytest.mark.parametrize(
    ("dtype", "mean"), [(torch.bfloat16, 1.0), (torch.float16, 1.34), (torch.float32, 1.5)]
)
def test_a_mean_in_16_bits_stops_moving_when_tokens_merge_one_at_a_time(dtype, mean):
    def token(value):
        one, none = torch.ones(1, dtype=torch.int32), torch.zeros(0)
        row = torch.full((1, 2), value, dtype=dtype)
        return Slots(row, row, one, one, none, none, torch.ones(1, 1, dtype=torch.int64))

    first, opens = torch.zeros(1, dtype=torch.int64), torch.tensor([True])
    slot = token(1.0)
    for value in [1.0] * 999 + [2.0] * 1000:
        sources = Source(slot, first, opens), Source(token(value), first, ~opens)
        slot = pool(sources, slot.lengths)
    assert int(slot.counts) == 2000
    assert float(slot.values[0, 0]) == pytest.approx(mean, abs=0.005)
