"""Simple ways to drop tokens from a context, as other caches do, in a few lines each.

All keep the same number of tokens. They see what `distinct_cache` sees: one pass over the context
and no question. Each protects 4 sinks and, where its authors say so, the newest tokens.
"""

# H key-value heads, G query heads of each, T tokens, D key size

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, normalize

from .kv_states import Context, Held, Layer, keep

SINKS, RECENT = 4, 32


def kept_tokens(context: Context, score: Callable[[Layer, int], Tensor], part: float) -> list[Held]:
    """Of each head the tokens of the highest (H, T) score, so that ``part`` of them stay."""
    n = max(1, int(part * len(context)))
    return keep(context, [top(score(layer, n), n) for layer in context.layers])


def top(scores: Tensor, n: int) -> Tensor:
    """A mask of the n highest of each head."""
    mask = torch.zeros_like(scores, dtype=torch.bool)
    return mask.scatter_(-1, scores.topk(n, -1).indices, value=True)


def protect(scores: Tensor, recent: int) -> Tensor:
    """Scores that no rule can take below those of sinks and of the newest tokens."""
    scores = scores.clone()
    scores[:, :SINKS] = inf
    if recent:
        scores[:, -recent:] = inf
    return scores


def at_random(seed: int) -> Callable[[Layer, int], Tensor]:
    """Any tokens, and the sinks."""
    generator = torch.Generator().manual_seed(seed)

    def score(layer: Layer, n: int) -> Tensor:
        shape = layer.keys.shape[1:3]
        return protect(torch.rand(shape, generator=generator).to(layer.keys.device), 0)

    return score


def streaming(layer: Layer, n: int) -> Tensor:
    """Sinks and the newest tokens (StreamingLLM)."""
    H, T = layer.keys.shape[1:3]
    return protect(torch.arange(float(T), device=layer.keys.device).expand(H, T), 0)


def small_keys(layer: Layer, n: int) -> Tensor:
    """Keys of small norm (Knorm)."""
    return -layer.keys[0].square().sum(-1)


def unlike_mean(layer: Layer, n: int) -> Tensor:
    """Keys least like the mean key (KeyDiff)."""
    keys = normalize(layer.keys[0], dim=-1)
    mean = normalize(keys.mean(1, keepdim=True), dim=-1)
    return -(keys * mean).sum(-1)


def heavy(layer: Layer, n: int) -> Tensor:
    """Half for the newest, half for those that were attended to most in sum (H2O)."""
    return protect(mass(layer), max(0, (n - SINKS) // 2))


def last_look(layer: Layer, n: int) -> Tensor:
    """What the newest 32 tokens attended to, smoothed over 5 tokens (SnapKV)."""
    seen = _window(layer)
    return protect(avg_pool1d(seen, 5, stride=1, padding=2), min(RECENT, n - SINKS))


def redundant(layer: Layer, n: int) -> Tensor:
    """.07 of what the newest 32 attended to, less .93 of likeness to other keys (like R-KV)."""
    seen = _window(layer)
    keys = normalize(layer.keys[0], dim=-1)
    like = keys @ keys.mT
    # Likeness below .5 is none; of tokens that are alike the last is not redundant.
    like = torch.where(like > 0.5, like, 0.0).triu(1)
    load = like.mean(-1)
    score = 0.07 * seen / seen.amax(-1, keepdim=True) - 0.93 * load / load.amax(-1, keepdim=True)
    return protect(score, min(RECENT, n - SINKS))


def mass(layer: Layer) -> Tensor:
    """Attention that each token received from all queries, the mean over a group, (H, T)."""
    return layer.received.mass


def _window(layer: Layer) -> Tensor:
    T = layer.keys.shape[2]
    return layer.weights(max(0, T - RECENT), T).mean((1, 2))


RIVALS: Mapping[str, Callable[[Layer, int], Tensor]] = {
    "streaming": streaming,
    "knorm": small_keys,
    "keydiff": unlike_mean,
    "h2o": heavy,
    "snapkv": last_look,
    "rkv": redundant,
}
