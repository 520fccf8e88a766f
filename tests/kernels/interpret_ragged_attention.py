"""The read over slots, by Triton's interpreter; prints JSON.

A process of its own: Triton decides when it is imported whether to interpret.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import json
import sys
import warnings

import numpy as np
import torch

from distinctkv.hf import attention, inputs
from distinctkv.hf.slots import SlotBuffer
from distinctkv.kernels import ragged_attention
from tests.kernels.interpret import off, poison
from tests.kernels.ragged_cases import CASES, draw


def received(query, keys, _, real, slots, scaling):
    """How far the attention that tokens get is from what torch says, as a part of the most."""
    R, L = keys.shape[2], query.shape[2]
    seen = torch.arange(R - L, R).expand(len(keys), L) + 1
    want = attention.attention_received(query, keys, real, seen, slots, scaling)
    got = ragged_attention.received(query, keys, real, seen, slots, scaling)
    return off(got, want) / float(want.abs().max())


def known(query, keys, _, real, slots, scaling):
    """How far it is from that if the logarithms of the queries' sums are known."""
    seen = torch.arange(query.shape[2]).expand(len(keys), -1) + 1
    logits = query.unflatten(1, (keys.shape[1], -1)) @ keys[:, :, None].mT * scaling
    hidden = ~inputs.visible(real, query.shape[2])[:, None, None]
    logs = logits.masked_fill(hidden, -torch.inf).logsumexp(-1).flatten(1, 2)
    args = (query, keys, real, seen, slots, scaling)
    want = ragged_attention.received(*args)
    return off(ragged_attention.received(*args, logs), want) / float(want.abs().max())


def known_after(logs, query, keys, _, real, slots, scaling):
    """How far it is from that by the logsumexp of the read itself."""
    seen = torch.arange(query.shape[2]).expand(len(keys), -1) + 1
    args = (query, keys, real, seen, slots, scaling)
    want = ragged_attention.received(*args)
    return off(ragged_attention.received(*args, logs), want) / float(want.abs().max())


def with_room(query, keys, values, real, slots, scaling):
    """The same with slots in a buffer, behind those of another layer."""
    return query, keys, values, real, SlotBuffer([slots, slots], 5).layers[1], scaling


def main():
    rng = np.random.default_rng(int(sys.argv[1]))
    # The interpreter multiplies what no one will read, and says so.
    warnings.filterwarnings("ignore", "invalid value|overflow", RuntimeWarning)
    poison()
    found = {}
    for name, case in CASES.items():
        parts = draw(rng, **case)
        want, _ = attention.read(*parts)
        got, logs = ragged_attention.read(*parts)
        found[name] = off(got.float(), want.float())
        found[f"{name}, received"] = received(*parts)
        found[f"{name}, known"] = known_after(logs, *parts)
        found[f"{name}, with room"] = off(ragged_attention.read(*with_room(*parts))[0], got)
    found["known"] = known(*draw(rng, longest=0, G=3, L=40, R=40))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
