"""Conformance: what every mixer promises. To join, add a line to MIXERS."""

from copy import deepcopy

import pytest
import torch
from torch.utils import checkpoint as recompute

from distinctkv.nn import checkpoint
from distinctkv.nn.attention import FullAttention, Heads, SlidingWindowAttention
from distinctkv.nn.delta_net import GatedDeltaNet
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.gates import KeyNoveltyGate, MetricGate, NoveltyGate, WriteGate
from distinctkv.nn.hybrid import HybridBlock
from distinctkv.nn.mixer import Mixer
from distinctkv.nn.ssm import DiagonalSSM, Mamba2
from distinctkv.policy import Concentration

B, L, E = 2, 23, 16
HEADS = Heads(count=2, size=8)
TAU = Concentration.fixed(0.4)


def distinct(gate=None, **reading):
    return DistinctAttention(E, HEADS, concentration=TAU, reading=Reading(**reading), gate=gate)


def halved(**reading):
    return DistinctAttention(
        E, HEADS, concentration=TAU, reading=Reading(**reading), slot_dtype=torch.bfloat16
    )


def network():
    """A gate on key and novelty that keeps some tokens."""
    gate = KeyNoveltyGate(8, layers=0)
    torch.nn.init.ones_(gate.net[0].weight[:, -1:])
    torch.nn.init.constant_(gate.net[0].bias, -0.3)
    return gate


MIXERS = {
    "mamba2": lambda: Mamba2(E, states=6, head=8, chunk=8),
    "diagonal": lambda: DiagonalSSM(E, states=4, chunk=8),
    "delta": lambda: GatedDeltaNet(E, heads=2, key=4, value=8, chunk=8),
    "full": lambda: FullAttention(E, HEADS),
    "uncentred": lambda: FullAttention(E, Heads(count=2, size=8, centre=False, taps=1)),
    "window": lambda: SlidingWindowAttention(E, HEADS, window=5),
    "window-2": lambda: SlidingWindowAttention(E, HEADS, window=2),
    "distinct": distinct,
    "distinct-first": lambda: distinct(mode="distinct", value="first"),
    "distinct-mean": lambda: distinct(mode="distinct", value="mean"),
    "distinct-last": lambda: distinct(mode="distinct", value="last"),
    "distinct-window": lambda: distinct(window=4),
    "distinct-gated": lambda: distinct(WriteGate(E), window=3),
    "distinct-learned": lambda: DistinctAttention(E, HEADS, gate=NoveltyGate(), budget=9),
    "distinct-metric": lambda: DistinctAttention(E, HEADS, gate=MetricGate(8), budget=9),
    "distinct-network": lambda: DistinctAttention(E, HEADS, gate=network(), budget=9),
    "distinct-evicting": lambda: DistinctAttention(
        E, HEADS, concentration=Concentration.surprise(0.4, base=2, gain=4)
    ),
    "distinct-bf16": lambda: halved(),
    "distinct-first-bf16": lambda: halved(mode="distinct", value="first"),
    "distinct-window-bf16": lambda: halved(window=4),
}


@pytest.fixture(params=MIXERS)
def mixer(request, seed):
    torch.manual_seed(seed)
    mixer = MIXERS[request.param]()
    mixer(torch.randn(B, L, E))  # moves the mean key off zero, where there is one
    return mixer.eval()


@pytest.fixture
def x(mixer, seed):
    """A stream with repeats, so that slots are shared."""
    rows = torch.randn(6, E, generator=torch.Generator().manual_seed(seed))
    order = torch.randint(6, (B, L), generator=torch.Generator().manual_seed(seed + 1))
    return rows[order]


def fed(mixer, x, cuts):
    """Outputs for a stream given in parts, and the state in the end."""
    state, parts, start = mixer.start(len(x)), [], 0
    for stop in [*cuts, x.shape[1]]:
        parts.append(mixer(x[:, start:stop], state))
        start = stop
    return torch.cat(parts, 1), state


@torch.no_grad()
def test_token_by_token_equals_the_whole(mixer, x):
    state = mixer.start(B)
    steps = torch.stack([mixer.step(x[:, t], state) for t in range(L)], 1)
    torch.testing.assert_close(steps, mixer(x), rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("cuts", [[], [1], [9, 10, 17], [20]], ids=str)
def test_a_stream_may_be_cut_anywhere(mixer, x, cuts):
    parts, _ = fed(mixer, x, cuts)
    torch.testing.assert_close(parts, mixer(x), rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_token_changes_no_output_before_it(mixer, x):
    other = x.clone()
    other[:, 14:] = -other[:, 14:].flip(1)
    before, after = mixer(x), mixer(other)
    torch.testing.assert_close(before[:, :14], after[:, :14], rtol=0, atol=1e-6)
    assert (before[:, 14:] - after[:, 14:]).abs().max() > 1e-4


@torch.no_grad()
def test_a_stream_does_not_see_its_neighbours(mixer, x):
    torch.testing.assert_close(mixer(x)[1:], mixer(x[1:]), rtol=0, atol=1e-6)


@torch.no_grad()
def test_the_state_says_what_it_holds(mixer, x):
    _, state = fed(mixer, x, [])
    held = [part for value in vars(state).values() for part in _tensors(value)]
    assert state.nbytes == sum(part.numel() * part.element_size() for part in held) > 0


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return value if isinstance(value, tuple) else []


def test_gradients_are_finite_and_reach_every_weight(mixer, x):
    x = x.clone().requires_grad_()
    mixer.train()
    loss = mixer(x).square().sum()
    if getattr(mixer, "gate", None) is not None:
        loss = loss + mixer.write_loss()
    loss.backward()
    for name, weight in [("x", x), *mixer.named_parameters()]:
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.abs().max() > 0, name


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_changes_nothing(mixer, x, reentrant):
    """A layer is computed again in the backward pass: all is as if it had not been."""
    found = []
    for again in (False, True):
        layer, rows = deepcopy(mixer).train(), x.clone().requires_grad_()
        y = recompute.checkpoint(layer, rows, use_reentrant=reentrant) if again else layer(rows)
        y.square().sum().backward()
        slopes = {name: weight.grad for name, weight in layer.named_parameters()}
        found.append({**slopes, **dict(layer.named_buffers())})
    for name, plain in found[0].items():
        torch.testing.assert_close(found[1][name], plain, rtol=0, atol=0, equal_nan=True, msg=name)


def test_it_may_be_made_on_no_device(mixer, x, request):
    make = MIXERS[request.node.callspec.params["mixer"]]
    with torch.device("meta"):
        given, filled = make(), make()
    given.load_state_dict(deepcopy(mixer.state_dict()), assign=True)
    filled.to_empty(device="cpu").load_state_dict(mixer.state_dict())
    mixer.train()
    want = mixer(x)
    for other in (given.train(), filled.train()):
        assert torch.equal(other(x), want)


@torch.no_grad()
def test_saved_weights_come_back(mixer, x, tmp_path, request):
    checkpoint.save(mixer, tmp_path / "mixer.safetensors")
    other = MIXERS[request.node.callspec.params["mixer"]]().eval()
    assert not torch.equal(other(x), mixer(x))
    checkpoint.load(other, tmp_path / "mixer.safetensors")
    assert torch.equal(other(x), mixer(x))


@torch.no_grad()
def test_evaluation_leaves_the_weights_and_buffers_alone(mixer, x):
    before = {name: tensor.clone() for name, tensor in mixer.state_dict().items()}
    mixer(x)
    fed(mixer, x, [5])
    assert all(torch.equal(before[name], now) for name, now in mixer.state_dict().items())


@torch.no_grad()
def test_a_mixer_is_of_the_type_that_torch_makes(request, x):
    name = request.node.callspec.params["mixer"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wide = MIXERS[name]()
    finally:
        torch.set_default_dtype(before)
    assert {weight.dtype for weight in wide.parameters()} == {torch.float64}
    assert wide(x.double()).dtype == torch.float64


def test_half_precision_products_stay_close(mixer, x):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = mixer(x)
    with torch.no_grad():
        torch.testing.assert_close(low.float(), mixer(x), rtol=0, atol=0.04)


class Nothing(Mixer):
    """Adds nothing."""

    def mix(self, x, state=None, mask=None):
        return torch.zeros_like(x)


def test_the_network_of_a_block_is_gated_by_a_silu(seed):
    torch.manual_seed(seed)
    block, x = HybridBlock(Nothing(), E, expand=2).double(), torch.randn(B, L, E).double()
    normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    gate, up = (normed @ half.T for half in block.wide.weight.chunk(2))
    wanted = x + (gate / (1 + (-gate).exp()) * up) @ block.narrow.weight.T
    torch.testing.assert_close(block(x), wanted)


@pytest.mark.gpu
@torch.no_grad()
def test_a_gpu_says_the_same(mixer, x):
    here = mixer(x)
    mixer.cuda()
    state = mixer.start(B)
    steps = torch.stack([mixer.step(x[:, t].cuda(), state) for t in range(L)], 1)
    torch.testing.assert_close(mixer(x.cuda()).cpu(), here, rtol=0, atol=1e-4)
    torch.testing.assert_close(steps.cpu(), here, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kept", [False, True])
def test_a_batch_of_the_next_epoch_is_a_new_batch(seed, kept):
    """Weights that learn but do not move, as at a rate of 0, or for a pass without gradients."""
    torch.manual_seed(seed)
    layer, batches = FullAttention(E, HEADS), torch.randn(2, B, L, E)
    with torch.set_grad_enabled(kept):
        for batch in (*batches, *batches):
            layer(batch)
    assert layer.project.batches == 4


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_it_compiles_without_a_break(mixer, x, padded):
    torch._dynamo.reset()
    mask = torch.arange(L) >= torch.tensor([[0], [5]]) if padded else None
    compiled = torch.compile(mixer.train(), fullgraph=True, backend="eager")
    compiled(x, mask=mask).sum().backward()
    mixer.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, mask=mask), mixer(x, mask=mask), rtol=0, atol=1e-5)
        part, few = x[:, :9], None if mask is None else mask[:, -9:]  # compiled for any length
        torch.testing.assert_close(compiled(part, mask=few), mixer(part, mask=few))
