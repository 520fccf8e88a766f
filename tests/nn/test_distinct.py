"""The cache as a layer: attention at its limit, fewer slots beyond, and what a gate stores."""

import pytest
import torch

from distinctkv.nn import distinct
from distinctkv.nn.allocation import allocate
from distinctkv.nn.attention import FullAttention, Heads
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.gates import WriteGate
from distinctkv.policy import Concentration

E, HEADS = 16, Heads(count=2, size=8)
WINDOWS = [0, 1, 4, 99]


@pytest.fixture
def x():
    """Two streams of 20 tokens which are occurrences of six, in random order."""
    return torch.randn(6, E)[torch.randint(6, (2, 20))]


@pytest.fixture
def full(x):
    full = FullAttention(E, HEADS)
    full(x)
    return full.eval()


@pytest.mark.parametrize("window", WINDOWS)
def test_with_tau_0_it_is_full_attention_with_its_gradients(full, x, window):
    mixer = DistinctAttention.retrofit(full, tau=0.0, reading=Reading(window=window))
    assert not mixer.training
    found = []
    for layer in (mixer, full):
        layer.zero_grad()
        out = layer(x)
        out.square().sum().backward()
        found.append([out, *(weight.grad.clone() for weight in full.parameters())])
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("window", WINDOWS)
def test_with_tau_2_all_but_the_window_share_a_slot(full, x, window):
    mixer = DistinctAttention.retrofit(full, tau=2.0, reading=Reading(window=window))
    mixer(x)
    far = max(0, 20 - max(window, 1) + 1)
    if far:
        assert mixer.slots_per_token.item() == pytest.approx(1 / 20)


def test_what_a_window_hides_is_held_for_a_few_queries_at_a_time(full, x, monkeypatch):
    mixer = DistinctAttention.retrofit(full, tau=0.3, reading=Reading(window=4))
    whole, masks, visible = mixer(x), [], distinct.visible
    monkeypatch.setattr(distinct, "QUERIES", 6)
    monkeypatch.setattr(distinct, "visible", lambda *at: masks.append(m := visible(*at)) or m)
    torch.testing.assert_close(mixer(x), whole, rtol=0, atol=1e-5)
    assert [len(mask) for mask in masks] == [6, 6, 6, 2]


@torch.no_grad()
def test_far_tokens_move_a_window_read_towards_their_slots(full, x):
    """Near tokens are exact whatever tau is: a stream within the window reads like attention."""
    mixer = DistinctAttention.retrofit(full, tau=2.0, reading=Reading(window=5))
    torch.testing.assert_close(mixer(x)[:, :5], full(x)[:, :5], rtol=0, atol=1e-5)
    assert (mixer(x)[:, 10:] - full(x)[:, 10:]).abs().max() > 1e-3


class Half(WriteGate):
    """Opens for tokens whose first number is above 0."""

    def logit(self, novelty, hidden):
        return self.score.weight.sum() * 0 + hidden[..., 0]


@torch.no_grad()
def test_a_shut_token_is_never_stored(x):
    words = {"concentration": Concentration.fixed(0.0), "reading": Reading(window=1)}
    mixer = DistinctAttention(E, HEADS, gate=Half(E), **words).eval()
    state = mixer.start(2)
    mixer(x, state)
    assert (state.slots.seen == (x[..., 0] > 0).sum(1)[:, None]).all()


@torch.no_grad()
def test_a_gate_that_is_always_open_changes_nothing(full, x):
    plain = DistinctAttention.retrofit(full, tau=0.3, reading=Reading(window=3))
    words = {"concentration": Concentration.fixed(0.3), "reading": Reading(window=3)}
    gated = DistinctAttention(E, HEADS, gate=WriteGate(E), **words).eval()
    gated.project = full.project
    gated.gate.score.weight.zero_()
    gated.gate.score.bias.fill_(1.0)
    torch.testing.assert_close(gated(x), plain(x), rtol=0, atol=1e-6)


def test_the_gate_learns_which_tokens_are_read(x):
    """Every query is made to look for the first of the six tokens: the gate opens for it alone."""
    x = x[:1]  # in the other stream the first queries have nothing to find
    mixer = DistinctAttention(E, Heads(2, 8, taps=1), reading=Reading(window=1), gate=WriteGate(E))
    wanted = x[0, 0]
    project = mixer.project
    with torch.no_grad():
        key = torch.nn.functional.linear(wanted, project.in_proj.weight.chunk(3)[1])
        project.in_proj.weight.chunk(3)[0].zero_()
        project.conv.bias.chunk(3)[0].copy_(key)
        project.conv.bias.chunk(3)[1].zero_()
        project.scale.fill_(50.0)
    project.heads = Heads(2, 8, taps=1, centre=False)
    optimiser = torch.optim.Adam(mixer.gate.parameters(), 0.1)
    for _ in range(60):
        mixer(x)
        optimiser.zero_grad()
        mixer.write_loss().backward()
        optimiser.step()
    same = (x == wanted).all(-1)
    opened = mixer.gate.logit(x[..., 0], x) > 0
    assert torch.equal(opened, same)


@pytest.mark.parametrize(("value", "size"), [("mean", 6), ("first", 4), ("last", 4)])
def test_slots_of_fewer_bits_take_fewer_bytes_and_are_those_of_the_rounded_keys(
    full, x, value, size
):
    mixer = DistinctAttention.retrofit(full, 0.3, Reading(value=value))
    mixer.slot_dtype = torch.bfloat16
    state = mixer.start(2)
    mixer(x, state)
    # A key of 8 and a value of 8 numbers, and a count of 4 bytes.
    assert sum(part[0, 0, :1].nbytes for part in state.slots[:3]) == 8 * size + 4
    keys = full.project(x)[1].bfloat16()
    found = allocate(keys.float(), 0.3)
    assert torch.equal(state.slots.n_slots, found.n_slots)
    lead = found.lead[0, :, 0]
    assert torch.equal(state.slots.keys[0, 0, : lead.sum()], keys[0, lead, 0])


def test_training_rounds_nothing(full, x):
    outputs = []
    for kind in (None, torch.bfloat16):
        mixer = DistinctAttention.retrofit(full, 0.3).train()
        mixer.project.eval()  # it is shared, and its mean key must not move in between
        mixer.slot_dtype = kind
        outputs.append((mixer(x), mixer.eval()(x)))
    (exact, served), (same, rounded) = outputs
    assert torch.equal(exact, same)
    assert not torch.equal(served, rounded)
