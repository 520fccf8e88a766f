"""Old tokens of the window into slots, and slots into fewer: many layers and heads at a time."""

# N layers of a group, B sequences, H key-value heads, P = N B H heads, L tokens and W slots of each
# S slots of all heads, D key size, C value size, F feature size

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .. import kernels
from ..kernels import placed
from ..kernels.limits import OFF, TIE
from ..nn.leaders import leaders, product_type
from .attention import MIN_SHARE
from .config import CacheConfig
from .layer import DistinctLayer
from .metric import Metric, Moments, Scale
from .slots import SlotBuffer, Slots, Source, absorb, pool

if TYPE_CHECKING:
    from ..kernels.features import Table

# Bytes of features at a time on the CPU, where five times as much is needed to compare them. On
# CUDA half as much more is: so many, or half of what is held if that is more, up to the last.
MAX_BYTES, MAX_BYTES_CUDA, MAX_BYTES_EVER = 2**26, 2**28, 2**30
GRID = 65_535  # heads that a kernel's grid can count
# Tokens that are decided together: few on a CPU, where work counts, more where launches count.
CHUNK, CHUNK_CUDA = 128, 512
NOT_FINITE = 2  # a key or value is not finite; it may be padding
EVERYTHING = 3e38  # a threshold at which all merges, for sequences that are not searched


class Allocation(NamedTuple):
    """For each token its slot and whether it opened it; slots of each head afterwards."""

    owner: Tensor  # (P, L), -1 for a token outside the mask
    opened: Tensor  # (P, L)
    lengths: Tensor  # (P,)


Assign = Callable[[Tensor], Allocation]


def allocate(
    tokens: Tensor,
    mask: Tensor,
    slots: Tensor,
    joinable: Tensor,
    lengths: Tensor,
    radius: float | Tensor,
) -> Allocation:
    """The paper's rule: assign (P, L, F) tokens, in order, to (P, W, F) slots or to new ones.

    A token opens a slot if its squared distance from every slot is greater than its ``radius``, one
    for all or (P, L); below 0 it always opens one, and nothing joins it. Token by token this is the
    leader algorithm; for a chunk, the lexicographically first maximal independent set of the graph
    of near pairs (`distinctkv.nn.leaders`). Head p has ``lengths[p]`` slots, of which those not
    ``joinable`` (P, W) stay as they are. A distance that exceeds the radius by no more than
    rounding (`TIE`) equals it, so that the result does not depend on the device or on chunks. If F
    is odd the last feature is a position: it may be large, and is not part of the product.

    >>> at = torch.tensor([[[0.0], [9.0], [0.5], [9.5], [5.0]]])
    >>> none, empty = torch.zeros(1, 0, 1), torch.zeros(1).long()
    >>> allocate(at, torch.ones(1, 5).bool(), none, none[..., 0].bool(), empty, 1.0).owner
    tensor([[0, 1, 0, 1, 2]])
    """
    near = torch.as_tensor(radius, dtype=torch.float32, device=tokens.device)
    found = assigner(tokens, mask, slots, joinable, lengths, times=1)(near)
    return Allocation(found.owner.long(), found.opened, found.lengths.long())


def assigner(
    tokens: Tensor,
    mask: Tensor,
    slots: Tensor,
    joinable: Tensor,
    lengths: Tensor,
    times: int | None = None,
) -> Assign:
    """`allocate` for one radius after another, ``times`` or more: shared work is done once."""
    if kernels.takes("allocate", tokens):
        from ..kernels.features import Table

        with torch.cuda.device(tokens.device):
            table = Table.of(tokens, mask, slots, joinable, lengths)
        shape, device = tokens.shape[:2], tokens.device  # not the tokens: the table replaces them
        return lambda radius: _by_table(table, radius.expand(shape), device, times)
    # Distances do not change by a common shift, but float32 does: keys share a large mean.
    centre = (tokens * mask[..., None]).sum(1, keepdim=True)
    centre = centre / mask.sum(1).clamp(min=1)[:, None, None]
    centre[..., placed(tokens.shape[2]) :] = 0.0
    dtype = product_type(tokens)
    tokens, slots = (tokens - centre).to(dtype), (slots - centre).to(dtype)
    known = (tokens, mask, slots, joinable, lengths)
    return lambda radius: _allocate(*known, radius.to(tokens).expand(tokens.shape[:2]))


def _by_table(table: Table, radius: Tensor, device: torch.device, times: int | None) -> Allocation:
    with torch.cuda.device(device):
        return Allocation(*table.route(radius.float(), last=times == 1))


def _allocate(
    tokens: Tensor,
    mask: Tensor,
    slots: Tensor,
    joinable: Tensor,
    lengths: Tensor,
    radius: Tensor,
) -> Allocation:
    """`allocate` in torch, for centred rows."""
    P, L, F = tokens.shape
    D = placed(F)
    sizes = slots[..., :D].square().sum(-1).masked_fill(~joinable, inf)
    owner = torch.full((P, L), -1, device=tokens.device)
    opened = torch.zeros((P, L), dtype=torch.bool, device=tokens.device)
    step = CHUNK if tokens.is_cpu else CHUNK_CUDA
    for start in range(0, L, step):
        part = slice(start, start + step)
        here, real = tokens[:, part], mask[:, part]
        own = here[..., :D].square().sum(-1)
        near = radius[:, part]
        alone = near < 0
        # Scores are squared distances less the token's own size.
        bar = (near + _tolerance(near, own, here[..., D] if D < F else None) - own)[..., None]
        bar = bar.clamp(max=torch.finfo(bar.dtype).max)
        old, slot = _nearest(_scores(here, slots, sizes))
        inside = _scores(here, here, own.masked_fill(alone, inf))
        candidate = real & ((old > bar[..., 0]) | alone)
        lead = leaders(candidate, ((inside <= bar) & ~alone[..., None]).tril(-1))
        new = lengths[:, None] + lead.cumsum(1) - 1
        earlier = torch.ones_like(inside[0], dtype=torch.bool).tril(-1) & lead[:, None]
        close, leader = _nearest(inside.masked_fill_(~earlier, inf))
        joined = torch.where(close < old, new.gather(1, leader), slot)
        owner[:, part] = torch.where(real, torch.where(lead, new, joined), -1)
        opened[:, part] = lead
        lengths = lengths + lead.sum(1)
        if start + step < L:
            slots, sizes = _append(slots, sizes, here, own.masked_fill(alone, inf), lead, new)
    return Allocation(owner, opened, lengths)


def _tolerance(radius: Tensor, own: Tensor, places: Tensor | None) -> Tensor:
    """How far above the radius rounding puts a distance, (P, L).

    Less than the step from one position to the next, for 4 million positions.
    """
    wide = TIE * (radius + own)
    if places is None:
        return wide
    return wide + OFF * places.abs() * radius.clamp(0.0, torch.finfo(radius.dtype).max).sqrt()


def _scores(tokens: Tensor, slots: Tensor, sizes: Tensor) -> Tensor:
    """Squared distances less the token's own size, (P, L, W); sizes are without the place."""
    D = placed(tokens.shape[2])
    found = torch.baddbmm(sizes[:, None], tokens[..., :D], slots[..., :D].mT, alpha=-2)
    for column in range(D, tokens.shape[2]):
        gap = tokens[..., column, None] - slots[:, None, :, column]
        found.addcmul_(gap, gap)
    return found


def _nearest(far: Tensor) -> tuple[Tensor, Tensor]:
    if far.shape[-1] == 0:
        shape, device = far.shape[:-1], far.device
        return torch.full(shape, inf, device=device), torch.full(shape, -1, device=device)
    found = far.min(-1)
    return found.values, found.indices


def _append(
    slots: Tensor, sizes: Tensor, here: Tensor, own: Tensor, lead: Tensor, new: Tensor
) -> tuple[Tensor, Tensor]:
    grow = int(new.max()) + 1 - slots.shape[1]
    if grow > 0:
        P, _, F = slots.shape
        slots = torch.cat((slots, slots.new_zeros(P, grow, F)), 1)
        sizes = torch.cat((sizes, sizes.new_full((P, grow), inf)), 1)
    head, token = lead.nonzero(as_tuple=True)
    slots[head, new[head, token]] = here[head, token]
    sizes[head, new[head, token]] = own[head, token]
    return slots, sizes


class LayerGroup:
    """Some layers, or some heads of each, their slots end to end, and the metric of each head."""

    def __init__(
        self,
        layers: Sequence[DistinctLayer],
        numbers: list[int],
        metric: Metric | None,
        horizon: float | None = None,
        *,
        in_place: bool = False,
        heads: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.layers, self.numbers, self.heads = [layers[i] for i in numbers], numbers, heads
        first = self.layers[0]
        none = Slots.none(first.keys, first.values)
        parts = [layer.slots or none for layer in self.layers]
        if heads is not None:
            parts = [part.of_heads(some) for part, some in zip(parts, heads, strict=True)]
        self.B, self.H = parts[0].lengths.shape
        self.device = first.keys.device
        held = Slots.join(parts)
        self.held = held if in_place else held.compact()
        self.metric, self.horizon = metric, horizon
        self._scale: Scale | None = None

    @property
    def n_heads(self) -> int:
        """Heads of all sequences of all layers."""
        return len(self.layers) * self.B * self.H

    def lengths(self) -> Tensor:
        """Slots of each head, (P,), on the device."""
        return self.held.sizes().long()

    def scale(self) -> Scale:
        """The metric of each head."""
        if self._scale is None:
            self._scale = (
                self._measured()
                if self.metric is None
                else self.metric.scales(self.numbers, self.B, self.device, self.heads)
            )
        return self._scale

    def _measured(self) -> Scale:
        moments = [layer.moments for layer in self.layers if layer.moments]
        if self.heads is not None:
            pairs = zip(moments, self.heads, strict=True)
            moments = [one.of_heads(some) for one, some in pairs]
        return Moments.scales(moments)

    def token_features(self, scale: Scale, tokens: Slots) -> Tensor:
        """Features of equally many tokens of each head, (P, L, F)."""
        first, L = self.layers[0], len(tokens) // self.n_heads
        assert first.positions is not None
        # The positions are those of the sequences: one set of cosines for all layers and heads.
        keys = tokens.keys.view(len(self.layers), self.B, self.H, L, -1)
        keys = first.rotary.unrotate(keys, first.positions[:, None, :L]).view(self.n_heads, L, -1)
        places = self._places(tokens.positions.view(-1, L))
        return scale.features(keys, tokens.values.view(self.n_heads, L, -1), places)

    def slot_features(self, scale: Scale) -> Tensor:
        """Features of the slots, (P, W, F)."""
        held = self.held
        keys, values = held.padded(held.keys), held.padded(held.values)
        positions = held.padded(held.positions)
        keys = self.layers[0].rotary.unrotate(keys, positions)
        return scale.features(keys, values, self._places(positions))

    def _places(self, positions: Tensor) -> Tensor | None:
        return None if self.horizon is None else positions.float() / self.horizon

    def weight(self) -> Tensor:
        """Weights of the slots, (P, W); 1 if importance is off."""
        held = self.held
        return held.padded(held.weight) if len(held.weight) else held.mask().float()

    def each(self, tensor: Tensor) -> Tensor:
        """A tensor (P, ...) as (N, B, H, ...)."""
        return tensor.view(len(self.layers), self.B, self.H, *tensor.shape[1:])

    def per_head(self, tensor: Tensor) -> Tensor:
        """A tensor (B, ...) of the sequences as (P, ...) of their heads."""
        wide = tensor[None, :, None].expand(len(self.layers), self.B, self.H, *tensor.shape[1:])
        return wide.reshape(self.n_heads, *tensor.shape[1:])

    def values(self, numbers: Sequence[float]) -> Tensor:
        """A number of each sequence as (P,), without synchronising."""
        wide = torch.tensor(numbers, dtype=torch.float32)[None, :, None]
        wide = wide.expand(len(self.layers), self.B, self.H)
        return wide.flatten().to(self.device, non_blocking=True)

    def set_slots(self, slots: Slots) -> None:
        """Give the layers these slots."""
        for layer, part in zip(self.layers, slots.parts(len(self.layers)), strict=True):
            layer.set_slots(part)


def groups(layers: Sequence[DistinctLayer], columns: int = 0) -> list[list[int]]:
    """Numbers of layers to take together, if each head brings so many new columns."""
    found: list[list[int]] = []
    size = 0
    held = sum(
        layer.keys.nbytes + layer.values.nbytes + (0 if layer.slots is None else layer.slots.nbytes)
        for layer in layers
    )
    most_cuda = max(MAX_BYTES_CUDA, min(held // 2, MAX_BYTES_EVER))
    for number, layer in enumerate(layers):
        B, H, _, D = layer.keys.shape
        slots, n_slots = layer.slots, 0
        if slots is not None:
            # Kernels take ragged heads; torch pads them to the longest.
            n_slots = len(slots) if kernel_takes(layer) else B * H * int(slots.lengths.max())
        now = (B * H * columns + n_slots) * (D + layer.values.shape[-1]) * 4
        most = MAX_BYTES if layer.keys.is_cpu else most_cuda
        fits = found and size + now <= most and (len(found[-1]) + 1) * B * H <= GRID
        if fits and layers[found[-1][-1]].keys.device == layer.keys.device:
            found[-1].append(number)
            size += now
        else:
            found.append([number])
            size = now
    return found


def kernel_takes(layer: DistinctLayer) -> bool:
    """Whether the kernel makes the features of a layer: small enough, and all of a key rotated."""
    whole = len(layer.rotary.frequencies) * 2 == layer.keys.shape[-1]
    return whole and kernels.takes("features", layer.keys, layer.values)


def compare(
    group: LayerGroup,
    tokens: Slots,
    mask: Tensor,
    joinable: Tensor | None,
    times: int | None = None,
) -> tuple[Assign, Tensor]:
    """`assigner` of tokens (of slots, if they are the group's), and whether one is not finite, ().

    ``joinable`` (P, W) says which slots of the group may be joined; None: there are none.
    """
    scale, rotary = group.scale(), group.layers[0].rotary
    if kernel_takes(group.layers[0]):
        from ..kernels import features

        rows = features.Rows(tokens, mask)
        held = None if joinable is None else features.Rows(group.held, joinable)
        with torch.cuda.device(mask.device):
            table, wrong = features.tabulate(rows, held, scale, rotary, group.horizon)
        return lambda radius: _by_table(table, radius, mask.device, times), wrong
    again = tokens is group.held
    here = group.slot_features(scale) if again else group.token_features(scale, tokens)
    here.masked_fill_(~mask[..., None], 0.0)  # padding may hold anything
    wrong = ~torch.linalg.vector_norm(here, inf).isfinite()
    if joinable is None:
        slots, joinable = here[:, :0], mask[:, :0]
        lengths = torch.zeros(len(mask), dtype=torch.int64, device=mask.device)
    else:
        slots, lengths = group.slot_features(scale), group.lengths()
    return assigner(here, mask, slots, joinable, lengths, times), wrong


def merge_window(
    layers: Sequence[DistinctLayer],
    columns: int,
    config: CacheConfig,
    thresholds: Sequence[float | None],
    metric: Metric | None,
) -> None:
    """Merge the oldest ``columns`` of each window into slots, by a threshold for each sequence.

    Without any threshold, each token opens a slot.
    """
    for numbers in groups(layers, columns):
        group = LayerGroup(layers, numbers, metric, config.merge.horizon)
        _merge_group(group, columns, config, thresholds)


def merge_in_place(
    layers: Sequence[DistinctLayer],
    columns: int,
    config: CacheConfig,
    thresholds: Sequence[float | None],
    metric: Metric | None,
    buffer: SlotBuffer,
) -> Tensor:
    """The same into a buffer with room for it, by at least one threshold; windows stay.

    Does not synchronise. The slots of each head afterwards, and whether a token or the metric is
    not finite, (P + 1,); the buffer is told the former by ``count``, which synchronises.
    """
    found, wrong = [], []
    for numbers in groups(layers, columns):
        group = LayerGroup(layers, numbers, metric, config.merge.horizon, in_place=True)
        tokens, choice, odd = _allocate_window(group, columns, config, thresholds)
        absorb(tokens, choice.owner, choice.opened, group.held)
        _trace(group, choice)
        found.append(choice.lengths.long())
        wrong.append(odd)
    buffer.grow(torch.cat(found))
    return torch.cat((*found, torch.stack(wrong).any()[None].long()))


def _merge_group(
    group: LayerGroup, columns: int, config: CacheConfig, thresholds: Sequence[float | None]
) -> None:
    tokens, choice, wrong = _allocate_window(group, columns, config, thresholds)
    _set_slots(group, tokens, choice, wrong)
    _trace(group, choice)
    _shorten(group, columns)


def _allocate_window(
    group: LayerGroup, columns: int, config: CacheConfig, thresholds: Sequence[float | None]
) -> tuple[Slots, Allocation, Tensor]:
    """The oldest tokens, the slot of each, and whether something is not finite."""
    mask = group.layers[0].mask
    assert mask is not None
    real = group.per_head(mask[:, :columns])
    order = group.per_head(mask[:, :columns].cumsum(1) - 1)  # of a token among those that merge
    sink = real & (order + group.lengths()[:, None] < config.sinks)
    weight = _weight(group, config.merge.importance, real & ~sink)
    tokens = _tokens(group, columns, config, weight)
    if all(threshold is None for threshold in thresholds):
        lengths = group.lengths()
        owner = torch.where(real, lengths[:, None] + order, -1)
        choice = Allocation(owner, real, lengths + real.sum(1))
        return tokens, choice, _lost(group).long() + NOT_FINITE * _odd(tokens)
    # Below 0, for a sequence without a threshold, each token opens a slot.
    at = group.values([-1.0 if at is None else at for at in thresholds])[:, None]
    radius = at.expand(real.shape) if weight is None else at / weight
    joinable = None
    if len(group.held):
        joinable = group.held.mask()
        joinable[:, : config.sinks] = False
    assign, wrong = compare(group, tokens, real, joinable, times=1)
    return tokens, assign(radius.masked_fill(sink, -1.0)), wrong


def _trace(group: LayerGroup, choice: Allocation) -> None:
    """Note the slot of each token, if the cache keeps a trace."""
    if group.layers[0].trace:
        for layer, owner in zip(group.layers, group.each(choice.owner.int()), strict=True):
            layer.append_trace(owner)


def _weight(group: LayerGroup, importance: float, rest: Tensor) -> Tensor | None:
    """Weights of the tokens, (P, L): mean attention received to a power; 1 outside the ``rest``."""
    received = [layer.received for layer in group.layers if layer.received is not None]
    if not received or not importance:
        return None
    L = rest.shape[1]
    n_queries = group.layers[0].n_queries()[:, None, :L].clamp(min=1)
    mean = (torch.stack(received)[..., :L] / n_queries).clamp(min=MIN_SHARE)
    return torch.where(group.each(rest), mean**importance, 1.0).flatten(0, 2)


def _tokens(group: LayerGroup, columns: int, config: CacheConfig, weight: Tensor | None) -> Slots:
    """The oldest tokens, padding too, as slots of one."""
    layers, P, L = group.layers, group.n_heads, columns
    first = layers[0]
    assert first.positions is not None
    keys = torch.stack([layer.keys[:, :, :L] for layer in layers]).view(P * L, -1)
    values = torch.stack([layer.values[:, :, :L] for layer in layers]).view(P * L, -1)
    ones = torch.ones(P * L, dtype=torch.int32, device=group.device)
    positions = group.per_head(first.positions[:, :L]).flatten()
    none = ones.new_zeros(0, dtype=torch.float32)
    received = none
    if config.merge.attention_mean:
        # The sum over the queries that saw a token, not their mean, which lost more.
        each = [layer.received[..., :L] for layer in layers if layer.received is not None]
        received = torch.stack(each).flatten().clamp(min=MIN_SHARE)
    lengths = torch.full((len(layers) * group.B, group.H), L)
    heavy = none if weight is None else weight.flatten()
    made = Slots(keys, values, ones, positions, heavy, received, lengths)
    begins = torch.arange(0, P * L, L, dtype=torch.int32, device=group.device)
    made._spans.append(torch.stack((begins, begins + L)))
    return made


def _odd(tokens: Slots) -> Tensor:
    """Whether a key or value is not finite, (); it may be padding."""
    sizes = [torch.linalg.vector_norm(rows, inf) for rows in (tokens.keys, tokens.values)]
    odd: Tensor = ~torch.stack(sizes).isfinite().all()
    return odd


def _wrong(tokens: Slots, real: Tensor) -> bool:
    """Whether a key or value of a token is not finite."""
    P, L = real.shape
    sizes = [
        torch.linalg.vector_norm(rows.view(P, L, -1), inf, dim=-1)
        for rows in (tokens.keys, tokens.values)
    ]
    return bool((real & ~(sizes[0].isfinite() & sizes[1].isfinite())).any())


def _lost(group: LayerGroup) -> Tensor:
    """Whether the metric by which slots will merge is not finite, ()."""
    seen = [] if group.metric else [layer.moments for layer in group.layers]
    sums = [one.queries for one in seen if one is not None]
    if not sums:
        return torch.zeros((), dtype=torch.bool, device=group.device)
    lost: Tensor = ~torch.linalg.vector_norm(torch.stack(sums), inf).isfinite()
    return lost


def _set_slots(group: LayerGroup, tokens: Slots, choice: Allocation, wrong: Tensor) -> None:
    """Give the layers the slots of an allocation."""
    # The only synchronisation of a merge.
    lengths = torch.cat((choice.lengths, wrong.long()[None])).cpu()
    doubt = int(lengths[-1])
    if doubt and (doubt != NOT_FINITE or _wrong(tokens, choice.owner >= 0)):
        raise not_finite()
    held, P = group.held, group.n_heads
    if not len(held) and int(lengths[:P].sum()) == len(tokens):  # each token is a slot
        group.set_slots(replace(tokens, positions=tokens.positions.clone()))
        return
    starts = choice.lengths.cumsum(0) - choice.lengths
    to = torch.where(choice.owner >= 0, starts[:, None] + choice.owner, -1).flatten()
    sources = [Source(tokens, to, choice.opened.flatten())]
    if len(held):
        sources.append(Source(held, starts[held.heads()] + held.indices(), None))
    group.set_slots(pool(sources, lengths[:P].clone().view(held.lengths.shape)))


def not_finite() -> FloatingPointError:
    """What to raise if a key, a value or a metric is not finite."""
    return FloatingPointError(
        "the model gave keys or values that are not finite; load it in bfloat16 or float32, and "
        "reset() the cache"
    )


def _shorten(group: LayerGroup, columns: int) -> None:
    """Drop the oldest columns of the windows; copies, so that their memory is freed."""
    layers = group.layers
    first = layers[0]
    assert first.positions is not None
    assert first.mask is not None
    keys = torch.stack([layer.keys[:, :, columns:] for layer in layers])
    values = torch.stack([layer.values[:, :, columns:] for layer in layers])
    positions, mask = first.positions[:, columns:].clone(), first.mask[:, columns:].clone()
    received = [layer.received[..., columns:] for layer in layers if layer.received is not None]
    rest = torch.stack(received) if received else [None] * len(layers)
    for layer, key, value, part in zip(layers, keys, values, rest, strict=True):
        layer.set_window(key, value, positions, mask, part)


class Coarsening:
    """How the slots of some layers merge among themselves at one threshold after another."""

    def __init__(self, group: LayerGroup, sinks: int, *, alone: bool) -> None:
        self.group = group
        self.mask = group.held.mask()
        # A threshold is divided by this; below 0, for sinks, a slot never merges.
        self.weight = torch.where(self.mask, group.weight(), -1.0)
        self.weight[:, :sinks] = -1.0
        self.alone = alone  # the features of one group may stay in memory
        self.prepared: Assign | None = None
        self.choices: list[Allocation] = []

    def count(self, thresholds: Mapping[int, float]) -> Tensor:
        """Slots that would be left of each sequence, (B,), where it has a threshold."""
        group = self.group
        at = group.values([thresholds.get(b, EVERYTHING) for b in range(group.B)])[:, None]
        choice = self._assign(at)(at / self.weight)
        self.choices.append(choice)
        return group.each(choice.lengths).sum((0, 2))

    def _assign(self, at: Tensor) -> Assign:
        if self.alone:
            if self.prepared is None:
                self.prepared, _ = compare(self.group, self.group.held, self.mask, None)
            return self.prepared
        asked = self.mask & (at < EVERYTHING)
        return compare(self.group, self.group.held, asked, None, times=1)[0]

    def apply(self, counts: Mapping[int, int]) -> None:
        """Merge each sequence as at one of the calls of `count`; others stay as they are."""
        group, held = self.group, self.group.held
        W = self.mask.shape[1]
        stay = torch.arange(W, device=group.device).expand_as(self.mask)
        owner, opened = torch.where(self.mask, stay, -1), self.mask
        which = group.values([counts.get(b, -1) for b in range(group.B)])
        lengths = group.lengths()
        for number in set(counts.values()):
            mine, choice = which == number, self.choices[number]
            owner = torch.where(mine[:, None], choice.owner, owner)
            opened = torch.where(mine[:, None], choice.opened, opened)
            lengths = torch.where(mine, choice.lengths, lengths)
        starts = lengths.cumsum(0) - lengths
        # By numbers: a mask would synchronise.
        rows = held.heads() * W + held.indices()
        to, opens = (starts[:, None] + owner).flatten()[rows], opened.flatten()[rows]
        new = lengths.cpu().view_as(held.lengths)
        group.set_slots(pool([Source(held, to, opens)], new))
        for layer, moved in zip(group.layers, group.each(owner), strict=True):
            layer.remap_trace(moved)
