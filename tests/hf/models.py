"""Tiny random models of each architecture."""

import torch
import transformers

from distinctkv.hf import distinct_cache

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,  # so that attention is not flat
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
KINDS = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "phi3": {"partial_rotary_factor": 0.5},
    "gemma": {"head_dim": 16},
}


def build(seed, kind="llama", **changes):
    """A random model: same seed, same weights."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **KINDS[kind], **changes})
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def greedy(model, ids, cache, n=12, **options):
    """Greedy tokens after ``ids``."""
    out = model.generate(ids, past_key_values=cache, max_new_tokens=n, do_sample=False, **options)
    return out[:, ids.shape[1] :]


def filled(model, ids, *size, **words):
    """A cache that has seen ``ids``."""
    cache = distinct_cache(model, *size, **words)
    model(ids, past_key_values=cache)
    return cache


def unfolded(cache, sequences=1):
    """A DynamicCache in which every token has the key and the value of its slot.

    A slot of n tokens must weigh in attention as these n tokens do: the law that reading obeys.
    """
    plain = transformers.DynamicCache()
    for index, layer in enumerate(cache.layers):
        owner = layer.owner.clamp(min=0).long()[..., None]
        old = []
        for rows in (layer.slots.keys, layer.slots.values):
            wide = layer.slots.padded(rows).unflatten(0, (sequences, -1))
            old.append(wide.gather(2, owner.expand(-1, -1, -1, wide.shape[-1])))
        keys, values = torch.cat((old[0], layer.keys), 2), torch.cat((old[1], layer.values), 2)
        plain.update(keys, values, index)
    return plain


def weighs_as_its_tokens(model, ids, cache, atol=1e-4, rtol=0, sequences=1, **options):
    """Raise if the logits after these slots are not those after their tokens."""
    plain = unfolded(cache, sequences)
    want, got = (model(ids, past_key_values=one, **options).logits for one in (plain, cache))
    torch.testing.assert_close(got.float(), want.float(), atol=atol, rtol=rtol)
