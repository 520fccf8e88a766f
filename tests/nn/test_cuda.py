"""On a GPU: the same slots as on the CPU, the same reads, and nobody waits."""

from itertools import product

import numpy as np
import pytest
import torch

from distinctkv.nn.functional import SlotState, allocate, novelty, read, step
from tests.nn.cases import draw

pytestmark = pytest.mark.gpu
READS = list(product(("mass", "distinct"), ("mean", "first", "last")))


def test_torch_on_the_gpu_gives_the_slots_of_the_cpu(rng):
    for case in [draw(rng) for _ in range(200)]:
        words = {"chunk": case.chunk, "impl": "torch"}
        moved = [None if x is None else x.cuda() for x in (case.mask, case.sequences)]
        there = allocate(case.keys.cuda(), case.tau, mask=moved[0], sequences=moved[1], **words)
        for a, b in zip(case.allocate()[:6], there[:6], strict=True):
            assert np.array_equal(a.numpy(), b.cpu().numpy()), case


@pytest.mark.parametrize(("mode", "value"), READS)
def test_reads_and_steps_on_the_gpu_are_those_of_the_cpu(batch, mode, value):
    data = batch()
    words = {"mode": mode, "value": value}
    here = [data.q, data.k, data.v, data.log_gate]
    q, k, v, gate = (x.cuda() for x in here)
    want = read(*here[:3], allocate(data.k, 0.1), log_gate=data.log_gate, **words)
    got = read(q, k, v, allocate(k, 0.1), log_gate=gate, **words)
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-12)
    state, outs = SlotState.empty(k, v, 23), []
    for part in zip(*(x.split(1, 1) for x in (q, k, v, gate)), strict=True):
        out, state = step(*part[:3], state, 0.1, log_gate=part[3], **words)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1).cpu(), want, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_waits_for_the_device(batch):
    data = batch(B=2, L=100, D=16, dtype=torch.float32)
    q, k, v, gate, mask = (x.cuda() for x in (data.q, data.k, data.v, data.log_gate, data.mask))
    tau, state = torch.tensor(0.1, device="cuda"), SlotState.empty(k, v, 100)

    def run():
        found = allocate(k, tau, mask=mask)
        for mode, value in READS:
            read(q, k, v, found, mode=mode, value=value, log_gate=gate - novelty(k, found))
        step(q[:, :1], k[:, :1], v[:, :1], state, tau)
        step(q[:, 1:9], k[:, 1:9], v[:, 1:9], state, tau)

    run()  # kernels are built
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
