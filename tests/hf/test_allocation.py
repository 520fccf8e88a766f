"""The whole chunk at once against token by token."""

import pytest
import torch

from distinctkv.hf import allocation
from distinctkv.hf.allocation import allocate

NONE = torch.zeros(1, 0, dtype=torch.bool)  # no slot that could be joined


def one_by_one(tokens, slots, first, threshold):
    """Owners of (L, F) tokens by the rule, in order."""
    book = [*slots]
    owners = []
    for token in tokens:
        far = [((token - slot) ** 2).sum().item() for slot in book]
        far = [1e9] * first + far[first:]
        best = min(range(len(far)), key=far.__getitem__, default=None)
        if best is None or far[best] > threshold:
            best = len(book)
            book.append(token)
        owners.append(best)
    return owners


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0, 4.0, 100.0])
@pytest.mark.parametrize("chunk", [7, 64])
def test_owners_are_those_of_the_rule(seed, monkeypatch, threshold, chunk):
    monkeypatch.setattr(allocation, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(3, 50, 2, generator=generator) * 2
    lengths = torch.tensor([0, 4, 6])
    slots = torch.randn(3, 6, 2, generator=generator) * 9
    present = torch.ones(3, 50, dtype=torch.bool)
    joinable = (torch.arange(6) >= 2) & (torch.arange(6) < lengths[:, None])
    found = allocate(tokens, present, slots, joinable, lengths, threshold)
    for head, length in enumerate(lengths.tolist()):
        first = min(length, 2)
        owners = one_by_one(tokens[head], slots[head, :length], first, threshold)
        assert found.owner[head].tolist() == owners
        assert found.lengths[head] == max(length, max(owners) + 1)


def test_a_token_that_is_not_there_opens_and_joins_nothing():
    tokens = torch.zeros(1, 3, 1)
    present = torch.tensor([[False, True, False]])
    found = allocate(tokens, present, torch.zeros(1, 0, 1), NONE, torch.zeros(1).long(), 1.0)
    assert found.owner.tolist() == [[-1, 0, -1]]
    assert found.opened.tolist() == [[False, True, False]]


def test_a_common_shift_changes_nothing(seed):
    tokens = torch.randn(1, 80, 8, generator=torch.Generator().manual_seed(seed))
    present, empty = torch.ones(1, 80, dtype=torch.bool), torch.zeros(1).long()
    none = torch.zeros(1, 0, 8)
    here = allocate(tokens, present, none, NONE, empty, 6.0)
    there = allocate(tokens + 300.0, present, none, NONE, empty, 6.0)
    assert torch.equal(here.owner, there.owner)
