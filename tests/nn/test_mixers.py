"""Conformance: what every mixer promises. To join, add a line to MIXERS."""

from copy import deepcopy

import pytest
import torch
from torch.utils import checkpoint as recompute

from distinctkv.nn import checkpoint
from distinctkv.nn.attention import FullAttention, Heads, Projection, SlidingWindowAttention
from distinctkv.nn.baselines import KVMAttention, OVQAttention
from distinctkv.nn.delta_net import GatedDeltaNet
from distinctkv.nn.distinct import DistinctAttention, Reading
from distinctkv.nn.gates import KeyNoveltyGate, MetricGate, NoveltyGate, WriteGate
from distinctkv.nn.hybrid import HybridBlock
from distinctkv.nn.mixer import Mixer
from distinctkv.nn.ssm import DiagonalSSM, Mamba2
from distinctkv.policy import Concentration

pytestmark = pytest.mark.usefixtures("no_grad")
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
    "kvm": lambda: KVMAttention(E, HEADS, chunk=4),
    "ovq": lambda: OVQAttention(E, HEADS, chunk=4),
}


@pytest.fixture(params=MIXERS)
def mixer(request):
    mixer = MIXERS[request.param]()
    mixer(torch.randn(B, L, E))  # moves the mean key off zero, where there is one
    return mixer.eval()


@pytest.fixture
def x():
    """A stream with repeats, so that slots are shared."""
    return torch.randn(6, E)[torch.randint(6, (B, L))]


def fed(mixer, x, cuts):
    """Outputs for a stream given in parts, and the state in the end."""
    state, parts, start = mixer.start(len(x)), [], 0
    for stop in [*cuts, x.shape[1]]:
        parts.append(mixer(x[:, start:stop], state))
        start = stop
    return torch.cat(parts, 1), state


def held(state):
    """The tensors of a state."""
    return [part for value in vars(state).values() for part in _tensors(value)]


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return value if isinstance(value, tuple) else []


def test_token_by_token_equals_the_whole(mixer, x):
    state = mixer.start(B)
    steps = torch.stack([mixer.step(x[:, t], state) for t in range(L)], 1)
    torch.testing.assert_close(steps, mixer(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("cuts", [[], [1], [9, 10, 17], [20]], ids=str)
def test_a_stream_may_be_cut_anywhere(mixer, x, cuts):
    parts, _ = fed(mixer, x, cuts)
    torch.testing.assert_close(parts, mixer(x), rtol=0, atol=1e-5)


def test_a_token_changes_no_output_before_it(mixer, x):
    other = x.clone()
    other[:, 14:] = -other[:, 14:].flip(1)
    before, after = mixer(x), mixer(other)
    torch.testing.assert_close(before[:, :14], after[:, :14], rtol=0, atol=1e-6)
    assert (before[:, 14:] - after[:, 14:]).abs().max() > 1e-4


def test_a_stream_does_not_see_its_neighbours(mixer, x):
    torch.testing.assert_close(mixer(x)[1:], mixer(x[1:]), rtol=0, atol=1e-6)


def test_picked_streams_go_on_as_they_would_have(mixer, x):
    state, rows = mixer.start(B), torch.tensor([1, 0, 1])
    mixer(x[:, :10], state)
    both = mixer(x[rows, 10:], state.index_select(rows))
    torch.testing.assert_close(both, mixer(x)[rows, 10:], rtol=0, atol=1e-5)


def test_a_state_says_how_many_bytes_it_holds(mixer, x):
    state = mixer.start(B)
    for part in (x, x[:, :1], x[:, :7]):
        mixer(part, state)
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in held(state)}
        assert sum(storage.nbytes() for storage in storages.values()) <= state.nbytes
        assert state.nbytes == sum(t.numel() * t.element_size() for t in held(state)) > 0


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_of_16_bits_runs_steps_and_keeps_its_state_in_32(mixer, x, kind, request):
    exact = mixer(x)
    mixer.to(kind)
    low, state = x.to(kind), mixer.start(B)
    parts = [mixer(low[:, :8], state)]
    parts += [mixer.step(low[:, t], state)[:, None] for t in range(8, L)]
    whole = mixer(low)
    assert whole.dtype == kind
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=0.008)
    torch.testing.assert_close(whole.float(), exact, rtol=0, atol=0.06)
    few = {t.dtype for t in held(state) if t.is_floating_point() and t.dtype.itemsize < 4}
    assert not few or "bf16" in request.node.callspec.id or few == {kind}


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_token_that_is_not_finite_is_an_error_and_changes_nothing(mixer, x, bad):
    state = mixer.start(B)
    mixer(x, state)
    before, y = [part.clone() for part in held(state)], x.clone()
    y[1, 4] = bad
    with pytest.raises(ValueError, match="1 of 46 tokens"):
        mixer(y, state)
    assert all(torch.equal(a, b) for a, b in zip(before, held(state), strict=True))


@pytest.mark.parametrize("shape", [(2, 0, E), (0, 4, E)], ids=["no tokens", "no streams"])
def test_nothing_in_is_nothing_out(mixer, shape):
    state = mixer.start(shape[0])
    before = [part.clone() for part in held(state)]
    assert mixer(torch.zeros(shape)).shape == mixer(torch.zeros(shape), state).shape == shape
    assert all(torch.equal(a, b) for a, b in zip(before, held(state), strict=True))


@torch.enable_grad()
def test_zero_tokens_have_small_gradients(mixer):
    mixer.train()
    zero = torch.zeros(1, 5, E, requires_grad=True)
    mixer(zero).sum().backward()
    assert zero.grad.abs().max() < 1e3


@torch.enable_grad()
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
@torch.enable_grad()
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


def test_saved_weights_come_back(mixer, x, tmp_path, request):
    checkpoint.save(mixer, tmp_path / "mixer.safetensors")
    other = MIXERS[request.node.callspec.params["mixer"]]().eval()
    assert not torch.equal(other(x), mixer(x))
    checkpoint.load(other, tmp_path / "mixer.safetensors")
    assert torch.equal(other(x), mixer(x))


def test_evaluation_leaves_the_weights_and_buffers_alone(mixer, x):
    before = {name: tensor.clone() for name, tensor in mixer.state_dict().items()}
    mixer(x)
    fed(mixer, x, [5])
    assert all(torch.equal(before[name], now) for name, now in mixer.state_dict().items())


def test_a_mixer_is_of_the_type_that_torch_makes(mixer, x, request):
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


@pytest.mark.gpu
def test_a_gpu_says_the_same(mixer, x):
    here = mixer(x)
    mixer.cuda()
    state = mixer.start(B)
    steps = torch.stack([mixer.step(x[:, t].cuda(), state) for t in range(L)], 1)
    torch.testing.assert_close(mixer(x.cuda()).cpu(), here, rtol=0, atol=1e-4)
    torch.testing.assert_close(steps.cpu(), here, rtol=0, atol=1e-4)


@pytest.fixture
def four():
    """Four streams, which are padded on the left, on the right, here and there, and throughout."""
    return torch.randn(6, E)[torch.randint(6, (4, L))]


@pytest.fixture
def mask():
    place = torch.arange(L)
    return torch.stack([place >= 6, place < 15, torch.rand(L) > 0.4, place < 0])


with_padding = pytest.mark.parametrize(
    "mixer", [name for name in MIXERS if name not in ("kvm", "ovq")], indirect=True
)


@with_padding
@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
@torch.enable_grad()
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


@with_padding
def test_a_padded_stream_is_the_stream_alone(mixer, four, mask):
    padded = mixer(torch.where(mask[..., None], four, torch.nan), mask=mask)
    for stream, kept, y in zip(four, mask, padded, strict=True):
        alone = mixer(stream[None, kept])[0]
        torch.testing.assert_close(y[kept], alone, rtol=0, atol=2e-6)
    assert (padded[~mask] == 0).all()


@with_padding
def test_a_padded_stream_may_be_cut_anywhere(mixer, four, mask):
    state, parts = mixer.start(4), []
    for a, b in [(0, 5), (5, 6), (6, 7), (7, 20), (20, L)]:
        parts.append(mixer(four[:, a:b], state, mask[:, a:b]))
    torch.testing.assert_close(torch.cat(parts, 1), mixer(four, mask=mask), rtol=0, atol=1e-5)
    rest = mixer(four[:, :3], state)  # and it goes on without a mask
    for stream, kept, y in zip(four, mask, rest, strict=True):
        whole = mixer(torch.cat([stream[kept], stream[:3]])[None])[0, -3:]
        torch.testing.assert_close(y, whole, rtol=0, atol=1e-5)


@with_padding
@torch.enable_grad()
def test_padding_takes_and_gives_no_gradient(mixer, four, mask):
    mixer.train()
    x = torch.where(mask[..., None], four, torch.nan).requires_grad_()
    loss = mixer(x, mask=mask).square().sum()
    if getattr(mixer, "gate", None) is not None:
        loss = loss + mixer.write_loss(torch.ones(4, L, dtype=torch.bool))
    loss.backward()
    assert all(weight.grad.isfinite().all() for weight in mixer.parameters())
    assert (x.grad[~mask] == 0).all()
    assert x.grad[mask].isfinite().all()


def test_the_mean_key_is_that_of_the_real_tokens(four, mask):
    alone, padded = Projection(E, Heads(2, 8, taps=1)), Projection(E, Heads(2, 8, taps=1))
    padded.load_state_dict(alone.state_dict())
    alone(four[mask][None])
    padded(four, mask=mask)
    torch.testing.assert_close(padded.mean, alone.mean)


class Nothing(Mixer):
    """Adds nothing."""

    def mix(self, x, state=None, mask=None):
        return torch.zeros_like(x)


def test_the_network_of_a_block_is_gated_by_a_silu():
    block, x = HybridBlock(Nothing(), E, expand=2).double(), torch.randn(B, L, E).double()
    normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    gate, up = (normed @ half.T for half in block.wide.weight.chunk(2))
    wanted = x + (gate / (1 + (-gate).exp()) * up) @ block.narrow.weight.T
    torch.testing.assert_close(block(x), wanted)


@pytest.mark.parametrize("kept", [False, True])
@torch.enable_grad()
def test_a_batch_of_the_next_epoch_is_a_new_batch(kept):
    """Weights that learn but do not move, as at a rate of 0, or for a pass without gradients."""
    layer, batches = FullAttention(E, HEADS), torch.randn(2, B, L, E)
    with torch.set_grad_enabled(kept):
        for batch in (*batches, *batches):
            layer(batch)
    assert layer.project.batches == 4
