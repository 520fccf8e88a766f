"""The kernels that route and turn, run by Triton's interpreter; prints what differs as JSON.

A process of its own: Triton decides when it is imported whether to interpret.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import torch

from distinctkv.hf import merge
from distinctkv.hf import slots as slots_module
from distinctkv.hf.metric import Rotary, Scale
from distinctkv.hf.slots import FLAT, SlotBuffer, Slots, Source, add
from distinctkv.kernels import features, reductions, rotary
from tests.hf.rotary_reference import turned

TIES = [(17, 10, 0), (20, 15, 0), (21, 15, 10**5), (21, 15, 0, 3)]


def case(generator, F, shift, wide):
    """Differences in owners, openers and lengths between the kernels and torch."""

    def random(*shape):
        return torch.rand(*shape, generator=generator)

    N, L, S = 2, int(20 + 50 * random(())), int(6 * random(()))
    tokens = 6 * random(N, L, F) + shift
    tokens[:, L // 2 :] = tokens[:, : L - L // 2] + random(N, L - L // 2, F)
    slots, lengths = 6 * random(N, S, F) + shift, (random(N) * (S + 1)).long()
    if wide:  # one after the other, so that most slots are too far back to be looked at
        tokens[..., -1] = wide * (S + torch.arange(L)) + shift
        slots[..., -1] = wide * torch.arange(S) + shift
    joinable = (torch.arange(S) > 0) & (torch.arange(S) < lengths[:, None])
    present = random(N, L) < 0.8
    reach = F * 3 * random(N, L)
    reach[random(N, L) < 0.1] = -1.0
    known = (tokens, present, slots, joinable, lengths)
    want = merge.allocate(*known, reach)
    table = features.Table.of(*known)
    first, again = table.route(reach, last=False), table.route(reach, last=True)
    return [int((a != b).sum()) for got in (first, again) for a, b in zip(got, want, strict=True)]


def tie(generator, F, horizon, far, size=30):
    """The same where words come again after just a horizon, and one period later."""
    words = size * torch.randn(2, 5, F - 1, generator=generator)
    at = torch.arange(60.0)
    tokens = torch.cat((words.repeat(1, 12, 1), ((at + far) / horizon).expand(2, -1)[..., None]), 2)
    present = torch.ones(2, 60, dtype=torch.bool)
    known = (tokens, present, tokens[:, :0], present[:, :0], torch.zeros(2, dtype=torch.int64))
    first = at % (horizon + 5) < 5
    got = features.Table.of(*known).route(torch.ones(2, 60))
    want = merge.allocate(*known, 1.0)
    owners = [int((a != b).sum()) for a, b in zip(got, want, strict=True)]
    return [*owners, *(int((opened != first).sum()) for opened in (got[1], want.opened)), 0]


def turn(generator, D, half):
    """How far the kernel that turns back is from the plain sum, for tokens and for slots."""
    keys = torch.randn(2, 3, 2, 50, D, generator=generator)
    angles = 100 * torch.rand(3, 1, 50, half, generator=generator)
    wide = angles.expand(2, 3, 2, 50, half)
    real = torch.rand(3, 1, 50, generator=generator) < 0.8
    keys = torch.where(real[..., None], keys, torch.nan)
    want = turned(keys, wide).nan_to_num(0.0)
    pairs = ((angles, real), (wide, real.expand(2, 3, 2, 50)))
    return [
        float((rotary.unturn(keys, at.cos(), at.sin(), there) - want).abs().max())
        for at, there in pairs
    ]


def gather(generator, L, D):
    """How far sums over rotated queries, and over values, are from those over what they were."""
    query = torch.randn(3, 2, L, 6, D, generator=generator).transpose(2, 3)
    values = torch.randn(3, 2, 2, L, 5, generator=generator)
    angles = 100 * torch.rand(2, L, D // 2, generator=generator)
    real = torch.rand(2, L, generator=generator) < 0.8
    query = torch.where(real[:, None, :, None], query, torch.nan)
    values = torch.where(real[:, None, :, None], values, torch.nan)
    wide = angles[:, None].expand(3, 2, 6, L, D // 2)
    plain = turned(query, wide).nan_to_num(0.0).double()
    each = (plain.mT @ plain).view(3, 2, 2, 3, D, D).mean(3)
    squares = values.nan_to_num(0.0).double().square().sum((-2, -1))
    got = reductions.sums([*query], [*values], angles.cos(), angles.sin(), real)
    return [float((a - b).norm() / b.norm()) for a, b in zip(got, (each, squares), strict=True)]


def slots_of(generator, lengths, D, C, spread):
    """Slots of so many of each head at growing positions, some of them like earlier ones."""
    n = int(lengths.sum())
    rows = torch.randn(n, D + C, generator=generator)
    rows[n // 2 :] = rows[: n - n // 2] + spread * torch.randn(
        n - n // 2, D + C, generator=generator
    )
    positions = torch.randint(0, 5000, (n,), generator=generator).sort().values.int()
    ones, none = torch.ones(n, dtype=torch.int32), torch.zeros(0)
    keys, values = 3 + rows[:, :D], 2 + rows[:, D:]
    return Slots(keys, values.contiguous(), ones, positions, none, none, lengths)


def feature(generator, D, C, horizon, ragged):
    """Differences between tokens routed by features of the kernels, and by those of torch."""
    rotary = Rotary(SimpleNamespace(inv_freq=1e4 ** -torch.linspace(0, 1, D // 2)))
    N, L = 2, 70
    held = slots_of(generator, torch.tensor([[4, 9]]), D, C, 0.1)
    lengths = torch.tensor([[L, 40]] if ragged else [[L, L]])
    tokens = slots_of(generator, lengths, D, C, 0.1)
    present = tokens.mask() & (torch.rand(N, L, generator=generator) < 0.8)
    joinable = held.mask() & (torch.arange(9) != 0)
    factor = torch.randn(N, D, D, generator=generator).tril()
    scale = Scale(factor, 1 + torch.rand(N, generator=generator))

    def at(rows):
        keys = rotary.unrotate(rows.padded(rows.keys), rows.padded(rows.positions))
        places = None if horizon is None else rows.padded(rows.positions) / horizon
        return scale.features(keys, rows.padded(rows.values), places)

    here = at(tokens).masked_fill(~present[..., None], 0.0)
    reach = torch.cdist(here, here).square().median() * torch.rand(N, L, generator=generator)
    reach[torch.rand(N, L, generator=generator) < 0.1] = -1.0
    found = []
    for slots, there, may, starts in (
        (None, here[:, :0], present[:, :0], torch.zeros(N, dtype=torch.int64)),
        (features.Rows(held, joinable), at(held), joinable, held.lengths.flatten()),
    ):
        want = merge.allocate(here, present, there, may, starts, reach)
        rows = features.Rows(tokens, present)
        if slots is not None:
            slots = features.Rows(SlotBuffer([slots.slots], 7).layers[0], slots.there)
        table, wrong = features.tabulate(rows, slots, scale, rotary, horizon)
        got = table.route(reach)
        found += [int((a != b).sum()) for a, b in zip(got, want, strict=True)]
        found += [int(wrong), int(0.1 < float(want.opened.sum()) / float(present.sum()) < 0.9) - 1]
    keys = tokens.keys.clone()
    keys[int(present[0].nonzero()[3])] = torch.nan
    odd = features.Rows(replace(tokens, keys=keys), present)
    return [*found, int(features.tabulate(odd, None, scale, rotary, horizon)[1]) - 1]


def poured(generator, extra):
    """How far slots poured by the kernel are from those of torch."""
    lengths, none = torch.tensor([[12, 20]]), torch.zeros(0)
    slots = slots_of(generator, lengths, 12, 6, 0.1)
    heavy = torch.rand(2, 32, generator=generator)
    heavy[0, 3] = torch.inf
    slots = replace(slots, **dict(zip(extra, heavy, strict=False)))
    to = torch.randint(-1, 5, (32,), generator=generator)
    opens = torch.tensor([bool(t >= 0 and t not in to[:i]) for i, t in enumerate(to)])
    made = []
    for pour, rows in ((add, 6), (lambda part, into: reductions.pour(*part, into), 5)):
        more = [torch.zeros(rows) if len(slots.tensors()[n]) else none for n in FLAT[4:]]
        held = (torch.zeros(5, 12), torch.zeros(rows, 6), torch.zeros(rows).int())
        made.append(Slots(*held, torch.zeros(5).int(), *more, torch.tensor([[2, 3]])))
        pour(Source(slots, to, opens), made[-1])
    pairs = zip(*(one.tensors().values() for one in made), strict=True)
    return [float((a[:5] - b).nan_to_num(0.0).abs().sum()) for a, b in pairs]


def absorbed(generator, extra, L=45):
    """How far slots that the kernel merged tokens into are from those of torch, in a buffer."""
    P = 4
    held = slots_of(generator, torch.tensor([[3, 1], [9, 5]]), 12, 6, 0.1)
    tokens = slots_of(generator, torch.full((2, 2), L), 12, 6, 0.1)
    some = [torch.rand(2, len(one), generator=generator) for one in (held, tokens)]
    held, tokens = (replace(one, **dict(zip(extra, more, strict=False)))
                    for one, more in zip((held, tokens), some, strict=True))  # fmt: skip
    now = held.lengths.flatten().tolist()
    owner, opened = torch.full((P, L), -1), torch.zeros(P, L, dtype=torch.bool)
    for p, i in torch.rand(P, L, generator=generator).lt(0.8).nonzero().tolist():
        opened[p, i] = float(torch.rand((), generator=generator)) < 0.3
        owner[p, i] = int(now[p] * torch.rand((), generator=generator))
        if opened[p, i]:
            owner[p, i], now[p] = now[p], now[p] + 1
    made = []
    for kernel in (False, True):
        buffer = SlotBuffer([held], L)
        (reductions if kernel else slots_module).absorb(tokens, owner, opened, buffer.layers[0])
        buffer.grow(torch.tensor(now))
        buffer.count(torch.tensor(now))
        made.append(buffer.layers[0])
    opens = opened.flatten()
    starts = torch.tensor(now).cumsum(0) - torch.tensor(now)
    to = torch.where(owner >= 0, starts[:, None] + owner, -1).flatten()
    old = starts[held.heads()] + held.indices()
    sources = [Source(tokens, to, opens), Source(held, old, None)]
    made.append(slots_module.pool(sources, torch.tensor(now).view(2, 2)))
    flat = [list(one.compact().tensors().values()) for one in made]
    return [float((a - b).abs().max()) for other in (0, 2)
            for a, b in zip(flat[1], flat[other], strict=True) if len(a)]  # fmt: skip


def main():
    generator = torch.Generator().manual_seed(int(sys.argv[1]))
    features.PART = 16
    cases = [(3, 0.0, 0), (16, 100.0, 0), (20, -5.0, 0), (17, 3.0, 1), (33, 0.0, 2), (41, 9.0, 0)]
    routed = [case(generator, *each) for each in cases]
    routed += [tie(generator, *each) for each in TIES]
    back = [turn(generator, *sizes) for sizes in ((8, 4), (20, 6), (12, 3))]
    made = [(16, 16, None, False), (24, 8, 300.0, True), (80, 20, 700.0, False)]
    featured = [feature(generator, *each) for each in made]
    pours = [poured(generator, FLAT[4 : 4 + n]) for n in (0, 1, 2)]
    pours += [absorbed(generator, FLAT[4 : 4 + n]) for n in (0, 1, 2)]
    print(
        json.dumps(
            [
                pours,
                featured,
                routed,
                back,
                [gather(generator, *sizes) for sizes in ((600, 8), (9, 24), (40, 80))],
            ]
        )
    )


if __name__ == "__main__":
    main()
