"""The reads and the soft mask one token at a time: slow, plain, and differentiable."""

from math import inf

import torch


def read(q, k, v, allocation, mode, value, scale):
    """`functional.read` by a loop over tokens that keeps a list of slots, each a list of tokens."""
    B, L, H, _ = k.shape
    out = q.new_zeros(B, L, H, v.shape[-1])
    for b in range(B):
        for h in range(H):
            slots = {}
            for t in range(L):
                slot = int(allocation.assign[b, t, h])
                if slot < 0:
                    continue
                slots.setdefault(slot, []).append(t)
                parts = [
                    part
                    for tokens in slots.values()
                    for part in speakers(k[b, :, h], v[b, :, h], tokens, mode, value)
                ]
                keys, weights, values = zip(*parts, strict=True)
                logits = torch.stack(keys) @ q[b, t, h] * scale + q.new_tensor(weights).log()
                out[b, t, h] = logits.softmax(0) @ torch.stack(values)
    return out


def speakers(k, v, tokens, mode, value):
    """Key, weight and value of all that speak for one slot: itself, or its tokens one by one."""
    first, last = tokens[0], tokens[-1]
    weight = len(tokens) if mode == "mass" else 1
    if value == "first":
        return [(k[first], weight, v[first])]
    if value == "last":
        return [(carried(k, first, last), weight, v[last])]
    return [(carried(k, first, t), weight / len(tokens), v[t]) for t in tokens]


def carried(k, first, t):
    """The slot's key; straight through, its gradient goes to the token that carries it."""
    return k[first].detach() + k[t] - k[t].detach()


def novelty(keys):
    """`functional.causal_novelty` pair by pair."""
    B, L, H, _ = keys.shape
    rows = [[[_nearest(keys[b, : t + 1, h]) for h in range(H)] for t in range(L)] for b in range(B)]
    return torch.stack([torch.stack([torch.stack(row) for row in part]) for part in rows])


def _nearest(keys):
    if len(keys) == 1:
        return keys.new_tensor(2.0)
    return 1 - max(keys[s] @ keys[-1] for s in range(len(keys) - 1))


def soft_read(q, k, v, log_gate, scale, mask, causal):
    """`functional.soft_read` query by query."""
    B, Q, H, _ = q.shape
    out = q.new_zeros(B, Q, H, v.shape[-1])
    for b in range(B):
        for t in range(Q):
            for h in range(H):
                logits = k[b, :, h] @ q[b, t, h] * scale + log_gate[b, :, h]
                seen = torch.ones(k.shape[1], dtype=torch.bool) if mask is None else mask[b].clone()
                seen &= log_gate[b, :, h] > -inf
                if causal:
                    seen[t + 1 :] = False
                blind = causal and mask is not None and not mask[b, t]
                if seen.any() and not blind:
                    out[b, t, h] = logits.masked_fill(~seen, -inf).softmax(0) @ v[b, :, h]
    return out
