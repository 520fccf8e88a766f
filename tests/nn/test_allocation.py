"""Laws of allocation, its state, its limits and its door."""

import pytest
import torch

from distinctkv.nn.functional import SlotState, allocate, unit, write
from tests.nn.cases import as_on_a_device


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a[:2], b[:2], strict=True))


@pytest.mark.parametrize("tau", [-1.0, 0.0, 0.1, 0.5])
def test_the_size_of_the_chunk_changes_nothing(batch, tau):
    keys = batch(L=50, noise=0.4, dtype=torch.float32).k
    want = allocate(keys, tau)
    for chunk in (1, 2, 13, 49, 50, 51):
        assert same(allocate(keys, tau, chunk=chunk), want)


def test_slots_are_further_apart_than_tau_and_tokens_within_it(batch):
    keys = batch(L=60, noise=0.6).k
    found = allocate(keys, 0.2)
    for b in range(2):
        for h in range(2):
            slots = keys[b, found.opener[b, h, : found.n_slots[b, h]], h]
            gaps = torch.cdist(slots, slots).square() / 2
            assert (gaps + 9 * torch.eye(len(slots))).min() > 0.2
            mine = slots[found.assign[b, :, h]] - keys[b, :, h]
            assert (mine.square().sum(-1) / 2).max() <= 0.2


def test_writing_a_stream_twice_opens_nothing(batch):
    data = batch(L=40, noise=0.4)
    found = allocate(data.k, 0.1)
    state = write(SlotState.empty(data.k, data.v, 40), data.k, data.v, found)
    again = allocate(data.k, 0.1, state=state)
    assert not again.lead.any()
    assert torch.equal(again.n_slots, found.n_slots)


@pytest.mark.parametrize("places", [[1], [7, 8], [20, 41], list(range(1, 50))])
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


def test_what_lies_in_free_slots_is_never_seen(batch):
    data = batch(L=30, dtype=torch.float32)
    state = SlotState.empty(data.k, data.v, 30)
    for buffer in (state.keys, state.values):
        buffer.fill_(torch.nan)
    state.counts.fill_(77)
    for a in (0, 10, 20):
        found = allocate(data.k[:, a : a + 10], 0.1, state=state)
        write(state, data.k[:, a : a + 10], data.v[:, a : a + 10], found)
    assert torch.equal(state.n_slots, allocate(data.k, 0.1).n_slots)
    assert not any(x[state.used].isnan().any() for x in state[:2])
    assert torch.equal(torch.where(state.used, state.counts, 0).sum(-1), state.seen)


def test_tau_may_be_a_number_a_tensor_or_one_for_each_head(batch):
    keys = batch(noise=0.4).k
    both = allocate(keys, torch.tensor([0.05, 0.4], dtype=torch.float64))
    for h, tau in enumerate((0.05, 0.4)):
        alone = allocate(keys[:, :, h : h + 1], torch.tensor(tau, dtype=torch.float64))
        assert torch.equal(both.assign[:, :, h : h + 1], alone.assign)
        assert same(alone, allocate(keys[:, :, h : h + 1], tau))


def test_below_zero_every_token_opens_a_slot_and_at_zero_repeats_merge(batch):
    keys = batch(noise=0.0).k
    assert allocate(keys, -1.0).lead.all()
    assert allocate(keys, 0.0).n_slots.max() <= 5


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


def test_wrong_input_is_refused(batch):
    data = batch()
    state = SlotState.empty(data.k, data.v, 9)
    wrong = [
        (r"floats \(B, L, H, D\)", {"keys": data.k[0]}),
        ("no tokens", {"keys": data.k[:, :0]}),
        ("got nan", {"tau": float("nan")}),
        ("got nan", {"tau": torch.tensor(float("nan"))}),
        ("tau must be a number", {"tau": torch.tensor([0.1, float("nan")])}),
        ("one per head", {"tau": torch.zeros(3)}),
        ("mask must be bool", {"mask": torch.zeros(2, 23)}),
        ("1 or more", {"chunk": 0}),
        ("this state holds", {"state": state.index_select(torch.tensor([0]))}),
        ("cast the keys", {"state": state, "keys": data.k.float()}),
        ("holds 9 slots", {"state": state, "capacity": 4}),
        ("must be one of", {"impl": "cuda"}),
    ]
    for message, words in wrong:
        with pytest.raises(ValueError, match=message):
            allocate(**({"keys": data.k, "tau": 0.1} | words))


def test_a_tau_of_nan_that_nobody_can_look_at_refuses_all(batch, monkeypatch):
    as_on_a_device(monkeypatch)
    found = allocate(batch().k, torch.tensor([0.1, float("nan")]))
    assert found.refused.tolist() == [[0, 23], [0, 23]]
    with pytest.raises(ValueError, match="tau is nan"):
        found.check()


def test_unit_rows_have_length_one(batch):
    keys = unit(1e-20 * batch(dtype=torch.float32).q)
    torch.testing.assert_close(keys.norm(dim=-1), torch.ones(2, 23, 2))
