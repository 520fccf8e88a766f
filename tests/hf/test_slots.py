"""Ragged slots, flat and padded, are the same slots."""

import pytest
import torch

from distinctkv.hf.slots import FLAT, Slots


@pytest.fixture
def slots(seed):
    """Three streams of two heads with 0 to 4 slots each."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([[3, 1], [0, 4], [2, 2]])
    N = int(lengths.sum())
    return Slots(
        keys=torch.randn(N, 5, generator=generator),
        values=torch.randn(N, 3, generator=generator),
        counts=torch.arange(1, N + 1, dtype=torch.int32),
        positions=torch.arange(N, dtype=torch.int32),
        usage=torch.randn(N, generator=generator),
        weight=torch.rand(N, generator=generator),
        got=torch.rand(N, generator=generator),
        lengths=lengths,
    )


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in (*FLAT, "lengths"))


def test_padded_is_the_same_for_one_stream_and_for_all(slots):
    for name in FLAT[:4]:
        wide = slots.wide(getattr(slots, name)).unflatten(0, (3, 2))
        for stream in range(3):
            padded = slots.padded(stream)
            held = getattr(padded, name)[padded.counts > 0]
            assert torch.equal(wide[stream][:, : padded.keys.shape[1]][padded.counts > 0], held)


def test_bounds_rows_and_places_say_where_a_slot_is(slots):
    assert slots.bounds().tolist() == [0, 3, 4, 4, 8, 10, 12]
    assert slots.rows().tolist() == [0, 0, 0, 1, 3, 3, 3, 3, 4, 4, 5, 5]
    assert slots.places().tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 0, 1, 0, 1]
    assert slots.there().sum(1).tolist() == slots.lengths.flatten().tolist()


def test_parts_are_the_streams_in_order_with_bounds_of_their_own(slots):
    parts = slots.parts(3)
    assert same(Slots.join(parts), slots)
    for part in parts:
        kept = part.bounds()
        part._bounds.clear()
        assert torch.equal(kept, part.bounds())


def test_what_is_kept_stays_in_order(slots):
    keep = slots.counts % 2 == 0
    lengths = torch.tensor([[1, 1], [0, 2], [1, 1]])
    kept = slots.kept(keep, lengths)
    assert kept.counts.tolist() == [2, 4, 6, 8, 10, 12]
    assert torch.equal(kept.lengths, lengths)


def test_where_there_is_no_slot_there_is_no_use_and_no_weight(slots):
    for stream in range(3):
        padded = slots.padded(stream)
        empty = padded.counts == 0
        assert not padded.usage[empty].any()
        assert not padded.weight[empty].any()
        assert not padded.got[empty].any()


def test_streams_are_selected_in_any_order(slots):
    order = [2, 0, 2, 1]
    chosen = slots.select(torch.tensor(order))
    assert same(chosen, Slots.join(slots.parts(3)[stream] for stream in order))


def test_segments_are_the_rows_of_each_head(slots):
    for stream, heads in enumerate(slots.segments()):
        for head, rows in enumerate(heads):
            padded = slots.padded(stream)
            length = int(slots.lengths[stream, head])
            assert torch.equal(slots.keys[rows], padded.keys[head, :length])


def test_what_is_selected_holds_no_more_than_itself(slots):
    one = slots.stream(1)
    assert one.keys.untyped_storage().nbytes() == 4 * 5 * 4
