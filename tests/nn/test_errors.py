"""What cannot be is refused, by a word that names it, before anything is done."""

import pytest
import torch
from torch import nn

from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    Heads,
    HybridLM,
    Mamba2,
    MetricGate,
    Reading,
)
from distinctkv.nn.attention import SlidingWindowAttention
from distinctkv.nn.baselines import KVMAttention, OVQAttention
from distinctkv.nn.delta_net import GatedDeltaNet, delta_rule
from distinctkv.nn.functional import (
    SlotState,
    allocate,
    budget_penalty,
    causal_novelty,
    hard_keep,
    read,
    soft_read,
    unit,
)
from distinctkv.nn.gates import (
    GumbelGate,
    KeyGate,
    KeyNoveltyGate,
    NoveltyGate,
    SurpriseGate,
    WriteGate,
)
from distinctkv.nn.hybrid import HybridBlock
from distinctkv.nn.ssm import DiagonalSSM, diagonal, selective_scan, ssd
from distinctkv.nn.train import Ramp, set_tau, train
from distinctkv.policy import Concentration
from tests.nn.test_mixers import HEADS, MIXERS, E

INF, NAN, NEAR = float("inf"), float("nan"), Reading(window=1)
ONES, TOKENS = torch.ones(2, 5), torch.zeros(2, 5, dtype=torch.int64)
K = unit(torch.linspace(-1, 2, 80, dtype=torch.float64).sin().reshape(2, 5, 2, 4))
GATE, FOUND = -ONES[..., None].expand(2, 5, 2).double(), allocate(K, 0.1)
STATE = SlotState.empty(K, K, 9)


def learned(gate=None, **more):
    return DistinctAttention(E, HEADS, gate=gate or NoveltyGate(), **more)


def lm(*layers, **more):
    return HybridLM(11, E, list(layers or [FullAttention(E, HEADS)]), **more)


LAYERS = [
    (lambda: Heads(count=0), "count"),
    (lambda: Heads(scale=0.0), "scale"),
    (lambda: Heads(taps=2, lag=2), "0 to 1"),
    (lambda: Heads(taps=1, lag=1), "taps"),
    (lambda: Heads(lag=-1), "-1"),
    (lambda: FullAttention(0), "width"),
    (lambda: Mamba2(64, states=0), "states"),
    (lambda: GatedDeltaNet(64, heads=0), "heads"),
    (lambda: DiagonalSSM(0), "width"),
    (lambda: KVMAttention(E, chunk=0), "chunk"),
    (lambda: OVQAttention(E, chunk=0), "chunk"),
    (lambda: KVMAttention(E).fit(0, 10), "n_slots"),
    (lambda: OVQAttention(E).fit(40, 40), "never fill"),
    (lambda: KVMAttention(E)(torch.zeros(2, 5, E), mask=TOKENS > 0), "padding"),
    (lambda: FullAttention(E)(torch.zeros(2, 5, E), mask=ONES), "mask must be bool"),
    (lambda: FullAttention(E)(torch.zeros(2, 5, E), mask=ONES[:, 1:] > 0), "mask must be bool"),
    (lambda: Reading(mode="sum"), "mode"),
    (lambda: Reading(value="most"), "value"),
    (lambda: Reading(window=-1), "window"),
    (lambda: Reading(window=3, mode="distinct"), "mass"),
    (lambda: DistinctAttention(E, concentration=Concentration.surprise(), reading=NEAR), "window"),
    (lambda: DistinctAttention(E, concentration=Concentration.fixed(2.5)), "at most 2"),
    (lambda: DistinctAttention(E, gate=WriteGate(E)), "needs a window"),
    (lambda: DistinctAttention(E, reading=NEAR, gate=WriteGate(2 * E)), "WriteGate"),
    (lambda: DistinctAttention(E).start(1, room=0), "room"),
    (lambda: DistinctAttention(E, HEADS, budget=8), "budget"),
    (lambda: DistinctAttention.retrofit(Mamba2(64), 0.1), "Mamba2"),
    (lambda: DistinctAttention.retrofit(SlidingWindowAttention(E), 0.1), "SlidingWindowAttention"),
]
GATES = [
    (lambda: NoveltyGate(slope=INF), "slope"),
    (lambda: NoveltyGate(slope=-1), "slope"),
    (lambda: NoveltyGate(threshold=NAN), "threshold"),
    (lambda: GumbelGate(NoveltyGate(), INF), "temperature"),
    (lambda: KeyGate(E, hidden=0), "hidden"),
    (lambda: KeyGate(E, layers=-1), "layers"),
    (lambda: KeyNoveltyGate(0), "width"),
    (lambda: MetricGate(0), "width"),
    (lambda: SurpriseGate(-1), "width"),
    (lambda: learned(concentration=Concentration.fixed(0.3)), "decides what opens"),
    (lambda: learned(reading=Reading(window=2)), "reading"),
    (lambda: learned(KeyNoveltyGate(E)), "size of a head"),
    (lambda: learned(budget=0), "budget"),
    (lambda: set_tau(learned(KeyNoveltyGate(8)), 0.1), "no threshold"),
    (lambda: train(lm(learned()), [], steps=1, ramp=Ramp(0.3)), "ramp"),
]
MODELS = [
    (lambda: HybridLM(10, 64, []), "layers"),
    (lambda: HybridLM(0, 64, ["full"]), "vocabulary"),
    (lambda: HybridLM(9, 64, ["mamba3"]), "no mixer 'mamba3'"),
    (lambda: HybridLM(9, 64, "full"), "list"),
    (lambda: HybridLM(9, 64, ["full"], expand=-1), "expand"),
    (lambda: HybridLM(9, 64, [Mamba2(32)]), "32 channels"),
    (lambda: HybridLM(9, 64, [nn.Linear(64, 64)]), "mixer"),
    (lambda: HybridBlock(Mamba2(64), 64, -1), "expand"),
    (lambda: lm()(TOKENS[0]), "whole numbers"),
    (lambda: lm()(TOKENS + 11), "0 to 10"),
    (lambda: lm()(TOKENS - 1), "0 to 10"),
    (lambda: lm().step(TOKENS, lm().start(2)), "one token"),
    (lambda: lm().generate(TOKENS, -1), "generate needs"),
    (lambda: lm().generate(TOKENS, 1, temperature=-1.0), "generate needs"),
    (lambda: lm().generate(TOKENS, 1, mask=TOKENS > 0), "no real token"),
    (lambda: set_tau(lm(), 0.1), "without a DistinctAttention"),
    (lambda: list(train(lm(), [(TOKENS, TOKENS[:, 1:])], steps=1)), "targets"),
    (lambda: Ramp(0.3, 0.5, 0.5), "begin"),
    (lambda: Ramp(0.3, -0.1, 0.5), "begin"),
    (lambda: Ramp(0.3, 0.2, 1.1), "begin"),
]
SLOTS = [
    (lambda: allocate(K[0], 0.1), "floats"),
    (lambda: allocate(K[:, :0], 0.1), "no tokens"),
    (lambda: allocate(K, NAN), "nan"),
    (lambda: allocate(K, torch.tensor(NAN)), "nan"),
    (lambda: allocate(K, torch.tensor([0.1, NAN])), "tau"),
    (lambda: allocate(K, torch.zeros(3)), "one per head"),
    (lambda: allocate(K, 0.1, mask=ONES), "mask must be bool"),
    (lambda: allocate(K, 0.1, chunk=0), "1 or more"),
    (lambda: allocate(K, 0.1, state=STATE.index_select(torch.tensor([0]))), "this state holds"),
    (lambda: allocate(K.float(), 0.1, state=STATE), "cast"),
    (lambda: allocate(K, 0.1, state=STATE, capacity=4), "holds 9 slots"),
    (lambda: allocate(K, 0.1, impl="cuda"), "one of"),
    (lambda: read(K, K, K, FOUND, scale=NAN), "scale"),
    (lambda: read(K, K, K, FOUND, scale=INF), "scale"),
    (lambda: read(K, K, K, FOUND, mode="sum"), "'sum'"),
    (lambda: read(K[:, :, :1], K, K, FOUND), "multiple"),
    (lambda: read(K[..., :3], K, K, FOUND), "q, k, v must be"),
    (lambda: read(K, K, K, allocate(K[:, :3], 0.1)), "allocation is for tokens"),
    (lambda: causal_novelty(3 * K), "length one"),
    (lambda: causal_novelty(K[0]), "floats"),
    (lambda: causal_novelty(K, mask=ONES), "mask must be bool"),
    (lambda: causal_novelty(K, mask=ONES[:, 1:] > 0), "mask must be bool"),
    (lambda: soft_read(K, K, K, GATE, mask=ONES), "mask must be bool"),
    (lambda: soft_read(K, K, K, GATE, scale=NAN), "scale"),
    (lambda: soft_read(K, K, K, GATE[..., :1]), "log_gate and v"),
    (lambda: soft_read(torch.cat([K, K], 1), K, K, GATE), "log_gate and v"),
    (lambda: soft_read(torch.cat([K, K], 2), K, K, GATE), "q must be"),
    (lambda: hard_keep(GATE, -1), "0 tokens or more"),
    (lambda: hard_keep(GATE.long(), 2), "floats"),
    (lambda: hard_keep(GATE, 2, mask=ONES), "mask must be bool"),
    (lambda: budget_penalty(GATE, 0), "budget"),
    (lambda: budget_penalty(GATE, INF), "budget"),
    (lambda: budget_penalty(GATE, torch.tensor([4.0, 0.0])), "budget"),
]
X, A, PAIR, ROWS = (
    torch.ones(2, 3, 4, 5),
    -torch.ones(4),
    torch.ones(2, 3, 1, 6),
    torch.ones(2, 3, 4),
)
MODES = torch.ones(4, 6) + 0j
SCANS = [
    (lambda: ssd(X, ROWS[..., :3], A, PAIR, PAIR), "4 heads"),
    (lambda: ssd(X, ROWS, A, *[PAIR.expand(2, 3, 3, 6)] * 2), "divisor"),
    (lambda: ssd(X, ROWS, A, PAIR, PAIR, chunk=0), "chunk"),
    (lambda: ssd(X, ROWS, A, PAIR, PAIR, state=torch.zeros(2, 4, 6, 5)), "state"),
    (lambda: delta_rule(X, X, X, ROWS, ROWS, chunk=0), "chunk"),
    (lambda: diagonal(ROWS, MODES[:1], MODES, MODES), r"\(E, N\)"),
    (lambda: diagonal(ROWS, MODES, MODES[:, :2], MODES), r"\(E, N\)"),
    (lambda: diagonal(ROWS, MODES, MODES, MODES, state=torch.zeros(1, 4, 6) + 0j), "state"),
    (lambda: selective_scan(ROWS[..., :1], ROWS, MODES.real, *[PAIR[:, :, 0]] * 2), "B and C"),
    (lambda: selective_scan(ROWS, ROWS, MODES.real, PAIR[:1, :, 0], PAIR[:, :, 0]), "B and C"),
]


@pytest.mark.parametrize(("make", "word"), [*LAYERS, *GATES, *MODELS, *SLOTS, *SCANS])
def test_what_cannot_be_is_refused_by_name(make, word):
    with pytest.raises((TypeError, ValueError), match=word):
        make()


def test_a_gate_of_the_right_width_is_taken_in_any_type():
    for gate in (WriteGate(E), KeyGate(E).double(), KeyGate(E).to("meta")):
        DistinctAttention(E, HEADS, reading=NEAR, gate=gate)


@pytest.fixture(params=MIXERS)
def mixer(request):
    return MIXERS[request.param]()


def test_tokens_of_other_channels_are_refused(mixer):
    with pytest.raises(ValueError, match="8 channels"):
        mixer(torch.zeros(1, 3, 8))


def test_tokens_of_another_type_are_refused_unless_torch_casts(mixer):
    x = torch.zeros(1, 3, E, dtype=torch.float64)
    with pytest.raises(ValueError, match="cast"):
        mixer(x)
    with torch.autocast("cpu", torch.bfloat16):
        mixer(x.bfloat16())
