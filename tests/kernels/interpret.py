"""Every kernel, run by Triton's interpreter on tiny tensors; prints what was wrong as JSON.

A process of its own: Triton decides when it is imported whether to interpret.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
import warnings
from itertools import product

import numpy as np
import torch

from distinctkv import kernels
from distinctkv.kernels import allocate as kernel
from distinctkv.kernels import slot_decode, slot_prefill
from distinctkv.nn import allocation, leaders, mixer, slot_attention
from distinctkv.nn.functional import SlotState, allocate, read, step, unit, write
from distinctkv.nn.leaders import squared
from tests.nn.cases import KINDS, rows

TAUS = (-1.0, 0.0, 0.15, 0.3, 0.5, 1.0, 2.0)


def poison():
    """What nobody has written to yet holds the worst there is."""
    empty = torch.Tensor.new_empty

    def new_empty(self, *shape, **words):
        made = empty(self, *shape, **words)
        return made.fill_(float("nan") if made.is_floating_point() else -(2**7) + 1)

    torch.Tensor.new_empty = new_empty


def off(a, b):
    """How far two tensors are apart; nan is as far as can be."""
    return float((a - b).abs().nan_to_num(nan=torch.inf).max())


def keys(kind, rng, N, L, tau):
    drawn = unit(torch.tensor(rows(kind, (N, L, 1, 14 if kind == "chain" else 16), tau, rng)))
    drawn = drawn.reshape(N, L, 16).float()
    return drawn.bfloat16().float() if rng.random() < 0.3 else drawn


def allocated(kind, rng):
    """Numbers that differ from the engine in torch: leads, nearest slots of others, overflow."""
    N, L, tau = 2, int(rng.integers(40, 80)), torch.tensor(rng.choice(TAUS, 2))
    drawn = keys(kind, rng, N, L, 0.3)
    valid = torch.tensor(rng.random((N, L)) < rng.choice([0.7, 1.0]))
    valid[1, :2] = True
    tau[1] = squared(drawn[1, 0], drawn[1, 1]) / 2  # the second token is as far as may be
    drawn = torch.where(valid[..., None], drawn, float("nan"))
    slots, n_slots = drawn[:, :0], torch.zeros(N, dtype=torch.int64)
    if rng.random() < 0.5:
        slots, n_slots = keys(kind, rng, N, 8, 0.3), torch.tensor([rng.integers(0, 8), 0])
        slots[torch.arange(8) >= n_slots[:, None]] = float("nan")
    capacity = int(rng.choice([L + 8, 10]))
    config = kernel.LaunchConfig(64, block=16, tile=16, settle=32)
    room = kernel.Room(slots, n_slots, capacity)
    run = kernel.Run(drawn, tau, valid, room, config)
    lead, nearest, lost = leaders.allocate(drawn, tau, valid, slots, n_slots, capacity, 32)
    joins = valid & ~lead
    near = [x.long().masked_fill(~joins, -1) for x in (run.nearest(), nearest)]
    pairs = ((run.leads(), lead), near, (run.lost.long(), lost))
    return [int((a != b).sum()) for a, b in pairs]


def fields(rng):
    """How many numbers of `allocate` differ from torch's: without and with a mask and a state."""
    _, k, v, mask = batch(rng, 2, 40, 2, 1)
    k[~mask] = float("nan")
    state, wrong = SlotState.empty(k, v, 60), []
    before = allocate(k[:, :10], 0.3, mask=mask[:, :10], state=state)
    write(state, k[:, :10], v[:, :10], before)
    narrow = k.transpose(1, 2).contiguous().transpose(1, 2).bfloat16()
    for words in ({}, {"mask": mask}, {"mask": mask, "state": state}):
        plain = (k if "state" in words else narrow) if words else k.nan_to_num(nan=0.25)
        want = allocate(plain, 0.3, impl="torch", **words)
        got = allocate(plain, 0.3, impl="triton", **words)
        pairs = zip((*got[:6], *got.streams()), (*want[:6], *want.streams()), strict=True)
        wrong.append([int((a != b).sum()) for a, b in pairs])
    return wrong


def batch(rng, B, L, H, G):
    things = torch.tensor(rng.standard_normal((9, 16)))
    which = torch.tensor(rng.integers(0, 9, (B, L, H)))
    noise = 0.2 * torch.tensor(rng.standard_normal((B, L, H, 16)))
    k = unit(things[which] + noise).float()
    q, v = (torch.tensor(rng.standard_normal((B, L, n, 16))).float() for n in (H * G, H))
    return q, k, v, torch.tensor(rng.random((B, L)) < 0.8)


def reads(rng):
    """How far the two reads are from those in torch, with padding and grouped heads."""
    slot_prefill.BLOCK, slot_prefill.TILE, slot_prefill.CHUNK = 16, 16, 32
    q, k, v, mask = batch(rng, 2, 50, 1, 2)
    found = allocate(k, 0.3, mask=mask)
    told = found.streams()
    first = read(q, k, v, found, scale=0.25, mode="distinct", value="first")
    return [
        off(slot_prefill.read_mass(q, k, v, *told, 0.25), read(q, k, v, found, scale=0.25)),
        off(slot_prefill.read_first(q, k, v, *told, 0.25), first),
    ]


def strange(rng):
    """How far kernels that meet refused tokens are from those that find padding there."""
    slot_prefill.BLOCK, slot_prefill.TILE, slot_prefill.CHUNK = 16, 16, 32
    q, k, v, mask = batch(rng, 1, 50, 1, 2)
    told = allocate(k, 0.3, mask=mask).streams()
    k[~mask], v[~mask], q[~mask] = (torch.nan,) * 3
    slot, visible = as_on_a_device(k, 0.3).streams()
    pairs = [
        (kernel(q, k, v, slot, visible, 0.25), kernel(q, k, v, *told, 0.25))
        for kernel in (slot_prefill.read_mass, slot_prefill.read_first)
    ]
    return [int((slot != told[0]).sum()), *(off(*pair) for pair in pairs)]


def as_on_a_device(k, tau, mask=None):
    """What kernels allocate where nothing is refused at once."""
    modules, looks = (allocation, mixer), allocation.reads_without_sync
    for module in modules:
        module.reads_without_sync = lambda rows: False
    found = allocate(k, tau, mask=mask, impl="triton")
    for module in modules:
        module.reads_without_sync = looks
    return found


def dispatched(rng):
    """How far `read` is from itself when it goes to the kernels, which it must, in 16 bits."""
    slot_prefill.BLOCK, slot_prefill.TILE, slot_prefill.CHUNK = 16, 16, 32
    q, k, v, mask = (x.half() if x.is_floating_point() else x for x in batch(rng, 1, 50, 1, 2))
    asked, gaps = [], []
    for words in ({}, {"mode": "distinct", "value": "first"}):
        found = allocate(k, 0.3, mask=mask, impl="torch")
        want = read(q, k, v, found, scale=0.25, **words)
        slot_attention.LONG = 50
        kernels.available = lambda *tensors: asked.append(tensors) or True
        got = read(q, k, v, found, scale=0.25, **words)
        read(q, k, v, found, scale=0.0, **words)
        q.requires_grad_()
        read(q, k, v, found, **words)
        q = q.detach()
        slot_attention.LONG = 51
        read(q, k, v, found, **words)
        gaps.append(off(got, want))
    return [len(asked), *gaps]


def steps(mode, value, rng):
    """How far a decoded stream, and the slots it leaves, are from those in torch."""
    slot_decode.TILE = 16
    q, k, v, mask = batch(rng, 1, 10, 1, 2)
    states = [SlotState.empty(k, v, 9) for _ in range(2)]
    for x in states[1][:3]:
        x.fill_(float("nan") if x.is_floating_point() else -7)
    worst, tau = 0.0, torch.full((1, 1), 0.3, dtype=torch.float64)
    words = {"mode": mode, "value": value, "scale": 0.4}
    for t in range(10):
        now = [x[:, t : t + 1] for x in (q, k, v)]
        words["mask"] = mask[:, t : t + 1]
        want = step(*now, states[0], 0.3, **words)[0]
        worst = max(worst, off(slot_decode.step(*now, states[1], tau, **words), want))
    used = states[0].used
    for a, b in zip(states[0][:3], states[1][:3], strict=True):
        worst = max(worst, off(a[used], b[used]))
    counted = [int((a != b).sum()) for a, b in zip(states[0][3:], states[1][3:], strict=True)]
    return [worst, *counted]


def left_out(rng):
    """Refused keys of two streams: one of nan, padding, one too short; all where tau is nan."""
    _, k, _, _ = batch(rng, 1, 8, 2, 1)
    mask = torch.ones(1, 8, dtype=torch.bool)
    k[0, 1], k[0, 2], k[0, 3], mask[0, 2] = float("nan"), float("nan"), 0.5 * k[0, 3], False
    found = as_on_a_device(k, torch.tensor([0.3, torch.nan]), mask)
    opened = found.lead[0, 1:4].sum(0).tolist()
    return [*found.refused[0].tolist(), *opened, int(found.n_slots[0, 1])]


def refused(rng):
    """What a state has counted after a token, then keys of nan and zeros, and values."""
    q, k, v, _ = batch(rng, 1, 6, 1, 2)
    k[0, 1], k[0, 2], v[0, 3, 0, 2], v[0, 4, 0, 5] = float("nan"), 0.0, float("nan"), -torch.inf
    state, tau = SlotState.empty(k, v, 4), torch.full((1, 1), 0.3, dtype=torch.float64)
    for t in range(5):
        out = slot_decode.step(*[x[:, t : t + 1] for x in (q, k, v)], state, tau)
    held = float(state.values.abs().max() + state.counts.max())
    counted = [int(state.refused), int(state.seen), int(state.n_slots), float(out.abs().max())]
    return [*counted, held < torch.inf]


def main():
    rng = np.random.default_rng(int(sys.argv[1]))
    # The interpreter multiplies what no one will read, and says so.
    warnings.filterwarnings("ignore", "invalid value|overflow", RuntimeWarning)
    poison()
    wrong = {f"allocation {kind}": allocated(kind, rng) for kind in KINDS}
    wrong["fields"] = fields(rng)
    wrong["reads"] = reads(rng)
    for mode, value in product(("mass", "distinct"), ("mean", "first", "last")):
        wrong[f"steps {mode} {value}"] = steps(mode, value, rng)
    wrong["refused"] = refused(rng)
    wrong["left out"] = left_out(rng)
    wrong["strange"] = strange(rng)
    wrong["dispatched"] = dispatched(rng)
    print(json.dumps(wrong))


if __name__ == "__main__":
    main()
