"""Slots of uneven length, a window with padding, and queries at its end."""

import torch

from distinctkv.hf.slots import Slots

CASES = {
    "one token": {},
    "one token, no slots in some heads": {"longest": 1},
    "long heads": {"B": 1, "longest": 400, "L": 2},
    "padding": {"pads": [3, 0], "L": 1},
    "padding among the queries": {"pads": [12, 0], "L": 5, "R": 14},
    "several tokens": {"L": 7, "R": 40},
    "more rows than a block": {"G": 3, "L": 30, "R": 33, "B": 1},
    "a prompt of several tiles": {"G": 3, "H": 1, "L": 150, "R": 230, "pads": [90, 0]},
    "a prompt that parts share": {"B": 1, "H": 1, "L": 20, "R": 300, "pads": [3]},
    "every head alone": {"H": 4, "G": 1},
    "sizes that are no powers of two": {"D": 24, "E": 40, "L": 3},
    "wide": {"D": 160, "E": 160, "B": 1, "H": 1, "L": 9, "longest": 20},
    "a full static cache": {"longest": 0, "R": 200, "free": 70, "D": 64, "E": 64},
    "nothing but the token": {"R": 1, "L": 1},
    "as in a small model": {"H": 3, "G": 3, "D": 64, "E": 64, "longest": 300, "R": 70},
    "as in a large model": {"G": 4, "D": 128, "E": 128, "longest": 100, "L": 2},
    "16 bits": {"kind": torch.float16, "L": 2},
}


def draw(
    rng,
    B=2,
    H=2,
    G=2,
    L=1,
    R=9,
    D=16,
    E=16,
    longest=90,
    pads=None,
    free=0,
    kind=torch.float32,
    device="cpu",
):
    """What `attention.read` takes, drawn anew; lengths differ from head to head, some are 0."""

    def normal(*shape):
        return torch.tensor(rng.standard_normal(shape)).to(device, kind)

    lengths = torch.tensor(rng.integers(0, longest + 1, (B, H)))
    lengths[0, 0] = 0
    lengths[-1, -1] = longest
    n = int(lengths.sum())
    counts = torch.tensor(rng.integers(1, 9, n)).to(device, torch.int32)
    none = torch.zeros(0, device=device)
    slots = Slots(normal(n, D), normal(n, E), counts, counts, none, none, lengths)
    columns = torch.arange(R, device=device)
    real = columns >= torch.tensor(pads or [0] * B, device=device)[:, None]
    real = real & ~((columns >= R - 1 - free) & (columns < R - 1))  # room before the last
    # As models have it: heads after tokens, turned.
    query = 3 * normal(B, L, H * G, D).transpose(1, 2)
    return query, normal(B, H, R, D), normal(B, H, R, E), real, slots, 0.3
