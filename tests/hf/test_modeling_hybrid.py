"""The hybrid as a model of transformers: round trips, generation, loss."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from distinctkv.hf import WrongModelError
from distinctkv.hf.modeling_hybrid import TOKEN_GATES, HybridConfig, HybridForCausalLM, make_mixer
from distinctkv.nn.hybrid import MIXERS
from distinctkv.nn.train import set_tau

LAYERS = [
    {"mixer": "mamba2", "states": 8, "head": 16},
    {"mixer": "distinct", "heads": {"count": 2, "size": 16}, "tau": 0.3},
]
GATED = {"mixer": "distinct", "reading": {"window": 2}, "gate": True, "heads": {"size": 16}}
OTHERS = ["diagonal", "delta", "full", "window", GATED]
LEARNED = {"mixer": "distinct", "gate": {"kind": "NoveltyGate", "threshold": 0.3}, "budget": 5}
LEARNING = [
    LEARNED,
    {"mixer": "distinct", "gate": {"kind": "MetricGate"}, "heads": {"size": 16}},
    {"mixer": "distinct", "gate": {"kind": "KeyNoveltyGate"}, "heads": {"size": 16}},
    {"mixer": "distinct", "concentration": {"tau": 0.1, "base": 3, "gain": 2, "rate": 0.1}},
]


def build(seed, layers=LAYERS):
    torch.manual_seed(seed)
    return HybridForCausalLM(HybridConfig(32, 16, layers, expand=2)).eval()


def prompts(seed, n=3, length=12):
    return torch.randint(32, (n, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("layers", [LAYERS, OTHERS, LEARNING], ids=["hybrid", "others", "learned"])
def test_what_is_saved_gives_the_same_logits(layers, seed, tmp_path):
    model, tokens = build(seed, layers), prompts(seed)
    model.save_pretrained(tmp_path)
    again = HybridForCausalLM.from_pretrained(tmp_path).eval()
    assert (tmp_path / "model.safetensors").exists()
    assert again.config.to_dict()["layers"] == model.config.to_dict()["layers"]
    assert torch.equal(again(tokens).logits, model(tokens).logits)


def test_tau_and_the_mean_key_are_saved_to_the_last_bit(seed, tmp_path):
    model = build(seed)
    model.train()(prompts(seed))
    set_tau(model, 0.1234567890123)
    model.save_pretrained(tmp_path)
    again = HybridForCausalLM.from_pretrained(tmp_path)
    before, after = (x.model.mixers[1] for x in (model, again))
    assert float(after.tau) == 0.1234567890123
    assert torch.equal(after.project.mean, before.project.mean)
    assert int(after.project.batches) == 1


def test_one_matrix_is_embedding_and_head_after_a_round_trip(seed, tmp_path):
    build(seed).save_pretrained(tmp_path)
    again, tokens = HybridForCausalLM.from_pretrained(tmp_path), prompts(seed)
    again.resize_token_embeddings(40)
    assert again(tokens).logits.shape[-1] == 40
    assert len([p for p in again.parameters() if p.shape[0] == 40]) == 1


def test_a_file_that_lacks_a_weight_is_refused(seed, tmp_path):
    build(seed).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.blocks.1.mixer.fixed_tau"]
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(WrongModelError, match=r"no fitting model\.blocks\.1\.mixer\.fixed_tau"):
        HybridForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("layers", [LAYERS, OTHERS, LEARNING], ids=["hybrid", "others", "learned"])
@pytest.mark.parametrize("beams", [1, 3])
def test_generation_with_the_cache_says_what_it_says_without(layers, beams, seed):
    model, tokens = build(seed, layers), prompts(seed)
    settings = {"max_new_tokens": 8, "do_sample": False, "num_beams": beams}
    with_cache = model.generate(tokens, **settings)
    without = model.generate(tokens, use_cache=False, **settings)
    assert with_cache.shape == (3, 20)
    assert torch.equal(with_cache, without)


def test_greedy_generation_is_that_of_the_model_itself(seed):
    model, tokens = build(seed), prompts(seed)
    said = model.generate(tokens, max_new_tokens=8, do_sample=False)
    assert torch.equal(said[:, 12:], model.model.generate(tokens, 8))


def test_a_cache_goes_on_where_it_stopped(seed):
    model, tokens = build(seed), prompts(seed)
    first = model(tokens[:, :7], use_cache=True)
    assert first.past_key_values.get_seq_length() == 7
    assert first.past_key_values.nbytes > 0
    said = model.generate(
        tokens, past_key_values=first.past_key_values, max_new_tokens=5, do_sample=False
    )
    assert torch.equal(said, model.generate(tokens, max_new_tokens=5, do_sample=False))


def test_a_cache_that_has_seen_it_all_is_refused(seed):
    model, tokens = build(seed), prompts(seed)
    cache = model(tokens, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="has seen 12 tokens and 12 were given"):
        model.generate(tokens, past_key_values=cache, max_new_tokens=2)


def test_the_loss_is_that_of_the_next_token(seed):
    model, tokens = build(seed), prompts(seed)
    labels = tokens.clone()
    labels[:, :5] = -100
    found = model(tokens, labels=labels)
    wanted = torch.nn.functional.cross_entropy(
        found.logits[:, 4:-1].flatten(0, 1), tokens[:, 5:].flatten()
    )
    assert torch.allclose(found.loss, wanted)


def test_a_write_gate_learns_from_the_loss(seed):
    with torch.enable_grad():
        model, tokens = build(seed, [GATED]).train(), prompts(seed)
        model(tokens, labels=tokens).loss.backward()
    gate = model.model.mixers[0].gate
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in gate.parameters())


def test_prompts_padded_on_the_left_say_what_they_say_alone(seed):
    model, tokens = build(seed), prompts(seed)
    mask = torch.ones_like(tokens)
    mask[0, :5] = mask[1, :2] = 0
    settings = {"max_new_tokens": 6, "do_sample": False}
    said = model.generate(tokens.masked_fill(mask == 0, 0), attention_mask=mask, **settings)
    for row, start in enumerate((5, 2, 0)):
        alone = model.generate(tokens[row : row + 1, start:], **settings)
        assert torch.equal(said[row, start:], alone[0])
    with pytest.raises(ValueError, match="padded on the right"):
        model.generate(tokens, attention_mask=(mask.flip(1).cumsum(0) > 0).long(), **settings)


def test_the_classes_of_transformers_load_what_was_saved(seed, tmp_path):
    model, tokens = build(seed), prompts(seed)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(AutoConfig.from_pretrained(tmp_path), HybridConfig)
    assert isinstance(again, HybridForCausalLM)
    assert torch.equal(again(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("beams", [1, 2])
def test_generation_gives_the_hidden_states_of_each_token(beams, seed):
    model, tokens = build(seed), prompts(seed)
    settings = {"max_new_tokens": 4, "do_sample": False, "num_beams": beams}
    found = model.generate(
        tokens, output_hidden_states=True, return_dict_in_generate=True, **settings
    )
    sizes = [[tuple(part.shape) for part in step] for step in found.hidden_states]
    assert sizes == [[(3 * beams, n, 16)] * 3 for n in (12, 1, 1, 1)]
    assert torch.equal(found.sequences, model.generate(tokens, **settings))
    if beams == 1:
        text = model(found.sequences[:, :-1], output_hidden_states=True).hidden_states[-1]
        steps = torch.cat([step[-1] for step in found.hidden_states], 1)
        torch.testing.assert_close(steps, text, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, "auto"])
def test_a_model_of_16_bits_comes_back_to_the_last_bit(dtype, seed, tmp_path):
    model, tokens = build(seed, [*LAYERS, LEARNED]).train(), prompts(seed)
    model(tokens)
    model = model.eval().bfloat16()
    model.save_pretrained(tmp_path)
    again = HybridForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval()
    before, after = (x.model.mixers[1].project for x in (model, again))
    assert after.mean.dtype == torch.float32
    assert torch.equal(after.mean, before.mean)
    assert torch.equal(again.model.mixers[2].tau, torch.tensor(0.3))
    assert torch.equal(again(tokens).logits, model(tokens).logits)


def test_a_padded_prompt_may_come_token_by_token(seed):
    model, tokens = build(seed), prompts(seed)
    mask = torch.ones_like(tokens)
    mask[0, :5] = 0
    with torch.no_grad():
        whole, cache = model(tokens, attention_mask=mask).logits, None
        for t in range(tokens.shape[1]):
            given = {"attention_mask": mask[:, : t + 1], "past_key_values": cache}
            found = model(tokens[:, t : t + 1], use_cache=True, **given)
            cache = found.past_key_values
    assert torch.allclose(found.logits[:, 0], whole[:, -1], atol=1e-5)


def test_evaluation_leaves_what_teaches_the_gate_out_of_the_loss(seed):
    model, tokens = build(seed, [GATED]), prompts(seed)
    model.train()(tokens)
    found = model.eval()(tokens, labels=tokens)
    said, wanted = found.logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    assert torch.allclose(found.loss, torch.nn.functional.cross_entropy(said, wanted))


def test_logits_are_kept_where_they_are_wanted(seed):
    model, tokens = build(seed), prompts(seed)
    whole = model(tokens).logits
    for kept in (1, 5, 12, 99, 0):
        few = model(tokens, logits_to_keep=kept).logits
        torch.testing.assert_close(few, whole[:, -kept:] if kept < 12 else whole)
    few = model(tokens, logits_to_keep=torch.tensor([0, 7, -1])).logits
    torch.testing.assert_close(few, whole[:, [0, 7, 11]])


@pytest.mark.parametrize("name", MIXERS)
def test_a_name_alone_is_the_mixer_as_it_comes(name):
    assert type(make_mixer(name, 64)) is type(MIXERS[name](64))


def test_settings_reach_the_layer():
    heads = {"count": 3, "size": 8, "centre": False}
    given = {"mixer": "distinct", "heads": heads, "tau": 0.25, "slot_dtype": "bfloat16"}
    layer = make_mixer(given, 16)
    assert (layer.project.heads.count, layer.project.heads.centre) == (3, False)
    assert (float(layer.tau), layer.slot_dtype) == (0.25, torch.bfloat16)
    assert set(given) == {"mixer", "heads", "tau", "slot_dtype"}
    windowed = {"mixer": "distinct", "reading": {"window": 1}}
    for kind in TOKEN_GATES:
        assert type(make_mixer({**windowed, "gate": {"kind": kind}}, 16).gate).__name__ == kind
    assert make_mixer({**windowed, "gate": False}, 16).gate is None


@pytest.mark.parametrize(
    ("make", "error", "word"),
    [
        (lambda: make_mixer("mamba3", 16), ValueError, "no mixer 'mamba3'; there are mamba2"),
        (lambda: make_mixer({"mixer": "full", "taus": 1}, 16), TypeError, "taus"),
        (
            lambda: make_mixer({"mixer": "distinct", "gate": {"kind": "None"}}, 16),
            ValueError,
            "name one of NoveltyGate, WriteGate, KeyGate",
        ),
        (lambda: HybridConfig(layers=[]), ValueError, r"1 layer or more, got \[\]"),
        (lambda: HybridConfig(layers="distinct"), ValueError, "got 'distinct'"),
        (lambda: HybridConfig(hidden_size=0), ValueError, "at least 1 .* got 256, 0 and 0"),
    ],
)
def test_a_config_of_no_model_raises(make, error, word):
    with pytest.raises(error, match=word):
        make()


def test_an_unknown_argument_raises(seed):
    model, tokens = build(seed), prompts(seed)
    with pytest.raises(TypeError, match="takes no 'attentoin_mask'"):
        model(tokens, attentoin_mask=torch.ones_like(tokens))
    assert model(tokens, labels=tokens, num_items_in_batch=torch.tensor(33)).loss > 0
