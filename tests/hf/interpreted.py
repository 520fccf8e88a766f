"""The kernels that route and turn, run by Triton's interpreter; prints what differs as JSON.

A process of its own: Triton decides when it is imported whether to interpret.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys

import torch

from distinctkv.hf import allocation, gathering, routing, turning
from tests.hf.turned import turned


def case(generator, F, shift):
    """Differences in owners, openers and lengths between the kernels and torch."""

    def random(*shape):
        return torch.rand(*shape, generator=generator)

    N, L, S = 2, int(20 + 50 * random(())), int(6 * random(()))
    tokens = 6 * random(N, L, F) + shift
    tokens[:, L // 2 :] = tokens[:, : L - L // 2] + random(N, L - L // 2, F)
    slots, lengths = 6 * random(N, S, F) + shift, (random(N) * (S + 1)).long()
    joinable = (torch.arange(S) > 0) & (torch.arange(S) < lengths[:, None])
    present = random(N, L) < 0.8
    reach = F * 3 * random(N, L)
    reach[random(N, L) < 0.1] = -1.0
    known = (tokens, present, slots, joinable, lengths)
    want = allocation.allocate(*known, reach)
    table = routing.Table(*known)
    first, again = table.route(reach, last=False), table.route(reach, last=True)
    return [int((a != b).sum()) for got in (first, again) for a, b in zip(got, want, strict=True)]


def tie(generator, F, horizon, far):
    """The same where words come again after just a horizon, and one period later."""
    words = 30 * torch.randn(2, 5, F - 1, generator=generator)
    at = torch.arange(60.0)
    tokens = torch.cat((words.repeat(1, 12, 1), ((at + far) / horizon).expand(2, -1)[..., None]), 2)
    present = torch.ones(2, 60, dtype=torch.bool)
    known = (tokens, present, tokens[:, :0], present[:, :0], torch.zeros(2, dtype=torch.int64))
    first = at % (horizon + 5) < 5
    got = routing.Table(*known).route(torch.ones(2, 60))
    want = allocation.allocate(*known, 1.0)
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
        float((turning.unturn(keys, at.cos(), at.sin(), there) - want).abs().max())
        for at, there in pairs
    ]


def gather(generator, L, D):
    """How far sums over rotated queries are from those over queries turned back."""
    query = torch.randn(2, L, 3, D, generator=generator).transpose(1, 2)
    angles = 100 * torch.rand(2, L, D // 2, generator=generator)
    real = torch.rand(2, L, generator=generator) < 0.8
    query = torch.where(real[:, None, :, None], query, torch.nan)
    plain = turned(query, angles[:, None].expand(2, 3, L, D // 2)).nan_to_num(0.0).double()
    want = plain.mT @ plain
    got = gathering.products(query, angles.cos(), angles.sin(), real)
    return float((got - want).norm() / want.norm())


def main():
    generator = torch.Generator().manual_seed(int(sys.argv[1]))
    routing.PART = 32
    cases = [(3, 0.0), (16, 100.0), (20, -5.0), (17, 3.0), (33, 0.0), (41, 9.0)]
    routed = [case(generator, F, shift) for F, shift in cases]
    routed += [tie(generator, *each) for each in ((17, 10, 0), (20, 15, 0), (21, 15, 10**5))]
    back = [turn(generator, *sizes) for sizes in ((8, 4), (20, 6), (12, 3))]
    print(json.dumps([routed, back, [gather(generator, *sizes) for sizes in ((600, 8), (9, 24))]]))


if __name__ == "__main__":
    main()
