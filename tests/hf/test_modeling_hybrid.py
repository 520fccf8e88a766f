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


KINDS = {"hybrid": LAYERS, "others": OTHERS, "learned": LEARNING}


def build(seed, layers=LAYERS):
    torch.manual_seed(seed)
    return HybridForCausalLM(HybridConfig(32, 16, layers, expand=2)).eval()


def prompts(seed, n=3, length=12):
    return torch.randint(32, (n, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_gives_the_same_logits(kind, seed, tmp_path):
    model, tokens = build(seed, KINDS[kind]), prompts(seed)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(again, HybridForCausalLM)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), HybridConfig)
    assert (tmp_path / "model.safetensors").exists()
    assert again.config.to_dict()["layers"] == model.config.to_dict()["layers"]
    assert torch.equal(again(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(torch.bfloat16, torch.bfloat16), (torch.bfloat16, "auto"), (torch.float32, "auto")],
)
def test_a_trained_model_comes_back_to_the_last_bit(kind, dtype, seed, tmp_path):
    model, tokens = build(seed, [*LAYERS, LEARNED]).train(), prompts(seed)
    model(tokens)
    set_tau(model.model.mixers[1], 0.1234567890123)
    model = model.eval().to(kind)
    model.save_pretrained(tmp_path)
    again = HybridForCausalLM.from_pretrained(tmp_path, dtype=dtype).eval()
    before, after = (x.model.mixers[1] for x in (model, again))
    assert float(after.tau) == 0.1234567890123
    assert torch.equal(again.model.mixers[2].tau, torch.tensor(0.3))
    assert int(after.project.batches) == 1
    assert after.project.mean.dtype == torch.float32
    assert torch.equal(after.project.mean, before.project.mean)
    assert torch.equal(again(tokens).logits, model(tokens).logits)


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_generation_with_the_cache_says_what_it_says_without(kind, beams, seed):
    model, tokens = build(seed, KINDS[kind]), prompts(seed)
    settings = {"max_new_tokens": 8, "do_sample": False, "num_beams": beams}
    with_cache = model.generate(tokens, **settings)
    assert with_cache.shape == (3, 20)
    assert torch.equal(with_cache, model.generate(tokens, use_cache=False, **settings))
    if beams == 1:
        assert torch.equal(with_cache[:, 12:], model.model.generate(tokens, 8))


def test_a_cache_goes_on_where_it_stopped(seed):
    model, tokens = build(seed), prompts(seed)
    first = model(tokens[:, :7], use_cache=True)
    assert first.past_key_values.get_seq_length() == 7
    assert first.past_key_values.nbytes > 0
    words = {"max_new_tokens": 5, "do_sample": False}
    said = model.generate(tokens, past_key_values=first.past_key_values, **words)
    assert torch.equal(said, model.generate(tokens, **words))
    whole = model(tokens, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="has seen 12 tokens"):
        model.generate(tokens, past_key_values=whole, **words)


@pytest.mark.parametrize("layers", [LAYERS, [GATED]])
def test_the_loss_is_that_of_the_next_token(layers, seed):
    """Without what teaches a gate, which a step of training has left behind."""
    model, tokens = build(seed, layers), prompts(seed)
    model.train()(tokens)
    labels = tokens.clone()
    labels[:, :5] = -100
    found = model.eval()(tokens, labels=labels)
    said, wanted = found.logits[:, 4:-1].flatten(0, 1), tokens[:, 5:].flatten()
    assert torch.allclose(found.loss, torch.nn.functional.cross_entropy(said, wanted))


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
    ("make", "word"),
    [
        (lambda: make_mixer("mamba3", 16), "no mixer 'mamba3'"),
        (lambda: make_mixer({"mixer": "full", "taus": 1}, 16), "taus"),
        (lambda: make_mixer({"mixer": "distinct", "gate": {"kind": "None"}}, 16), "NoveltyGate"),
        (lambda: HybridConfig(layers=[]), "1 layer or more"),
        (lambda: HybridConfig(layers="distinct"), "got 'distinct'"),
        (lambda: HybridConfig(hidden_size=0), "at least 1"),
        (lambda: build(0)(prompts(0), attentoin_mask=prompts(0)), "attentoin_mask"),
    ],
)
def test_a_config_of_no_model_and_an_unknown_argument_raise(make, word):
    with pytest.raises((TypeError, ValueError), match=word):
        make()


def test_the_trainer_of_transformers_may_say_how_many_items_a_batch_has(seed):
    model, tokens = build(seed), prompts(seed)
    assert model(tokens, labels=tokens, num_items_in_batch=torch.tensor(33)).loss > 0
