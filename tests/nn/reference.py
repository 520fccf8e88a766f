"""The reads and the soft mask one token at a time: slow, plain, and differentiable."""

from math import inf

import torch


def read(q, k, v, allocation, mode, value, scale, log_gate, gradient):
    """`functional.read` by a loop over tokens that keeps a list of slots, each a list of tokens."""
    B, L, H, _ = k.shape
    G = q.shape[2] // H
    out = q.new_zeros(B, L, q.shape[2], v.shape[-1])
    for b in range(B):
        for h in range(H):
            gate = torch.ones_like(k[b, :, h, 0]) if log_gate is None else log_gate[b, :, h].exp()
            ids = [0] * L if allocation.sequence is None else allocation.sequence[b].tolist()
            slots = {}
            for t in range(L):
                slot = int(allocation.assign[b, t, h])
                if slot < 0:
                    continue
                slots.setdefault((ids[t], slot), []).append(t)
                mine = [tokens for (i, _), tokens in slots.items() if i == ids[t]]
                parts = [
                    part
                    for tokens in mine
                    for part in speakers(
                        k[b, :, h], v[b, :, h], gate, tokens, mode, value, gradient
                    )
                ]
                keys, weights, values = (torch.stack(part) for part in zip(*parts, strict=True))
                for g in range(G):
                    logits = keys @ q[b, t, h * G + g] * scale + weights.log()
                    out[b, t, h * G + g] = logits.softmax(0) @ values
    return out


def speakers(k, v, gate, tokens, mode, value, gradient):
    """Key, weight and value of all that speak for one slot: itself, or its tokens one by one."""
    first = tokens[0]
    weight = gate[tokens].sum() if mode == "mass" else gate[first]
    if value == "first":
        return [(k[first], weight, v[first])]
    if value == "last":
        return [(carried(k, first, tokens[-1], gradient), weight, v[tokens[-1]])]
    shares = gate[tokens] if mode == "mass" else torch.ones_like(gate[tokens])
    if gradient == "slot":
        return [(k[first], weight, shares @ v[tokens] / shares.sum())]
    return [
        (carried(k, first, t, gradient), weight * share / shares.sum(), v[t])
        for t, share in zip(tokens, shares, strict=True)
    ]


def carried(k, first, t, gradient):
    """The slot's key; straight through, its gradient goes to the token that carries it."""
    return k[first] if gradient == "slot" else k[first].detach() + k[t] - k[t].detach()


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
                if causal:
                    seen[t + 1 :] = False
                blind = causal and mask is not None and not mask[b, t]
                if seen.any() and not blind:
                    out[b, t, h] = logits.masked_fill(~seen, -inf).softmax(0) @ v[b, :, h]
    return out
