"""The language model: one contract for any list of mixers."""

import pytest
import torch

from distinctkv.nn import checkpoint
from distinctkv.nn.attention import FullAttention, Heads
from distinctkv.nn.distinct import DistinctAttention
from distinctkv.nn.hybrid import MIXERS, HybridLM
from distinctkv.nn.ssm import Mamba2
from distinctkv.snapshot import SnapshotError

V, E = 11, 16


def build(expand=0):
    heads = Heads(count=2, size=8)
    return HybridLM(V, E, [Mamba2(E, states=4, head=8), DistinctAttention(E, heads)], expand=expand)


@pytest.fixture(params=[0, 2], ids=["mixers alone", "with networks"])
def model(request):
    return build(request.param).eval()


@pytest.fixture
def tokens():
    return torch.randint(V, (3, 17))


@torch.no_grad()
def test_logits_may_be_had_at_some_places_alone(model, tokens):
    at = torch.tensor([[16, 0, 3], [2, 2, 5], [1, 9, 4]])
    some, whole = model(tokens, at=at), model(tokens)
    torch.testing.assert_close(some, torch.stack([w[a] for w, a in zip(whole, at, strict=True)]))


def test_what_is_generated_is_what_the_model_finds_likeliest(model, tokens):
    said = model.generate(tokens, 6)
    whole = model(torch.cat([tokens, said], 1)).argmax(-1)
    assert torch.equal(said, whole[:, 16:-1])


def test_generation_by_chance_follows_its_generator(model, tokens, seed):
    one, other = (
        model.generate(tokens, 20, temperature=1.0, generator=torch.Generator().manual_seed(seed))
        for _ in range(2)
    )
    assert torch.equal(one, other)
    assert not torch.equal(one, model.generate(tokens, 20))


def test_prompts_of_different_lengths_are_answered_as_if_alone(model):
    tokens = torch.randint(11, (2, 9))
    for kept in (torch.arange(9) >= 4, torch.arange(9) < 5):
        mask = torch.stack([torch.ones(9, dtype=torch.bool), kept])
        said = model.generate(tokens, 6, mask=mask)
        assert torch.equal(said[:1], model.generate(tokens[:1], 6))
        assert torch.equal(said[1:], model.generate(tokens[1:, kept], 6))


@torch.no_grad()
@pytest.mark.parametrize("name", MIXERS)
def test_every_named_mixer_makes_a_model(name, tokens):
    model = HybridLM(V, 64, [name]).eval()
    state = model.start(3)
    torch.testing.assert_close(
        torch.cat([model(tokens[:, :5], state), model(tokens[:, 5:], state)], 1),
        model(tokens),
        rtol=0,
        atol=1e-4,
    )


def test_weights_that_layers_share_are_saved_and_come_back(tmp_path):
    layer, other = (FullAttention(E) for _ in range(2))
    one, two = HybridLM(11, E, [layer, layer]).eval(), HybridLM(11, E, [other, other]).eval()
    checkpoint.save(one, tmp_path / "m.safetensors")
    checkpoint.load(two, tmp_path / "m.safetensors")
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(one(tokens), two(tokens))


def test_weights_of_another_model_are_refused_and_change_nothing(model, tmp_path):
    checkpoint.save(model, tmp_path / "model.safetensors")
    other = HybridLM(V, E, [FullAttention(E)])
    before = other.embed.weight.clone()
    with pytest.raises(ValueError, match="holds another model"):
        checkpoint.load(other, tmp_path / "model.safetensors")
    wide = HybridLM(V + 1, E, model.mixers, expand=model.blocks[0].expand)
    with pytest.raises(ValueError, match=r"embed.weight is \(11, 16\)"):
        checkpoint.load(wide, tmp_path / "model.safetensors")
    assert torch.equal(other.embed.weight, before)


def test_a_damaged_file_is_refused(model, tmp_path):
    path = tmp_path / "model.safetensors"
    checkpoint.save(model, path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SnapshotError, match="not a whole"):
        checkpoint.load(model, path)
