"""On a GPU: the same slots as on the CPU, the same reads, and nobody waits."""

from itertools import product

import numpy as np
import pytest
import torch

from distinctkv.nn import (
    DistinctAttention,
    Heads,
    HybridLM,
    Mamba2,
    Reading,
    WriteGate,
    slot_attention,
)
from distinctkv.nn.functional import SlotState, allocate, read, step
from distinctkv.nn.train import train
from tests.nn.cases import draw

pytestmark = pytest.mark.gpu
READS = list(product(("mass", "distinct"), ("mean", "first", "last")))


def test_torch_on_the_gpu_gives_the_slots_of_the_cpu(rng):
    for case in [draw(rng) for _ in range(200)]:
        words = {"chunk": case.chunk, "impl": "torch"}
        mask = None if case.mask is None else case.mask.cuda()
        there = allocate(case.keys.cuda(), case.tau, mask=mask, **words)
        for a, b in zip(case.allocate()[:6], there[:6], strict=True):
            assert np.array_equal(a.numpy(), b.cpu().numpy()), case


@pytest.mark.parametrize(("mode", "value"), READS)
def test_reads_and_steps_on_the_gpu_are_those_of_the_cpu(batch, mode, value):
    data = batch()
    words = {"mode": mode, "value": value}
    here = [data.q, data.k, data.v]
    q, k, v = (x.cuda() for x in here)
    want = read(*here, allocate(data.k, 0.1), **words)
    got = read(q, k, v, allocate(k, 0.1), **words)
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-12)
    state, outs = SlotState.empty(k, v, 23), []
    for part in zip(*(x.split(1, 1) for x in (q, k, v)), strict=True):
        out, state = step(*part, state, 0.1, **words)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1).cpu(), want, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_waits_for_the_device(batch):
    data = batch(B=2, L=100, D=16, dtype=torch.float32)
    q, k, v, mask = (x.cuda() for x in (data.q, data.k, data.v, data.mask))
    tau, state = torch.tensor(0.1, device="cuda"), SlotState.empty(k, v, 100)

    def run():
        found = allocate(k, tau, mask=mask)
        for mode, value in READS:
            read(q, k, v, found, mode=mode, value=value)
        step(q[:, :1], k[:, :1], v[:, :1], state, tau)
        step(q[:, 1:9], k[:, 1:9], v[:, 1:9], state, tau)

    run()  # kernels are built
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def reached(monkeypatch):
    """Which read kernels were run, by name."""
    from distinctkv.kernels import slot_prefill

    names = []
    for name in ("read_mass", "read_first"):
        kernel = getattr(slot_prefill, name)
        monkeypatch.setattr(
            slot_prefill,
            name,
            lambda *a, kernel=kernel, name=name: names.append(name) or kernel(*a),
        )
    return names


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("mode", "value"), [("mass", "mean"), ("distinct", "first")])
def test_a_long_read_reaches_the_kernels_and_is_what_torch_reads(
    batch, reached, monkeypatch, mode, value, kind, padded
):
    data = batch(
        B=2, L=slot_attention.LONG + 100, H=2, D=64, C=64, group=2, things=300, dtype=torch.float32
    )
    q, k, v = (x.to("cuda", kind) for x in (data.q, data.k, data.v))
    found = allocate(k, 0.3, mask=data.mask.cuda() if padded else None)
    words = {"mode": mode, "value": value, "scale": 2.0}
    got = read(q, k, v, found, **words)
    assert len(reached) == 1
    monkeypatch.setattr(slot_attention, "LONG", 1 << 30)
    want = read(q.float(), k.float(), v.float(), found, **words)
    assert len(reached) == 1
    assert got.dtype == kind
    assert float((got.float() - want).norm() / want.norm()) < 2.0**-7


def test_autocast_takes_the_mass_to_a_kernel(batch, reached):
    data = batch(B=1, L=slot_attention.LONG, D=64, C=64, things=300, dtype=torch.float32)
    q, k, v = (x.cuda() for x in (data.q, data.k, data.v))
    found = allocate(k, 0.3)
    want = read(q, k, v, found, scale=2.0)
    with torch.autocast("cuda", torch.bfloat16):
        got = read(q, k, v, found, scale=2.0)
    assert reached == ["read_mass"]
    assert float((got - want).norm() / want.norm()) < 2.0**-6


@torch.no_grad()
def test_a_layer_reads_a_long_text_as_it_reads_it_in_pieces(seed):
    torch.manual_seed(seed)
    layer = DistinctAttention(64).cuda().eval()
    x = torch.randn(40, 64)[torch.randint(0, 40, (1, slot_attention.LONG))].cuda()
    state = layer.start(1)
    pieces = torch.cat([layer(part, state) for part in x.split(1000, 1)], 1)
    torch.testing.assert_close(layer(x), pieces, rtol=0, atol=1e-4)


@pytest.mark.parametrize("gated", [False, True])
def test_captured_training_is_training(seed, gated):
    losses = []
    for captured in (False, True):
        torch.manual_seed(seed)
        heads, gate = Heads(2, 16), WriteGate(32) if gated else None
        layer = DistinctAttention(32, heads, reading=Reading(window=int(gated)), gate=gate)
        model = HybridLM(16, 32, [Mamba2(32, head=32), layer]).cuda()
        random = torch.Generator("cuda").manual_seed(seed)
        drawn = (
            (tokens, tokens.roll(-1, 1))
            for length in [32, 64] * 8
            for tokens in [torch.randint(0, 16, (4, length), device="cuda", generator=random)]
        )
        steps = train(model, drawn, steps=16, captured=captured)
        losses.append([step.loss for step in steps])
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert losses[1][-1] != losses[1][0]
