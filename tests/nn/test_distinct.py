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
def x(seed):
    """Two streams of 20 tokens which are occurrences of six, in random order."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(6, E, generator=generator)
    return rows[torch.randint(6, (2, 20), generator=generator)]


@pytest.fixture
def full(seed, x):
    torch.manual_seed(seed)
    full = FullAttention(E, HEADS)
    full(x)
    return full.eval()


@pytest.mark.parametrize("window", WINDOWS)
def test_with_tau_0_it_is_full_attention(full, x, window):
    mixer = DistinctAttention.retrofit(full, tau=0.0, reading=Reading(window=window))
    torch.testing.assert_close(mixer(x), full(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("window", WINDOWS)
def test_with_tau_0_its_gradients_are_those_of_full_attention(full, x, window):
    mixer = DistinctAttention.retrofit(full, tau=0.0, reading=Reading(window=window))
    slopes = []
    for layer in (mixer, full):
        layer.zero_grad()
        layer(x).square().sum().backward()
        slopes.append([weight.grad.clone() for weight in full.parameters()])
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


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


def test_a_larger_tau_opens_fewer_slots(full, x):
    slots = []
    for tau in (0.0, 0.2, 0.6, 1.2):
        mixer = DistinctAttention.retrofit(full, tau)
        mixer(x)
        slots.append(mixer.slots_per_token.item())
    assert slots == sorted(slots, reverse=True)
    assert slots[0] > slots[-1]


def test_a_retrofit_shares_the_weights(full, x):
    mixer = DistinctAttention.retrofit(full, tau=0.1)
    assert mixer.project is full.project
    assert not mixer.training


@torch.no_grad()
def test_far_tokens_move_a_window_read_towards_their_slots(full, x):
    """Near tokens are exact whatever tau is: a stream within the window reads like attention."""
    mixer = DistinctAttention.retrofit(full, tau=2.0, reading=Reading(window=5))
    torch.testing.assert_close(mixer(x)[:, :5], full(x)[:, :5], rtol=0, atol=1e-5)
    assert (mixer(x)[:, 10:] - full(x)[:, 10:]).abs().max() > 1e-3


@torch.no_grad()
def test_room_grows_as_slots_open(full, seed):
    mixer = DistinctAttention.retrofit(full, tau=0.0)
    x = torch.randn(1, 200, E, generator=torch.Generator().manual_seed(seed))
    state = mixer.start(1)
    parts = [mixer(part, state) for part in x.split(30, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), mixer(x), rtol=0, atol=1e-5)
    assert state.slots.capacity >= 200
    assert int(state.slots.overflow.sum()) == 0


@torch.no_grad()
def test_bytes_are_told_with_the_empty_room(full, x):
    mixer = DistinctAttention.retrofit(full, tau=0.2)
    state = mixer.start(2)
    mixer(x, state)
    each = (8 + 8 + 1) * 4  # key, value, count
    rest = state.conv_state.nbytes + 4 * state.slots.n_slots.nbytes
    assert state.nbytes == rest + 2 * 2 * state.slots.capacity * each


class Half(WriteGate):
    """Opens for tokens whose first number is above 0."""

    def logit(self, novelty, hidden):
        return self.score.weight.sum() * 0 + hidden[..., 0]


@torch.no_grad()
def test_a_shut_token_is_never_stored(x):
    gate = Half(E)
    mixer = DistinctAttention(
        E,
        HEADS,
        concentration=Concentration.fixed(0.0),
        reading=Reading(window=1),
        gate=gate,
    ).eval()
    state = mixer.start(2)
    mixer(x, state)
    opened = (x[..., 0] > 0).sum(1)
    assert (state.slots.seen == opened[:, None]).all()


@torch.no_grad()
def test_a_gate_that_is_always_open_changes_nothing(full, x):
    plain = DistinctAttention.retrofit(full, tau=0.3, reading=Reading(window=3))
    gated = DistinctAttention(
        E,
        HEADS,
        concentration=Concentration.fixed(0.3),
        reading=Reading(window=3),
        gate=WriteGate(E),
    ).eval()
    gated.project = full.project
    gated.gate.score.weight.zero_()
    gated.gate.score.bias.fill_(1.0)
    torch.testing.assert_close(gated(x), plain(x), rtol=0, atol=1e-6)


def test_the_gate_learns_which_tokens_are_read(full, x, seed):
    """Every query is made to look for one of the six tokens: the gate must open for that alone."""
    torch.manual_seed(seed)
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


def test_without_reads_there_is_nothing_to_learn(full, x):
    mixer = DistinctAttention.retrofit(full, tau=0.3)
    mixer(x)
    assert mixer.write_loss() == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"concentration": Concentration.surprise(), "reading": Reading(window=2)},
            "has no window",
        ),
        ({"concentration": Concentration.fixed(2.5)}, "tau must be at most 2"),
        ({"gate": WriteGate(E)}, "a gate needs a window"),
    ],
)
def test_what_cannot_be_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        DistinctAttention(E, HEADS, **wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mode": "sum"}, "mode is one of"),
        ({"value": "most"}, "value one of"),
        ({"window": -1}, "window must be 0 or more"),
        ({"window": 3, "mode": "distinct"}, "read together with the mass"),
    ],
)
def test_reads_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Reading(**wrong)


@pytest.mark.parametrize(("value", "size"), [("mean", 6), ("first", 4), ("last", 4)])
def test_slots_of_fewer_bits_take_fewer_bytes(full, x, value, size):
    """A key of 8 and a value of 8 numbers, and a count of 4 bytes."""
    mixer = DistinctAttention.retrofit(full, 0.3, Reading(value=value))
    mixer.slot_dtype = torch.bfloat16
    state = mixer.start(2)
    mixer(x, state)
    assert state.slots.keys.dtype == torch.bfloat16
    per_slot = sum(part[0, 0, :1].nbytes for part in state.slots[:3])
    assert per_slot == 8 * size + 4


def test_slots_of_fewer_bits_are_those_of_the_rounded_keys(full, x):
    mixer = DistinctAttention.retrofit(full, 0.3)
    mixer.slot_dtype = torch.bfloat16
    state = mixer.start(2)
    mixer(x, state)
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
