"""What the cache says of itself is what it holds."""

import pytest
import torch
from transformers import DynamicCache

from distinctkv.hf import FAST, distinct_cache
from tests.hf.models import filled


def test_full_is_what_a_dynamic_cache_holds_and_nothing_seen_is_nothing_held(tiny, text):
    plain, cache = DynamicCache(), distinct_cache(tiny, 4.0)
    before = cache.summary()
    assert (before.tokens, before.bytes, before.full, before.kept) == (0, 0, 0, 1.0)
    tiny(text, past_key_values=plain)
    tiny(text, past_key_values=cache)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in plain.layers)
    assert cache.summary().full == held
    assert cache.summary().bytes == cache.nbytes < held


def test_a_summary_and_a_cache_print(tiny, text):
    cache = distinct_cache(tiny, kept=0.5)
    assert "kept=0.5: 0 tokens" in repr(cache)
    tiny(text.repeat(2, 1), past_key_values=cache)
    slots = cache.summary().slots.mean()
    assert f"2 sequences of 120 tokens in {slots:.1f} slots a head" in str(cache)
    lines = str(cache.summary(1)).splitlines()
    assert "sequence 1 of 2: 120 tokens" in lines[0]
    assert "of 46,080" in lines[1]
    assert len([line for line in lines if line.startswith("layer")]) == 3
    cache.batch_select_indices(torch.tensor([], dtype=torch.long))
    with pytest.raises(ValueError, match="sequence"):
        cache.summary()


def test_a_summary_of_one_sequence_is_all_of_that_sequence(tiny, text):
    cache = distinct_cache(tiny, kept=0.5)
    mask = torch.ones(2, 120, dtype=torch.int64)
    mask[1, :30] = 0
    tiny(text.repeat(2, 1), attention_mask=mask, past_key_values=cache)
    both = [cache.summary(sequence) for sequence in range(2)]
    assert both[1].tokens == 90
    assert sum(one.bytes for one in both) == cache.nbytes
    slots = int(both[0].slots.sum() - both[1].slots.sum())
    assert both[0].bytes - both[1].bytes == slots * (2 * 8 * 4 + 16)
    alone = filled(tiny, text, kept=0.5)
    for name in ("bytes", "full", "metric"):
        assert getattr(both[0], name) == getattr(alone.summary(), name)


def test_a_text_too_short_for_its_share_says_so(tiny, text):
    for length, whole in ((20, True), (115, True), (116, False)):  # 32 recent, 4 sinks, 1 more
        cache = filled(tiny, text[:, :length], kept=0.32)
        summary = cache.summary()
        assert (summary.kept == 1.0) is whole
        assert summary.min_length == (116 if whole else 0)
        assert ("nothing is merged below 116 tokens" in str(summary)) is whole


def test_what_was_merged_is_text(tiny, text):
    words = [f"w{token}" for token in text[0].tolist()]
    cache = filled(tiny, text, 0.1, trace=True)
    lines = cache.merged(words, layer=0, head=1).splitlines()
    assert lines
    for line in lines:
        # In the first layer a key is its word and nothing else: only equal words merge.
        name, members = line.split(": ", 1)
        assert name.startswith("slot ")
        assert len(members.split()) > 1
        assert len({member.split(":")[1] for member in members.split()}) == 1


@pytest.mark.parametrize(
    ("trace", "words", "at", "word"),
    [
        (False, 120, (0, 0, 0), "trace=True"),
        (True, 3, (0, 0, 0), "3 tokens"),
        (True, 120, (3, 0, 0), "layer"),
        (True, 120, (0, 2, 0), "head"),
        (True, 120, (0, 0, 1), "sequence"),
    ],
)
def test_merged_needs_a_trace_and_all_tokens(tiny, text, trace, words, at, word):
    cache = filled(tiny, text, 1.0, trace=trace)
    with pytest.raises(ValueError, match=word):
        cache.merged([""] * words, *at)


@pytest.mark.parametrize(("merge", "each"), [(None, 8), (FAST, 0)])
def test_bytes_held_are_the_bytes_of_slots_and_window(tiny, text, merge, each):
    cache = filled(tiny, text, 1.0, merge=merge)
    D, H, N = 8, 2, len(cache.layers)
    pair = 2 * D * 4  # a key and a value in float32
    slots = int(cache.summary().slots.sum()) * (pair + 8 + each)  # count, position; weight, mass
    window = N * H * 32 * (pair + each // 2) + 32 * (4 + 1)  # positions and mask are shared
    lengths, queries = N * H * 8, N * 4 * 32 * D * 4  # queries that crop may remove
    held = slots + window + lengths + queries + cache.summary().metric
    assert cache.nbytes == held
    tiny(text[:, :1], past_key_values=cache)  # one more of the window, and queries that wait
    token = N * (H * (pair + each // 2) + 4 * D * 4) + 5
    assert cache.summary().bytes == cache.nbytes == held + token
