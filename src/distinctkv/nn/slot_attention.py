"""Attention over slots: causal reads of whole sequences."""

# B sequences, H heads, G queries per head, L tokens, S slots, D key size, C value size, N = B H,
# T columns (slots from before, then tokens), Q queries of one block

from __future__ import annotations

from math import inf, isfinite
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional as fn

from .. import kernels
from .allocation import Allocation
from .mixer import reads_without_sync
from .slot_state import SlotState

Mode = Literal["mass", "distinct"]
Value = Literal["mean", "first", "last"]
QUERIES = 512  # queries whose biases are held at once


class Columns(NamedTuple):
    """All that can be attended to, each (B, H, T, ...) but ``place`` (T,), -1 for a slot."""

    keys: Tensor
    values: Tensor
    slot: Tensor
    real: Tensor
    first: Tensor  # whether it opened its slot
    size: Tensor  # tokens it stands for
    place: Tensor

    @classmethod
    def of(
        cls, key: Tensor, val: Tensor, allocation: Allocation, value: Value, state: SlotState | None
    ) -> Columns:
        """The slots of ``state``, then the tokens, in float32 or better."""
        wide = torch.promote_types(key.dtype, torch.float32)
        slot = allocation.assign.transpose(1, 2)
        real, slot = slot >= 0, slot.clamp(min=0)
        # What padding holds must not matter, not even nan.
        key, val = (torch.where(real[..., None], x.to(wide), 0) for x in (key, val))
        place = torch.arange(key.shape[2], device=key.device)
        first, size = allocation.lead.transpose(1, 2), torch.ones_like(key[..., 0])
        tokens = cls(key, val, slot, real, first, size, place)
        if state is None:
            return tokens
        slots = _of_state(state, wide, value)
        pairs = zip(slots, tokens, strict=True)
        return cls._make(torch.cat(pair, 0 if pair[0].ndim == 1 else 2) for pair in pairs)

    def until(self, stop: int) -> Columns:
        """The first ``stop`` columns."""
        return Columns._make(x[:stop] if x.ndim == 1 else x[:, :, :stop] for x in self)


def _of_state(state: SlotState, wide: torch.dtype, value: Value) -> Columns:
    """Slots as columns that stand for all the tokens in them; unused ones hold 0."""
    used = state.used
    keys, values = (torch.where(used[..., None], x.to(wide), 0) for x in state[:2])
    size = torch.where(used, state.counts.to(wide), 1)
    if value == "mean":
        values = values / size[..., None]
    slot = torch.arange(state.capacity, device=keys.device)
    return Columns(keys, values, slot.expand_as(used), used, used, size, torch.full_like(slot, -1))


def attend(
    query: Tensor,
    columns: Columns,
    mode: Mode,
    value: Value,
    scale: float,
) -> Tensor:
    """Attention (B, H * G, L, C) in blocks of queries, each with the bias of its columns."""
    L, H = query.shape[2], columns.slot.shape[1]
    before = columns.slot.shape[2] - L
    group = query.shape[1] // H
    real = columns.real[:, :, before:, None].repeat_interleave(group, 1)
    query = torch.where(real, query.to(columns.keys.dtype), 0)
    last = _last(columns) if value == "last" else None
    parts = []
    for start in range(0, L, QUERIES):
        stop = min(start + QUERIES, L)
        seen = columns.until(before + stop)
        bias = _bias(seen, before + start, mode, value, last)
        blind = ~real[:, :, start:stop] | (bias == -inf).all(-1, True).repeat_interleave(group, 1)
        bias = bias.repeat_interleave(group, 1).masked_fill(blind, 0)
        key, val = (x.repeat_interleave(group, 1) for x in (seen.keys, seen.values))
        out = fn.scaled_dot_product_attention(
            query[:, :, start:stop], key, val, attn_mask=bias, scale=scale
        )
        parts.append(out.masked_fill(blind, 0))
    return torch.cat(parts, 2)


def _last(columns: Columns) -> Tensor:
    """The time at which a column stops being the last of its slot (B, H, T), if ever."""
    never = columns.slot.shape[-1] + 1
    rank = torch.where(columns.real, columns.slot, never)
    order = rank.sort(dim=-1, stable=True).indices
    rank, place = rank.gather(-1, order), columns.place.expand_as(rank).gather(-1, order)
    after = torch.where(rank[..., 1:] == rank[..., :-1], place[..., 1:], never)
    return torch.empty_like(order).scatter_(-1, order, fn.pad(after, (0, 1), value=never))


def _bias(columns: Columns, start: int, mode: Mode, value: Value, last: Tensor | None) -> Tensor:
    """Log weight of each column for the queries from ``start`` on, -inf if not visible."""
    time = columns.place[start:, None]
    visible = columns.real[:, :, None] & (columns.place <= time)
    if value == "first":
        visible = visible & columns.first[:, :, None]
    elif last is not None:
        visible = visible & (last[:, :, None, : len(columns.place)] > time)
    bias = columns.size.log()[:, :, None]
    if mode == "mass" and value != "mean":
        bias = _log_total(columns, start)
    elif mode == "distinct":
        bias = bias - _log_total(columns, start) if value == "mean" else torch.zeros_like(bias)
    return torch.where(visible, bias, -inf)


def _log_total(columns: Columns, start: int) -> Tensor:
    """Log of the tokens in each column's slot at the time of each query (B, H, Q, T)."""
    slot, weight = columns.slot, torch.where(columns.real, columns.size, 0)
    (B, H, T), Q = slot.shape, slot.shape[2] - start
    n_slots = T
    if slot.is_cpu and not torch.compiler.is_compiling():
        n_slots = int(slot.max()) + 1
    before = weight.new_zeros(B, H, n_slots).scatter_add(2, slot[..., :start], weight[..., :start])
    alone = weight.new_zeros(B, H, Q, n_slots)
    alone = alone.scatter(3, slot[:, :, start:, None], weight[:, :, start:, None])
    total = before[:, :, None] + alone.cumsum(2)
    table = total.clamp(min=1).log()
    return table.gather(3, slot[:, :, None].expand(-1, -1, Q, -1))


def attend_openers(
    query: Tensor,
    key: Tensor,
    val: Tensor,
    allocation: Allocation,
    scale: float,
) -> Tensor:
    """Attention (B, H * G, L, C) of each query to the slots opened by its time."""
    L, group = query.shape[2], query.shape[1] // key.shape[1]
    opener = _opener(allocation)
    source, real = opener.clamp(min=0), (allocation.assign >= 0).transpose(1, 2)
    keys, values = (_take(x.to(key.dtype), source, opener >= 0) for x in (key, val))
    time = torch.arange(L, device=query.device)[:, None]
    keys, values = (x.repeat_interleave(group, 1) for x in (keys, values))
    real = real.repeat_interleave(group, 1)[..., None]
    query = torch.where(real, query.to(key.dtype), 0)
    parts = []
    for start in range(0, L, QUERIES):
        part = slice(start, start + QUERIES)
        visible = (opener >= 0)[:, :, None] & (opener[:, :, None] <= time[part])
        visible = visible.repeat_interleave(group, 1)
        blind = ~(real[:, :, part] & visible.any(-1, keepdim=True))
        out = fn.scaled_dot_product_attention(
            query[:, :, part], keys, values, attn_mask=visible | blind, scale=scale
        )
        parts.append(out.masked_fill(blind, 0))
    return torch.cat(parts, 2)


def _opener(allocation: Allocation) -> Tensor:
    """The token that opened each slot; on the CPU without the slots that none opened."""
    opener = allocation.opener
    if opener.is_cpu and not torch.compiler.is_compiling():
        return opener[:, :, : max(1, int(allocation.n_slots.max()))]
    return opener


def _take(tokens: Tensor, source: Tensor, real: Tensor) -> Tensor:
    """Rows (B, H, S, D) of these tokens, 0 where there is none."""
    rows = tokens.gather(2, source[..., None].expand(-1, -1, -1, tokens.shape[-1]))
    return torch.where(real[..., None], rows, 0)


def attend_all(
    query: Tensor, key: Tensor, val: Tensor, allocation: Allocation, scale: float
) -> Tensor:
    """Causal attention (B, H * G, L, C) to the tokens that were not refused.

    On the CPU nothing was, or `allocate` would have said so. Elsewhere nobody knows, and refused
    tokens are put behind all others, where only their own queries see them.
    """
    kinds = {query.dtype, key.dtype, val.dtype}
    if len(kinds) > 1 and not torch.is_autocast_enabled(query.device.type):
        raise ValueError(
            f"q, k and v must have one type, got {query.dtype}, {key.dtype} and {val.dtype}; cast "
            "them"
        )
    group = query.shape[1] // key.shape[1]
    known = reads_without_sync(key)
    if not known:
        real = (allocation.assign >= 0).transpose(1, 2)  # (B, H, L)
        place = _place(real)
        order = torch.empty_like(place).scatter_(2, place, _counted(place))
        key, val = (_taken(x.masked_fill(~real[..., None], 0), order) for x in (key, val))
        real, place, order = (x.repeat_interleave(group, 1) for x in (real, place, order))
        query = _taken(query.masked_fill(~real[..., None], 0), order)
    if group > 1:
        key, val = key.repeat_interleave(group, 1), val.repeat_interleave(group, 1)
    out = fn.scaled_dot_product_attention(query, key, val, is_causal=True, scale=scale)
    return out if known else _taken(out, place).masked_fill(~real[..., None], 0)


def _place(real: Tensor) -> Tensor:
    """Where each token goes (B, H, L): real ones first, all in their order."""
    ahead = real.cumsum(2)
    return torch.where(real, ahead - 1, ahead[..., -1:] + (~real).cumsum(2) - 1)


def _counted(place: Tensor) -> Tensor:
    return torch.arange(place.shape[2], device=place.device).expand_as(place)


def _taken(rows: Tensor, place: Tensor) -> Tensor:
    return rows.gather(2, place[..., None].expand(-1, -1, -1, rows.shape[-1]))


LONG = 4096  # tokens from which on a kernel is faster than attention over all tokens
SMALLEST_SCALE = 1e-3  # the kernel of the mass divides by the scale, which may not be less


def read_by_kernels(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allocation: Allocation,
    mode: str,
    value: str,
    scale: float,
    state: SlotState | None,
) -> Tensor | None:
    """What a kernel reads, in the type of ``v``; None if there is none for this."""
    known = (mode, value) in (("mass", "mean"), ("distinct", "first"))
    if not known or state is not None or q.shape[1] < LONG or scale < SMALLEST_SCALE:
        return None
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    if trained or torch.compiler.is_compiling() or not kernels.chosen("auto", q, v):
        return None
    from ..kernels import slot_prefill

    # Autocast rounds what goes to plain attention, and no other read.
    kind = _kind(q, k, v, rounded=mode == "mass" and allocation.mask is None)
    if kind is None:
        return None
    kernel = slot_prefill.read_mass if mode == "mass" else slot_prefill.read_first
    out = kernel(q.to(kind), k.to(kind), v.to(kind), *allocation.streams(), scale)
    return out.detach().to(v.dtype)


def _kind(q: Tensor, k: Tensor, v: Tensor, *, rounded: bool) -> torch.dtype | None:
    """The 16 bits in which torch would read this too: those of autocast, or of all three."""
    kind = q.dtype if q.dtype == k.dtype == v.dtype else torch.float32
    if rounded and torch.is_autocast_enabled(q.device.type):
        kind = torch.get_autocast_dtype(q.device.type)
    return kind if kind in (torch.float16, torch.bfloat16) else None


def slot_keys(k: Tensor, allocation: Allocation, *, state: SlotState | None = None) -> Tensor:
    """Each token's key replaced by the key of its slot (B, L, H, D).

    The gradient goes straight through to the token's own key, so that every key is trained.
    """
    check_tokens(k, allocation)
    allocation.check_slots(state)
    own = torch.arange(k.shape[1], device=k.device)[:, None]
    slot = allocation.assign.clamp(min=0).transpose(1, 2)  # (B, H, L)
    opener = allocation.opener.gather(2, slot).transpose(1, 2)
    source = torch.where(allocation.assign < 0, own, opener)
    keys = k.gather(1, source.clamp(min=0)[..., None].expand_as(k))
    if state is not None:
        old = state.keys.gather(2, slot[..., None].expand(-1, -1, -1, k.shape[-1]))
        keys = torch.where((source < 0)[..., None], old.transpose(1, 2).to(k.dtype), keys)
    # k - k is 0: the number is the slot's to the last bit.
    return keys.detach() + (k - k.detach())


def read(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allocation: Allocation,
    *,
    mode: Mode = "mass",
    value: Value = "mean",
    scale: float | None = None,
    state: SlotState | None = None,
) -> Tensor:
    """What each query reads from the slots as they are once its own token is written (B, L, H, C).

    ``mass`` weighs a slot by its tokens; with ``value="mean"`` that is attention over all tokens
    with each key replaced by its slot's. ``distinct`` counts every slot once (paper, eq. 3).
    ``scale`` is 1/theta, by default D ** -0.5. ``state`` holds the slots from before these tokens.
    ``q`` may have a multiple of the heads of ``k``. Padding reads 0.

    >>> from .allocation import allocate
    >>> k = torch.eye(2)[[0, 1, 0, 0]].reshape(1, 4, 1, 2)
    >>> v = torch.tensor([0.0, 8.0, 0.0, 0.0]).reshape(1, 4, 1, 1)
    >>> found, blank = allocate(k, tau=0.5), torch.zeros_like(k)
    >>> read(blank, k, v, found).flatten()  # three tokens of one kind, one of the other
    tensor([0.0000, 4.0000, 2.6667, 2.0000])
    >>> read(blank, k, v, found, mode="distinct").flatten()
    tensor([0.0000, 4.0000, 4.0000, 4.0000])
    """
    check(mode, value, q, k, v, scale)
    check_tokens(k, allocation)
    allocation.check_slots(state)
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    found = read_by_kernels(q, k, v, allocation, mode, value, scale, state)
    if found is not None:
        return found
    keys = slot_keys(k, allocation, state=state)
    query, key, val = (x.transpose(1, 2) for x in (q, keys, v))
    if not scale > 0:  # stock kernels scale what they have masked already, and find nan
        query, scale = query * scale, 1.0
    if mode == "mass" and value == "mean" and state is None and allocation.mask is None:
        return attend_all(query, key, val, allocation, scale).transpose(1, 2)
    with torch.autocast(q.device.type, enabled=False):
        if mode == "distinct" and value == "first" and state is None:
            key = k.transpose(1, 2)
            out = attend_openers(query, key, val, allocation, scale)
            return out.to(v.dtype).transpose(1, 2)
        columns = Columns.of(key, val, allocation, value, state)
        out = attend(query, columns, mode, value, scale)
    return out.to(v.dtype).transpose(1, 2)


def check_tokens(k: Tensor, allocation: Allocation) -> None:
    """Refuse an allocation of other tokens."""
    if allocation.assign.shape != k.shape[:3]:
        raise ValueError(
            f"allocation is for tokens {tuple(allocation.assign.shape)}, got keys "
            f"{tuple(k.shape)}; allocate these keys"
        )


def check(
    mode: str,
    value: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
) -> None:
    """Refuse unknown words and shapes that do not fit."""
    words = {"mode": (mode, Mode), "value": (value, Value)}
    for name, (word, known) in words.items():
        if word not in get_args(known):
            raise ValueError(f"{name} must be one of {get_args(known)}, got {word!r}")
    alike = {q.ndim, k.ndim, v.ndim} == {4} and k.shape[:3] == v.shape[:3]
    alike = alike and (*q.shape[:2], q.shape[3]) == (*k.shape[:2], k.shape[3])
    if not alike or q.shape[2] % k.shape[2]:
        raise ValueError(
            f"q, k, v must be (B, L, H, D) with H of q a multiple of that of k, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if scale is not None and not torch.compiler.is_compiling() and not isfinite(scale):
        raise ValueError(f"scale must be a finite number, 1 / theta, got {scale}")
