"""The cache with a threshold in the plainest torch: the oracle of `test_reference`.

One sequence or several of equal length, CPU, no padding, crop, files or kernels; every head is
padded to the longest.
"""

# B sequences, H key-value heads, N = B * H, G query heads per key-value head
# L tokens, S slots, D head size, F feature size

from dataclasses import dataclass, fields
from math import inf

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers import AttentionInterface, AttentionMaskInterface, Cache
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import sdpa_mask

NAME = "distinctkv_reference"
BLOCK = 16  # tokens that come one by one and are merged together


@dataclass
class Slots:
    """Slots of N heads, padded to the longest; where ``count`` is 0 there is none."""

    keys: torch.Tensor  # (N, S, D), rotated, of the slot's first token
    values: torch.Tensor  # (N, S, D), weighted mean
    count: torch.Tensor  # (N, S), tokens merged
    position: torch.Tensor  # (N, S), of the first token
    weight: torch.Tensor  # (N, S), largest of its tokens
    mass: torch.Tensor  # (N, S), attention received

    def cat(self, other):
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Slots(*(torch.cat(pair, 1) for pair in pairs))


def allocate(points, radius, slots, joinable, n_slots):
    """Owner (N, L) of each point and slots (N,) afterwards, token by token: the paper's rule."""
    owners = torch.zeros(points.shape[:2], dtype=torch.long)
    for head in range(len(points)):
        n = int(n_slots[head])
        book = [slots[head, s] if joinable[head, s] else None for s in range(n)]
        for token, (point, near) in enumerate(zip(points[head], radius[head], strict=True)):
            far = [inf if s is None else float((point - s).square().sum()) for s in book]
            best = min(range(len(far)), key=far.__getitem__, default=None)
            if near < 0 or best is None or far[best] > near:
                best = len(book)
                book.append(point if near >= 0 else None)
            owners[head, token] = best
        n_slots[head] = len(book)
    return owners, n_slots


def pool(items, owner, n_slots, attention_mean):
    """Merge items into the slots (N, L) that own them; -1 drops an item."""
    N, L = owner.shape
    S = int(n_slots.max())
    at = torch.where(owner >= 0, owner, S)  # one column more, for what is dropped

    def total(x):
        index = at if x.ndim == 2 else at[..., None].expand_as(x)
        return x.new_zeros(N, S + 1, *x.shape[2:]).scatter_add_(1, index, x)[:, :S]

    order = torch.arange(L).expand(N, L)
    first = torch.full((N, S + 1), L).scatter_reduce_(1, at, order, "amin")[:, :S]
    first = first.clamp(max=L - 1)
    rows = first[..., None].expand(-1, -1, items.keys.shape[-1])
    share = items.mass if attention_mean else items.count.float()
    values = total(items.values * share[..., None]) / total(share).clamp(min=1e-30)[..., None]
    weight = items.weight.new_zeros(N, S + 1).scatter_reduce_(1, at, items.weight, "amax")[:, :S]
    return Slots(
        items.keys.gather(1, rows), values, total(items.count), items.position.gather(1, first),
        weight, total(items.mass),
    )  # fmt: skip


def unrotate(x, position, frequency):
    """Undo the rotary embedding of (..., L, D) keys or queries at (..., L) positions."""
    angle = position[..., None].float() * frequency
    cos, sin = angle.cos(), angle.sin()
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos + b * sin, b * cos - a * sin), -1)


def slot_attention(q, keys, values, slots, scale):
    """Attend (N, G, L, D) queries to slots, counted as their tokens, and to the window."""
    L, R, S = q.shape[2], keys.shape[1], slots.keys.shape[1]
    bias = torch.zeros(len(q), L, S + R)
    bias[..., :S] = slots.count.float().log()[:, None]  # log 0: an empty place
    bias[..., S:] = torch.full((L, R), -inf).triu(R - L + 1)
    k, v = torch.cat((slots.keys, keys), 1), torch.cat((slots.values, values), 1)
    k, v = (x[:, None].expand(-1, q.shape[1], -1, -1) for x in (k, v))
    return sdpa(q, k, v, bias[:, None], scale=scale)


def attention_received(q, keys, slots, scale, seen):
    """Attention that window tokens get, (N, R): 1 from a query is an even share of what it saw."""
    L, R = q.shape[2], keys.shape[1]
    old = q * scale @ slots.keys[:, None].mT + slots.count.float().log()[:, None, None]
    new = q * scale @ keys[:, None].mT + torch.full((L, R), -inf).triu(R - L + 1)
    share = torch.cat((old, new), -1).softmax(-1)[..., -R:].mean(1)
    return torch.arange(seen + 1, seen + 1 + L).float() @ share


def attention(module, query, key, value, attention_mask, **options):
    """What models call under our name."""
    cache, scale = key._reference, options["scaling"]
    out = cache.attend(module.layer_idx, query, key, value, scale, options["position_ids"])
    return out, None


class ReferenceLayer(DynamicLayer):
    def __init__(self):
        super().__init__()
        self.qq = self.vv = 0.0
        self.slots, self.seen, self.received, self.position = None, 0, None, None

    def get_seq_length(self):
        return self.seen

    def get_mask_sizes(self, query_length):
        length = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self.seen + length, 0


class ReferenceCache(Cache):
    def __init__(self, model, threshold, policy, sinks=4, recent=32):
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)
        super().__init__(layers=[ReferenceLayer() for _ in range(model.config.num_hidden_layers)])
        self.threshold, self.policy, self.sinks, self.recent = threshold, policy, sinks, recent
        self.frequency = model.model.rotary_emb.inv_freq

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        key_states._reference = self
        return key_states, value_states

    def attend(self, index, q, k, v, scale, position):
        layer = self.layers[index]
        B, H, L, D = k.shape
        position = position.expand(B, L)
        DynamicLayer.update(layer, k, v)
        before = [] if layer.position is None else [layer.position]
        layer.position = torch.cat((*before, position), 1)
        keys, values = layer.keys.flatten(0, 1), layer.values.flatten(0, 1)
        query = q.reshape(B * H, -1, L, D)
        slots = layer.slots or self.tokens(layer, 0)
        out = slot_attention(query, keys, values, slots, scale).reshape(B, -1, L, D)
        got = attention_received(query, keys, slots, scale, layer.seen)
        if layer.received is not None:
            got[:, : layer.received.shape[1]] += layer.received
        layer.received = got
        flat = unrotate(q, position[:, None], self.frequency).reshape(B * H, -1, D) * scale
        layer.qq = layer.qq + (flat.mT @ flat).double() * (L / flat.shape[1])
        layer.vv = layer.vv + v.flatten(0, 1).double().square().sum((1, 2))
        layer.seen += L
        if index == len(self.layers) - 1:
            old = layer.keys.shape[2] - self.recent
            if old >= (1 if L > 1 else BLOCK):
                for one in self.layers:
                    self.merge(one, old)
        return out.transpose(1, 2).contiguous()

    def tokens(self, layer, n):
        """The oldest n tokens of the window as slots of one."""
        keys, values = layer.keys.flatten(0, 1)[:, :n], layer.values.flatten(0, 1)[:, :n]
        position = layer.position[:, :n].repeat_interleave(layer.keys.shape[1], 0)
        ones = torch.ones(len(keys), n)
        weight = mass = ones
        if layer.received is not None:
            asked = torch.arange(layer.keys.shape[2], 0, -1)[:n]  # queries that saw each token
            mass = layer.received[:, :n].clamp(min=1e-3)
            weight = (layer.received[:, :n] / asked).clamp(min=1e-3) ** self.policy.importance
        return Slots(keys, values, ones.long(), position, weight, mass)

    def features(self, layer, items):
        """Rows whose squared distance is the error in logits and in relative values."""
        moment = layer.qq / layer.seen
        jitter = 3e-5 * moment.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None]
        factor = torch.linalg.cholesky(moment + jitter * torch.eye(moment.shape[1])).float()
        size = (layer.vv / layer.seen).sqrt().float()
        keys = unrotate(items.keys, items.position, self.frequency)
        parts = [keys @ factor, items.values / size[:, None, None]]
        if self.policy.horizon is not None:
            parts.append(items.position[..., None].float() / self.policy.horizon)
        return torch.cat(parts, -1)

    def merge(self, layer, n):
        tokens, slots = self.tokens(layer, n), layer.slots or self.tokens(layer, 0)
        held = (slots.count > 0).sum(1)
        sink = torch.arange(n) + held[:, None] < self.sinks
        radius = (self.threshold / tokens.weight).masked_fill(sink, -1.0)
        places = torch.arange(slots.count.shape[1]).expand_as(slots.count)
        real = slots.count > 0
        owner, n_slots = allocate(
            self.features(layer, tokens), radius, self.features(layer, slots),
            real & (places >= self.sinks), held.clone(),
        )  # fmt: skip
        both = torch.cat((torch.where(real, places, -1), owner), 1)
        layer.slots = pool(slots.cat(tokens), both, n_slots, self.policy.attention_mean)
        layer.keys, layer.values = layer.keys[:, :, n:].clone(), layer.values[:, :, n:].clone()
        layer.position, layer.received = layer.position[:, n:], layer.received[:, n:].clone()
