"""How tokens become slots, and slots fewer slots."""

# B streams, H key-value heads, L tokens, S slots, D key size, C value size

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from .allocation import Allocation, allocate
from .care import Care
from .importance import reach, weights
from .layer import DistinctLayer
from .metric import Scale
from .plan import Plan
from .slots import Padded, Slots


def absorb(
    layer: DistinctLayer,
    columns: int,
    plan: Plan,
    thresholds: Sequence[float | None],
    scale: Callable[[int], Scale],
) -> Tensor:
    """Turn the oldest ``columns`` of the window into slots; how many heads opened one, (B, L).

    With no threshold yet, each token opens a slot of its own.
    """
    sinks, decay = plan.sinks, plan.surprise.decay if plan.surprise else 1.0
    old = layer.slots or Slots.none(layer.keys, layer.values)
    opened = torch.zeros(len(layer.keys), columns, device=layer.keys.device)
    streams, owners = [], []
    for stream, threshold in enumerate(thresholds):
        tokens, real = _tokens(layer, stream, columns)
        slots = old.padded(stream)
        held = int(slots.lengths.min())
        # Sinks are the first tokens of a stream, so before they are full there is nothing else.
        n_sinks = min(max(sinks - held, 0), tokens.keys.shape[1])
        slots, first = _open(slots, tokens.part(slice(n_sinks)), decay)
        rest = _weigh(layer, stream, tokens.part(slice(n_sinks, None)), real[n_sinks:], plan.care)
        if threshold is None:
            slots, choice = _open(slots, rest, decay)
        else:
            choice = _choose(layer, slots, rest, sinks, threshold, scale(stream))
            slots = slots.take(rest, choice, decay)
        opened[stream, real] = torch.cat((first.opened, choice.opened), 1).float().sum(0)
        streams.append(slots.flat())
        owners.append((real, torch.cat((first.owner, choice.owner), 1)))
    layer.slots = _lean(Slots.join(streams), layer)
    _trace(layer, owners, columns)
    _shorten(layer, columns)
    return opened


def regroup(
    layer: DistinctLayer, stream: int, sinks: int, threshold: float, scale: Scale
) -> Allocation:
    """How the slots of a stream merge among themselves, at a larger threshold than made them."""
    slots = _slots(layer).padded(stream)
    fixed, rest = slots.part(slice(sinks)), slots.part(slice(sinks, None))
    return _choose(layer, fixed, rest, sinks, threshold, scale)


def coarsen(layer: DistinctLayer, stream: int, sinks: int, choice: Allocation) -> None:
    """Merge them so."""
    slots = _slots(layer).padded(stream)
    fixed = slots.part(slice(sinks))
    merged = fixed.take(slots.part(slice(sinks, None)), choice)
    H = len(choice.owner)
    stay = torch.arange(fixed.keys.shape[1], device=choice.owner.device).expand(H, -1)
    _replace(layer, stream, merged.flat(), torch.cat((stay, choice.owner), 1))


def evict(layer: DistinctLayer, stream: int, keep: Tensor) -> None:
    """Drop the slots of a stream that are not to ``keep``, (H, S)."""
    slots = _slots(layer).padded(stream)
    owner = torch.where(keep & (slots.counts > 0), keep.cumsum(1) - 1, -1)
    _replace(layer, stream, slots.flat(keep), owner)


def _tokens(layer: DistinctLayer, stream: int, columns: int) -> tuple[Padded, Tensor]:
    """The real tokens among the oldest of a stream, as slots of one token each."""
    assert layer.positions is not None
    assert layer.real is not None
    real = layer.real[stream, :columns]
    real = torch.arange(columns, device=real.device)[real]
    keys, values = layer.keys[stream][:, real], layer.values[stream][:, real]
    H, L = keys.shape[:2]
    ones = torch.ones(H, L, dtype=torch.int32, device=keys.device)
    positions = layer.positions[stream, real].expand(H, L)
    return Padded(keys, values, ones, positions, ones.float(), ones.float()), real


def _weigh(
    layer: DistinctLayer, stream: int, tokens: Padded, columns: Tensor, care: Care
) -> Padded:
    """The tokens that stand in some columns of the window, with the weight of their attention."""
    if layer.got is None or layer.real is None:
        return tokens
    asked = layer.real[stream].flip(0).cumsum(0).flip(0)[columns]
    return replace(tokens, weight=weights(layer.got[stream][:, columns], asked, care))


def _open(slots: Padded, tokens: Padded, decay: float) -> tuple[Padded, Allocation]:
    """A slot for each token."""
    L = tokens.keys.shape[1]
    new = slots.lengths[:, None] + torch.arange(L, device=tokens.keys.device)
    choice = Allocation(new, torch.ones_like(new, dtype=torch.bool), slots.lengths + L)
    return slots.take(tokens, choice, decay), choice


def _choose(
    layer: DistinctLayer, slots: Padded, tokens: Padded, sinks: int, threshold: float, scale: Scale
) -> Allocation:
    there, here = layer.features(slots, scale), layer.features(tokens, scale)
    if not bool(here.isfinite().all()):
        raise FloatingPointError(
            "the model gave keys or values that are not finite; load it in a type of wider range, "
            "bfloat16 or float32, and reset() the cache"
        )
    joinable = (slots.counts > 0) & slots.weight.isfinite()
    joinable[:, :sinks] = False
    near = reach(threshold, tokens.weight)
    return allocate(here, tokens.counts > 0, there, joinable, slots.lengths, near)


def _slots(layer: DistinctLayer) -> Slots:
    assert layer.slots is not None
    return layer.slots


def _lean(slots: Slots, layer: DistinctLayer) -> Slots:
    """Without usage where nothing is ever evicted for want of it, nor weights that are all 1."""
    none = slots.usage.new_zeros(0)
    slots = slots if layer.usage else replace(slots, usage=none)
    return slots if layer.got is not None else replace(slots, weight=none)


def _replace(layer: DistinctLayer, stream: int, slots: Slots, moved: Tensor) -> None:
    """Put new slots in place of a stream's; old slot i of head h is ``moved[h, i]`` now."""
    old = _slots(layer)
    parts = [old.stream(i) for i in range(len(old.lengths))]
    parts[stream] = _lean(slots, layer)
    layer.slots = Slots.join(parts)
    if layer.owner is not None:
        owner = layer.owner[stream]
        gone = owner < 0
        new = moved.gather(1, owner.clamp(min=0).long()).masked_fill(gone, -1)
        layer.owner = layer.owner.index_copy(
            0, torch.tensor([stream], device=owner.device), new[None].to(owner.dtype)
        )


def _trace(layer: DistinctLayer, owners: list[tuple[Tensor, Tensor]], columns: int) -> None:
    if not layer.trace:
        return
    B, H = layer.keys.shape[:2]
    new = torch.full((B, H, columns), -1, dtype=torch.int32, device=layer.keys.device)
    for stream, (real, owner) in enumerate(owners):
        new[stream][:, real] = owner.to(torch.int32)
    layer.owner = new if layer.owner is None else torch.cat((layer.owner, new), 2)


def _shorten(layer: DistinctLayer, columns: int) -> None:
    """Let go of the oldest columns of the window; a clone, so that their memory goes too."""
    assert layer.positions is not None
    assert layer.real is not None
    layer.keys = layer.keys[:, :, columns:].clone()
    layer.values = layer.values[:, :, columns:].clone()
    layer.positions = layer.positions[:, columns:].clone()
    layer.real = layer.real[:, columns:].clone()
    if layer.got is not None:
        layer.got = layer.got[..., columns:].clone()
