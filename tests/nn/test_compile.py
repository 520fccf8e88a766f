"""A compiled model holds allocation, reads and steps without a graph break."""

import pytest
import torch

from distinctkv.nn.functional import SlotState, allocate, read, step


def layer(q, k, v, tau):
    found = allocate(k, tau)
    mass = read(q, k, v, found)
    distinct = read(q, k, v, found, mode="distinct")
    return mass + distinct, found.n_slots


@pytest.mark.slow
def test_allocate_and_read_compile_whole_with_their_gradients(batch):
    data = batch(dtype=torch.float32)
    inputs = [x.requires_grad_() for x in (data.q, data.k, data.v)]
    fast = torch.compile(layer, fullgraph=True, backend="aot_eager")
    tau = torch.tensor(0.1)
    answers = []
    for run in (layer, fast):
        out, n_slots = run(*inputs, tau)
        answers.append([out, n_slots, *torch.autograd.grad(out.square().sum(), inputs)])
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b)


def test_a_step_compiles_whole(batch):
    data = batch(dtype=torch.float32)
    fast = torch.compile(step, fullgraph=True, backend="aot_eager")
    states = [SlotState.empty(data.k, data.v, 23) for _ in range(2)]
    tau = torch.tensor(0.1)
    for t in range(4):
        part = [x[:, t : t + 1] for x in (data.q, data.k, data.v)]
        outs = [run(*part, state, tau)[0] for run, state in zip((step, fast), states, strict=True)]
        torch.testing.assert_close(*outs)
    assert torch.equal(states[0].n_slots, states[1].n_slots)


def test_the_operator_keeps_the_promises_of_an_operator(batch):
    keys = batch(B=1).k[0].transpose(0, 1).contiguous()
    rest = torch.full((2,), 0.1, dtype=torch.float64), torch.ones(2, 23, dtype=torch.bool)
    slots, none = keys.new_empty(2, 0, 4), torch.zeros(2, dtype=torch.int64)
    operator = torch.ops.distinctkv.allocate.default
    torch.library.opcheck(operator, (keys, *rest, slots, none, 23, 8, "torch"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's own
def test_inductor_compiles_it_too(batch):
    data = batch(dtype=torch.float32)
    fast = torch.compile(layer, fullgraph=True)
    inputs = data.q, data.k, data.v
    tau = torch.tensor(0.1)
    for a, b in zip(fast(*inputs, tau), layer(*inputs, tau), strict=True):
        torch.testing.assert_close(a, b)
