"""What the cache says of itself is what it holds."""

import pytest
import torch
from transformers import DynamicCache

from distinctkv.hf import CAREFUL, distinct_cache


def test_full_is_what_a_dynamic_cache_holds(tiny, text):
    plain, cache = DynamicCache(), distinct_cache(tiny, 4.0)
    tiny(text, past_key_values=plain)
    tiny(text, past_key_values=cache)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in plain.layers)
    assert cache.summary().full == held
    assert cache.summary().bytes == cache.nbytes < held


def test_the_summary_is_readable(tiny, text):
    cache = distinct_cache(tiny, 8.0)
    tiny(text, past_key_values=cache)
    said = str(cache.summary())
    assert said.startswith("120 tokens in ")
    assert f"{cache.nbytes:,} bytes of 46,080" in said
    assert said.count("\nlayer") == 3
    assert "so short" not in said


def test_a_text_too_short_for_its_part_is_held_whole_and_the_summary_says_so(tiny, text):
    for length, whole in ((20, True), (115, True), (116, False)):  # 32 newest, 4 sinks, one more
        cache = distinct_cache(tiny, kept=0.32)
        tiny(text[:, :length], past_key_values=cache)
        summary = cache.summary()
        assert (summary.kept == 1.0) is whole
        assert summary.begins == (116 if whole else 0)
        assert ("merges from about 116 on" in str(summary)) is whole
    for token in text[:, :20].T:  # tokens that wait do not make it short again
        tiny(token[None], past_key_values=cache)
        assert cache.summary().begins == 0


def test_a_summary_of_one_stream_is_all_of_that_stream(tiny, text):
    cache = distinct_cache(tiny, kept=0.5)
    mask = torch.ones(2, 120, dtype=torch.int64)
    mask[1, :30] = 0
    tiny(text.repeat(2, 1), attention_mask=mask, past_key_values=cache)
    both = [cache.summary(stream) for stream in range(2)]
    assert str(both[1]).startswith("stream 1 of 2: 90 tokens in ")
    assert sum(one.bytes for one in both) == cache.nbytes
    slots = cache.n_slots(0) - cache.n_slots(1)
    assert both[0].bytes - both[1].bytes == slots * (2 * 8 * 4 + 8)
    alone = distinct_cache(tiny, kept=0.5)
    tiny(text, past_key_values=alone)
    assert both[0].full == alone.summary().full
    assert both[0].metric == alone.summary().metric
    assert both[0].bytes == alone.nbytes


def test_a_cache_prints_as_one_line(tiny, text):
    cache = distinct_cache(tiny, kept=0.5)
    assert repr(cache).startswith("DistinctCache(kept=0.5: 0 tokens")
    tiny(text.repeat(2, 1), past_key_values=cache)
    slots = cache.n_slots(0) / cache.n_heads
    assert str(cache) == (
        f"DistinctCache(kept=0.5: 2 streams of 120 tokens in {slots:.1f} slots a head and 8 "
        f"outside, {cache.nbytes:,} bytes)"
    )


def test_a_cache_prints_the_care_that_was_asked_for(tiny):
    told = "importance=0.25, horizon=512, attended=True"
    assert repr(CAREFUL) == f"Care({told})"
    cache = distinct_cache(tiny, kept=0.5, care=CAREFUL)
    assert repr(cache).startswith(f"DistinctCache(kept=0.5, care=Care({told}): 0 tokens")


def test_a_cache_of_no_streams_prints_too(tiny, text):
    cache = distinct_cache(tiny, threshold=1.0)
    tiny(text, past_key_values=cache)
    cache.batch_select_indices(torch.tensor([], dtype=torch.long))
    assert "0 streams of 120 tokens" in repr(cache)


def test_layers_heads_and_streams_that_are_not_there_are_refused(tiny, text):
    cache = distinct_cache(tiny, 1.0, trace=True)
    tiny(text, past_key_values=cache)
    for name, size in (("layer", 3), ("head", 2), ("stream", 1)):
        at = {"layer": 0, "head": 0, "stream": 0, name: size}
        with pytest.raises(ValueError, match=f"{name} must lie in 0 to {size - 1}, got {size}"):
            cache.merged([""] * 120, **at)
    with pytest.raises(ValueError, match="stream must lie in 0 to 0, got 1"):
        cache.summary(1)
    with pytest.raises(TypeError, match=r"stream must be a whole number, got 0\.0"):
        cache.summary(0.0)


def test_nothing_seen_is_nothing_held(tiny):
    summary = distinct_cache(tiny).summary()
    assert (summary.tokens, summary.bytes, summary.full, summary.kept) == (0, 0, 0, 1.0)
    assert summary.slots.sum() == 0


def test_what_merged_with_what_is_text(tiny, text):
    words = [f"w{token}" for token in text[0].tolist()]
    cache = distinct_cache(tiny, 0.1, trace=True)
    tiny(text, past_key_values=cache)
    lines = cache.merged(words, layer=0, head=1).splitlines()
    assert lines
    for line in lines:
        # In the first layer a token is its word and nothing else: only equal words merge.
        name, members = line.split(": ", 1)
        assert name.startswith("slot ")
        assert len(members.split()) > 1
        assert len({member.split(":")[1] for member in members.split()}) == 1


def test_merged_needs_a_trace_and_all_tokens(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    with pytest.raises(ValueError, match="trace=True"):
        cache.merged([""] * 120, 0, 0)
    traced = distinct_cache(tiny, 1.0, trace=True)
    tiny(text, past_key_values=traced)
    with pytest.raises(ValueError, match="3 tokens were given, the cache has seen 120"):
        traced.merged(["a", "b", "c"], 0, 0)


def test_asking_changes_nothing_and_counts_the_queries_that_wait(tiny, text):
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    held = cache.nbytes
    tiny(text[:, :1], past_key_values=cache)
    layers = len(cache.layers)
    waiting = [query for layer in cache.layers for query in layer.asked]
    assert len(waiting) == layers
    # A key, a value and four queries of 8 numbers, for 2 heads; a position and whether it is text.
    assert cache.nbytes - held == layers * 4 * (2 * 2 * 8 + 4 * 8) + 5
    assert cache.summary().bytes == cache.nbytes
    assert [query for layer in cache.layers for query in layer.asked] == waiting
