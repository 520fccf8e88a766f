"""Layers from plain JSON: what is asked for is what is built, or it is refused."""

import pytest
import torch

from distinctkv.hf.modeling_hybrid import GATES, mixer
from distinctkv.nn.hybrid import MIXERS


@pytest.mark.parametrize("name", MIXERS)
def test_a_name_alone_is_the_mixer_as_it_comes(name):
    assert type(mixer(name, 64)) is type(MIXERS[name](64))


def test_heads_of_a_delta_net_are_a_number():
    assert (
        mixer({"mixer": "delta", "heads": 4, "key": 8, "value": 8}, 16).kind.count("heads=4") == 1
    )


@pytest.mark.parametrize("kind", GATES)
def test_the_gate_that_is_named_is_the_gate_that_is_built(kind):
    layer = mixer({"mixer": "distinct", "reading": {"window": 1}, "gate": {"kind": kind}}, 16)
    assert type(layer.gate).__name__ == kind


def test_true_is_a_write_gate_and_false_is_none():
    layer = {"mixer": "distinct", "reading": {"window": 1}}
    assert type(mixer({**layer, "gate": True}, 16).gate).__name__ == "WriteGate"
    assert mixer({**layer, "gate": False}, 16).gate is None


def test_settings_reach_the_layer():
    heads = {"count": 3, "size": 8, "centre": False}
    given = {"mixer": "distinct", "heads": heads, "tau": 0.25, "slot_dtype": "bfloat16"}
    layer = mixer(given, 16)
    assert (layer.project.heads.count, layer.project.heads.centre) == (3, False)
    assert (float(layer.tau), layer.slot_dtype) == (0.25, torch.bfloat16)
    assert set(given) == {"mixer", "heads", "tau", "slot_dtype"}


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ("mamba3", "no mixer 'mamba3'; there are mamba2"),
        ({"tau": 0.1}, "no mixer None"),
        (3, "no mixer 3"),
        ({"mixer": ["distinct"]}, "no mixer"),
        ({"mixer": "distinct", "taus": 0.1}, "no setting 'taus'; it has .*gate, heads, .*, tau"),
        ({"mixer": "full", "tau": 0.1}, "full has no setting 'tau'; it has heads"),
        ({"mixer": "distinct", "heads": 2}, "heads must map some of .* got 2"),
        ({"mixer": "distinct", "heads": {"number": 2}}, "heads has no setting 'number'"),
        ({"mixer": "distinct", "slot_dtype": "bf16"}, "name a type of torch.* got 'bf16'"),
        ({"mixer": "distinct", "gate": {"kind": "NoveltyGate"}}, "one of WriteGate, KeyGate"),
        ({"mixer": "distinct", "gate": "KeyGate"}, "got 'KeyGate'"),
        ({"mixer": "distinct", "gate": {"kind": "WriteGate", "deep": 1}}, "WriteGate has no"),
        ({"mixer": "distinct", "gate": True}, "a gate needs a window"),
    ],
)
def test_a_line_that_describes_no_layer_is_refused(layer, told):
    with pytest.raises(ValueError, match=told):
        mixer(layer, 16)
