"""A model is known by its weights, whatever their type and wherever they are."""

import pytest
import torch
from torch import nn

from distinctkv.hf.model_support import Anatomy, difference, sample
from tests.hf.models import build

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def changed(seed, name, generator):
    """The tiny model with a change of rank 1, of a tenth of its size, in one parameter."""
    model = build(seed).base_model
    weight = model.get_parameter(name)
    rows, *columns = weight.shape
    sides = [torch.randn(size, generator=generator) for size in (rows, *columns)]
    low = torch.outer(*sides) if columns else sides[0]
    weight.data += 0.1 * weight.std().clamp(min=0.1) * low
    return model


def test_a_change_of_low_rank_is_seen_in_every_parameter(seed):
    generator = torch.Generator().manual_seed(seed)
    model = build(seed).base_model
    ours = sample(model)
    assert difference(ours, sample(build(seed).base_model)) is None
    for name, _ in model.named_parameters():
        assert difference(ours, sample(changed(seed, name, generator))) == name


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("other", TYPES)
def test_the_same_numbers_in_two_types_are_one_model_and_scaled_ones_are_not(seed, kind, other):
    ours = sample(build(seed).to(kind))
    assert difference(ours, sample(build(seed).to(other))) is None
    scaled = build(seed)
    for weight in scaled.parameters():
        weight.data *= 1.01
    assert difference(ours, sample(scaled.to(other))) is not None


def test_the_smallest_change_is_seen_in_one_type(seed):
    model = build(seed)
    ours = sample(model)
    weight = model.model.layers[1].mlp.gate_proj.weight
    weight.data = torch.nextafter(weight.data, torch.tensor(torch.inf))
    assert difference(ours, sample(model)) == "model.layers.1.mlp.gate_proj.weight"


def test_what_cannot_be_read_is_not_compared(seed):
    class Quantised(nn.Parameter):
        pass

    whole, part = build(seed), build(seed + 1)
    for name, weight in build(seed).named_parameters():
        part.get_parameter(name).data = weight.data
    attention = part.model.layers[0].self_attn
    attention.q_proj.weight = nn.Parameter(attention.q_proj.weight.to("meta"))
    attention.k_proj.weight = Quantised(attention.k_proj.weight.data * 2)
    assert difference(sample(whole), sample(part)) is None
    assert difference(sample(part), sample(whole)) is None


def test_an_adapter_makes_another_model(seed):
    plain, adapted = build(seed), build(seed)
    projection = adapted.model.layers[2].self_attn.q_proj
    projection.lora_A = nn.Linear(32, 4, bias=False)
    name = "model.layers.2.self_attn.q_proj.lora_A.weight"
    assert difference(sample(plain), sample(adapted)) == name
    assert difference(sample(adapted), sample(plain)) == name


def test_a_model_without_its_head_is_the_same(seed):
    model = build(seed)
    both = [Anatomy.of(one).identity for one in (model, model.model)]
    assert both[0] == both[1]
    model.lm_head.weight.data *= 2
    assert Anatomy.of(model).identity == both[0]
