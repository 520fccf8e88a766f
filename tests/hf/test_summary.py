"""What the cache says of itself is what it holds."""

import pytest
from transformers import DynamicCache

from distinctkv.hf import distinct_cache
from distinctkv.hf.figure import draw


def test_full_is_what_a_dynamic_cache_holds(tiny, text):
    plain, cache = DynamicCache(), distinct_cache(tiny, 1.0)
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
    assert said.count("layer") == 3


def test_the_figure_is_drawn(tmp_path, tiny, text):
    pytest.importorskip("matplotlib")
    cache = distinct_cache(tiny, 1.0)
    tiny(text, past_key_values=cache)
    summary = cache.summary()
    heads, layers, size, _ = draw(summary).axes
    assert (heads.images[0].get_array() == (summary.slots + 32) / 120).all()
    assert [bar.get_width() for bar in layers.patches] == list(summary.slots.mean(1) + 32)
    assert [bar.get_height() * 1e6 for bar in size.patches] == [summary.full, summary.bytes]
    summary.save_figure(tmp_path / "cache.png")
    assert (tmp_path / "cache.png").read_bytes()[:4] == b"\x89PNG"


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
