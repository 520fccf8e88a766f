"""Read a context once, and hold it in many ways.

One forward pass reads a context and keeps what every layer made; a way to hold it gets these
tensors, and leaves keys, values and biases. No way sees a question.
"""

# H key-value heads, G query heads of each, T tokens, S slots, D key size

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from distinctkv.hf import DistinctCache
    from distinctkv.hf.layer import DistinctLayer


ROWS = 512  # queries at a time, so that no matrix of all pairs is held
NEAR = 128  # a query this close to a token may look at it for its place alone


class Received(NamedTuple):
    """Attention that tokens got, (H, T), the mean over the heads that share a key."""

    mass: Tensor  # summed over queries
    shares: Tensor  # summed, each query's in units of an even share of what it sees
    peak: Tensor  # the most that one query, further off than NEAR, paid to it


@dataclass(frozen=True, eq=False)
class Layer:
    """What one layer made of the context: keys and queries are rotated to their positions."""

    module: Any  # the attention of a model of transformers
    hidden: Tensor  # (1, T, hidden size), what went into the attention
    queries: Tensor  # (1, H G, T, D)
    keys: Tensor  # (1, H, T, D)
    values: Tensor  # (1, H, T, D)

    @property
    def grouped(self) -> Tensor:
        """Queries by the key-value head that they share, (H, G, T, D)."""
        _, H, T, D = self.keys.shape
        return self.queries.view(H, -1, T, D)

    def weights(self, start: int, stop: int) -> Tensor:
        """Attention of the queries from ``start`` to ``stop``, (H, G, stop - start, stop)."""
        keys = self.keys[0][:, None, :stop]
        scaling: float = self.module.scaling
        logits = (self.grouped[:, :, start:stop] @ keys.mT).float() * scaling
        columns = torch.arange(keys.shape[2], device=keys.device)
        return logits.masked_fill_(columns > columns[start:stop, None], -inf).softmax(-1)

    @cached_property
    def received(self) -> Received:
        """Attention that each token got from all queries."""
        mass, shares, peak = self.keys.new_zeros(3, *self.keys.shape[1:3]).float()
        places = torch.arange(self.keys.shape[2], device=self.keys.device)
        for start in range(0, len(places), ROWS):
            rows = places[start : start + ROWS]
            paid = self.weights(start, start + len(rows)).mean(1)  # (H, rows, T)
            seen = slice(paid.shape[2])  # no query looks further
            mass[:, seen] += paid.sum(1)
            shares[:, seen] += (rows + 1.0) @ paid
            paid.masked_fill_(places[seen] > rows[:, None] - NEAR, 0.0)
            peak[:, seen] = torch.maximum(peak[:, seen], paid.amax(1))
        return Received(mass, shares, peak)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """A context as the model read it, once."""

    ids: Tensor  # (1, T)
    layers: tuple[Layer, ...]
    rotation: tuple[Tensor, Tensor]  # cos and sin of its positions
    rotary: nn.Module

    def __len__(self) -> int:
        return self.ids.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What is left of a context in one layer; a bias is added to the logit, -inf hides."""

    keys: Tensor  # (H, S, D)
    values: Tensor  # (H, S, D)
    bias: Tensor  # (H, S)

    @property
    def n_slots(self) -> int:
        """Slots that can be seen, over all heads."""
        return int((self.bias > -inf).sum())


@torch.no_grad()
def read(model: PreTrainedModel, ids: Tensor) -> Context:
    """One exact pass over (1, T) token ids."""
    seen: list[dict[str, Any]] = []

    def note(module: nn.Module, args: tuple[object, ...], options: dict[str, Any]) -> None:
        seen.append({"module": module, **options})

    modules = [layer.self_attn for layer in model.model.layers]
    hooks = [one.register_forward_pre_hook(note, with_kwargs=True) for one in modules]
    made: list[tuple[Tensor, Tensor, Tensor]] = []
    try:
        with attending(model, _read):
            model.model(input_ids=ids, use_cache=False, made=made)
    finally:
        for hook in hooks:
            hook.remove()
    layers = (
        Layer(one["module"], one["hidden_states"], *tensors)
        for one, tensors in zip(seen, made, strict=True)
    )
    return Context(ids, tuple(layers), seen[0]["position_embeddings"], model.model.rotary_emb)


def hold_by(cache: DistinctCache, context: Context) -> list[Held]:
    """Let a cache of ours see the context as the model would hand it over, layer by layer."""
    from distinctkv.hf.attention import attention

    positions = torch.arange(len(context), device=context.ids.device)[None]
    for index, layer in enumerate(context.layers):
        # New views: a cache marks the keys that it is handed.
        keys, values = cache.update(layer.keys[:], layer.values[:], index)
        scaling = layer.module.scaling
        attention(
            layer.module, layer.queries, keys, values, None, scaling=scaling, position_ids=positions
        )
    return [_held(layer) for layer in cache.layers]


def _held(layer: DistinctLayer) -> Held:
    """The slots of a layer, and the tokens that are not slots yet."""
    keys, values = layer.keys[0], layer.values[0]
    none = torch.zeros(keys.shape[:2], device=keys.device)
    if layer.slots is None:
        return Held(keys, values, none)
    slots = layer.slots
    counts = slots.padded(slots.counts).float()
    added = counts.log().masked_fill(~slots.mask(), -inf)
    return Held(
        torch.cat((slots.padded(slots.keys), keys), 1),
        torch.cat((slots.padded(slots.values), values), 1),
        torch.cat((added, none), 1),
    )


def keep(context: Context, masks: Sequence[Tensor]) -> list[Held]:
    """The tokens of (H, T) masks, a mask for each layer; the others are gone."""
    return [
        picked(layer.keys[0], layer.values[0], mask)
        for layer, mask in zip(context.layers, masks, strict=True)
    ]


def picked(keys: Tensor, values: Tensor, mask: Tensor) -> Held:
    """Those of (H, T) tokens that a mask shows, in their order; heads as wide as the widest."""
    n = mask.sum(1)
    width = int(n.max())
    order = mask.byte().sort(dim=1, descending=True, stable=True).indices[:, :width]
    hidden = torch.arange(width, device=mask.device) >= n[:, None]
    keys, values = (
        x.gather(1, order[..., None].expand(-1, -1, x.shape[-1])) for x in (keys, values)
    )
    return Held(
        keys, values, torch.zeros(hidden.shape, device=mask.device).masked_fill(hidden, -inf)
    )


@contextmanager
def attending(
    model: PreTrainedModel, attention: Callable[..., tuple[Tensor, None]]
) -> Iterator[None]:
    """The model with an attention of ours, and then as it was."""
    from transformers import AttentionInterface

    name = f"{__name__}.{attention.__name__}".replace(".", "_")
    AttentionInterface.register(name, attention)
    before = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _read(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    *,
    made: list[tuple[Tensor, Tensor, Tensor]],
    scaling: float,
    **_: object,
) -> tuple[Tensor, None]:
    """Causal attention that remembers what it was given."""
    made.append((query, key, value))
    # With keys repeated, float32 on CUDA has a kernel that holds no matrix of all pairs.
    G = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(G, 1), value.repeat_interleave(G, 1)
    out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return out.transpose(1, 2).contiguous(), None
