"""Layers, models and training told what cannot be: the value seen, the rule, the way out."""

import pytest
import torch
from torch import nn

from distinctkv.nn import checkpoint
from distinctkv.nn.attention import FullAttention, Heads, SlidingWindowAttention
from distinctkv.nn.baselines import KVMAttention, OVQAttention
from distinctkv.nn.delta_net import GatedDeltaNet
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.gates import KeyGate, WriteGate
from distinctkv.nn.hybrid import HybridBlock, HybridLM
from distinctkv.nn.ssm import DiagonalSSM, Mamba2
from distinctkv.nn.train import set_tau, train
from tests.nn.test_mixers import MIXERS, E

HEADS = Heads(2, 8)
NEAR = Reading(window=1)
WRONG = [
    (lambda: FullAttention(0), ValueError, "width must be at least 1, got 0"),
    (lambda: Mamba2(64, states=0), ValueError, "states must be at least 1, got 0"),
    (lambda: GatedDeltaNet(64, heads=0), ValueError, "heads must be at least 1, got 0"),
    (lambda: DiagonalSSM(0), ValueError, "width must be at least 1, got 0"),
    (lambda: HybridLM(10, 64, []), ValueError, "layers must be at least 1, got 0"),
    (lambda: HybridLM(0, 64, ["full"]), ValueError, "vocabulary must be at least 1, got 0"),
    (lambda: HybridLM(9, 64, [Mamba2(32)]), ValueError, "takes 32 channels, the model has 64"),
    (
        lambda: HybridLM(9, 64, [DistinctAttention]),
        TypeError,
        r"DistinctAttention\(64\), or a name",
    ),
    (lambda: HybridLM(9, 64, [nn.Linear(64, 64)]), TypeError, "a layer is a mixer"),
    (lambda: KVMAttention(E).fit(0, 10), ValueError, "n_slots must be at least 1, got 0"),
    (lambda: OVQAttention(E).fit(0, 10), ValueError, "n_slots must be at least 1, got 0"),
    (lambda: DistinctAttention.retrofit(Mamba2(64), 0.1), TypeError, "FullAttention, got Mamba2"),
    (
        lambda: DistinctAttention.retrofit(SlidingWindowAttention(E), 0.1),
        TypeError,
        "FullAttention, got SlidingWindowAttention",
    ),
    (
        lambda: DistinctAttention(64, reading=NEAR, gate=WriteGate(32)),
        ValueError,
        "WriteGate does not take 64 numbers",
    ),
    (lambda: HybridLM(9, 64, "full"), ValueError, "layers must be a list"),
    (lambda: HybridLM(9, 64, ["full"], expand=-1), ValueError, "expand 0 or more, got .* -1"),
    (lambda: DistinctAttention(64).start(1, room=0), ValueError, "room must be at least 1, got 0"),
    (lambda: HybridBlock(Mamba2(64), 64, -1), ValueError, "expand must be 0 or more, got -1"),
    (lambda: set_tau(HybridLM(9, 64, ["mamba2"]), 0.1), ValueError, "without a DistinctAttention"),
]


@pytest.mark.parametrize(("make", "kind", "said"), WRONG, ids=[said for _, _, said in WRONG])
def test_what_cannot_be_made_is_refused_by_name(make, kind, said):
    with pytest.raises(kind, match=said):
        make()


def test_a_gate_of_the_right_width_is_taken_in_any_type():
    for gate in (WriteGate(E), KeyGate(E).double(), KeyGate(E).to("meta")):
        DistinctAttention(E, HEADS, reading=NEAR, gate=gate)


@pytest.fixture(params=MIXERS)
def mixer(request):
    return MIXERS[request.param]()


def test_tokens_of_other_channels_are_refused(mixer):
    with pytest.raises(ValueError, match=rf"tokens have 8 channels, and \w+\(.*\) takes {E}"):
        mixer(torch.zeros(1, 3, 8))


def test_tokens_of_another_type_are_refused_unless_torch_casts(mixer):
    x = torch.zeros(1, 3, E, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"tokens are torch.float64 and the weights .* cast"):
        mixer(x)
    with torch.autocast("cpu", torch.bfloat16):
        mixer(x.bfloat16())


@pytest.fixture
def model(seed):
    torch.manual_seed(seed)
    return HybridLM(11, E, [Mamba2(E, states=4, head=8), DistinctAttention(E, HEADS)])


def test_tokens_of_a_model_are_whole_numbers_of_its_vocabulary(model):
    tokens, state = torch.tensor([[1, 2, 3]]), model.start(1)
    for wrong in (tokens[0], tokens.float(), tokens[None]):
        with pytest.raises(ValueError, match=r"whole numbers \(B, L\), got .* tokens\[None\]"):
            model(wrong, state)
    for wrong in (tokens + 9, tokens - 2):
        with pytest.raises(ValueError, match="tokens must be 0 to 10, the vocabulary, got"):
            model(wrong, state)
    for wrong in (tokens[0, 0], tokens):
        with pytest.raises(ValueError, match=r"one token of each stream \(B,\)"):
            model.step(wrong, state)
    assert not state.interrupted


def test_weights_that_layers_share_are_saved_and_come_back(tmp_path, seed):
    torch.manual_seed(seed)
    layer, other = (FullAttention(E, HEADS) for _ in range(2))
    one, two = HybridLM(11, E, [layer, layer]).eval(), HybridLM(11, E, [other, other]).eval()
    checkpoint.save(one, tmp_path / "m.safetensors")
    checkpoint.load(two, tmp_path / "m.safetensors")
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(one(tokens), two(tokens))


def test_a_batch_is_a_pair_of_one_shape(model):
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"targets must be \(2, 5\) as tokens"):
        list(train(model, [(tokens, tokens[:, 1:])], steps=1))
