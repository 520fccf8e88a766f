"""Like Attention Matching: keys that are attended to, with fitted biases and values.

The paper (Zweiger et al., 2026) chooses keys, fits a bias for each so that the mass of attention
is kept, and refits values so that its output is. Here the queries to match are the context's own,
turned to the positions that follow it; masses are fitted by multiplicative updates, values by
ridge regression. A small stand-in, not their code.
"""

# H key-value heads, R reference queries, T tokens, S kept tokens, D key size

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distinctkv.hf.model_support import ModelSpec

from .kv_states import Context, Held, Layer
from .way import Way, each

if TYPE_CHECKING:
    from transformers import PreTrainedModel

QUERIES, STEPS, RIDGE, SPAN = 512, 50, 1e-3, 512
LAYERS = 10  # at once
WAY_NOTE = f"{QUERIES} of the context's queries, {STEPS} steps for biases, ridge {RIDGE:g}"


def hold(model: PreTrainedModel, context: Context, kept: float) -> list[Held]:
    """Each head by itself, all with the same number of keys; many layers in one go."""
    rotary = ModelSpec.of(model).rotary
    positions = torch.arange(len(context), device=context.ids.device)[None, None]
    n = max(1, int(kept * len(context)))
    held: list[Held] = []
    for start in range(0, len(context.layers), LAYERS):
        some = context.layers[start : start + LAYERS]
        queries = [_after(rotary.unrotate(x.queries, positions), context, x) for x in some]
        keys, values = (
            torch.cat([getattr(x, name)[0] for x in some]) for name in ("keys", "values")
        )
        made = _match(keys, values, torch.cat(queries), some[0].module.scaling, n)
        sizes = [x.keys.shape[1] for x in some]
        held += [Held(*one) for one in zip(*(part.split(sizes) for part in made), strict=True)]
    return held


def _after(plain: Tensor, context: Context, layer: Layer) -> Tensor:
    """Queries spread over the context, as if they came after it: (H, R, D)."""
    T, H = len(context), layer.keys.shape[1]
    each = max(1, QUERIES * H // layer.queries.shape[1])
    some = torch.linspace(0, T - 1, min(each, T), device=plain.device).long()
    chosen = plain[0][:, some]
    places = T + torch.arange(len(some), device=plain.device) % SPAN
    cos, sin = context.rotary(chosen, places[None])
    half = chosen.shape[-1] // 2
    turned = torch.cat((-chosen[..., half:], chosen[..., :half]), -1)
    return (chosen * cos[0] + turned * sin[0]).unflatten(0, (H, -1)).flatten(1, 2)


def _match(
    old_keys: Tensor, old_values: Tensor, queries: Tensor, scaling: float, n: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, values and biases of n tokens of every head."""
    keys, values = old_keys.float(), old_values.float()
    logits = queries.float() @ keys.mT * scaling  # (H, R, T)
    logits = logits - logits.amax(-1, keepdim=True)
    grown = logits.exp()
    mass = grown.sum(-1, keepdim=True)
    chosen = (grown / mass).square().mean(1).topk(n, -1).indices.sort(-1).values  # (H, S)
    part = grown.gather(2, chosen[:, None].expand(-1, grown.shape[1], -1))
    # Non-negative factors w with part @ w = mass, each query's error relative to its mass.
    part = part / mass
    factor = torch.ones(part.shape[0], n, 1, device=part.device)
    goal = part.sum(1)[..., None]
    for _ in range(STEPS):
        factor = factor * goal / (part.mT @ (part @ factor)).clamp(min=1e-12)
    factor = factor.clamp(1e-6, 1e6)
    shares = part * factor.mT
    shares = shares / shares.sum(-1, keepdim=True)
    target = (grown / mass) @ values
    old = values.gather(1, chosen[..., None].expand(-1, -1, values.shape[-1]))
    # Ridge around the old values, (X'X + r I) dv = X' (y - X v), by way of the fewer queries.
    gram = shares @ shares.mT
    eye = torch.eye(gram.shape[-1], device=gram.device)
    change = shares.mT @ torch.linalg.solve(gram + RIDGE * eye, target - shares @ old)
    picked = old_keys.gather(1, chosen[..., None].expand(-1, -1, keys.shape[-1]))
    return picked, (old + change).to(old_values.dtype), factor[..., 0].log()


WAY = Way("Attention Matching, like it", WAY_NOTE, each(hold))
