"""Layers that are worked on together: all of a device, as far as its memory allows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import kernels
from .layer import DistinctLayer
from .metric import Metric, Moments, Scale
from .slots import Slots

# Bytes of features at a time, five times as much is needed to make and compare them. Elsewhere half
# as much more is: so many, or half of what is held if that is more, but not beyond the last.
MOST, MOST_ELSEWHERE, MOST_EVER = 2**26, 2**28, 2**30
WIDEST = 128  # numbers of a key, and of a value, that kernels make features of
GRID = 65_535  # heads that a kernel can count


class Group:
    """Some layers, their slots end to end, and the metric of each of their heads.

    As streams there are all streams of the first layer, all of the second, and so on.
    """

    def __init__(
        self,
        layers: Sequence[DistinctLayer],
        numbers: list[int],
        metric: Metric | None,
        horizon: float | None = None,
    ) -> None:
        self.layers, self.numbers = [layers[i] for i in numbers], numbers
        first = self.layers[0]
        self.B, self.H = int(first.keys.shape[0]), int(first.keys.shape[1])
        self.device = first.keys.device
        none = Slots.none(first.keys, first.values)
        self.held = Slots.join([layer.slots or none for layer in self.layers])
        self.metric, self.horizon = metric, horizon

    @property
    def n_heads(self) -> int:
        """Heads of all streams of all layers."""
        return len(self.layers) * self.B * self.H

    def lengths(self) -> Tensor:
        """Slots of each of them, (N,), beside the slots."""
        return self.held.bounds().diff().long()

    def tokens(self) -> Tensor:
        """Tokens in the slots of each of them, (N,)."""
        held = self.held
        none = torch.zeros(self.n_heads, dtype=torch.int64, device=self.device)
        return none.index_add_(0, held.rows(), held.counts.long())

    def scale(self) -> Scale:
        """The metric of each of them."""
        if self.metric is not None:
            return self.metric.scales(self.numbers, self.B, self.device)
        return Moments.scales([m for m in (layer.moments for layer in self.layers) if m])

    def tokens_at(self, scale: Scale, tokens: Slots) -> Tensor:
        """Where as many tokens of each head stand, (N, L, F)."""
        first, L = self.layers[0], len(tokens) // self.n_heads
        assert first.positions is not None
        # Turned back all at once: the positions are those of the streams, whatever layer and head.
        keys = tokens.keys.view(len(self.layers), self.B, self.H, L, -1)
        keys = first.rotary.unrotate(keys, first.positions[:, None, :L]).view(self.n_heads, L, -1)
        places = self.places(tokens.positions.view(-1, L))
        return scale.features(keys, tokens.values.view(self.n_heads, L, -1), places)

    def slots_at(self, scale: Scale) -> Tensor:
        """Where the slots stand, (N, S, F); nowhere in particular where there is none."""
        held = self.held
        keys, values = held.wide(held.keys), held.wide(held.values)
        positions = held.wide(held.positions)
        keys = self.layers[0].rotary.unrotate(keys, positions)
        return scale.features(keys, values, self.places(positions))

    def places(self, positions: Tensor) -> Tensor | None:
        """Positions in units of the horizon, if there is one."""
        return None if self.horizon is None else positions.float() / self.horizon

    def weight(self) -> Tensor:
        """What the slots weigh, (N, S)."""
        held = self.held
        if len(held.weight):
            return held.wide(held.weight)
        return held.there().float()

    def each(self, tensor: Tensor) -> Tensor:
        """A tensor (N, ...) as (layers, B, H, ...)."""
        return tensor.view(len(self.layers), self.B, self.H, *tensor.shape[1:])

    def streams(self, tensor: Tensor) -> Tensor:
        """A tensor (B, ...) of the streams as (N, ...) of their heads."""
        wide = tensor[None, :, None].expand(len(self.layers), self.B, self.H, *(tensor.shape[1:]))
        return wide.reshape(self.n_heads, *tensor.shape[1:])

    def heads(self, each: Sequence[float]) -> Tensor:
        """A number of each stream as (N,) of their heads; the device is not waited for."""
        wide = torch.tensor(each, dtype=torch.float32)[None, :, None].expand(
            len(self.layers), self.B, self.H
        )
        return wide.flatten().to(self.device, non_blocking=True)

    def give(self, slots: Slots) -> None:
        """Let the layers have these slots."""
        for layer, part in zip(self.layers, slots.parts(len(self.layers)), strict=True):
            layer.slots = part

    def move(self, moved: Tensor) -> None:
        """Where a trace is kept: slot s of head n is ``moved`` (N, S) now, or -1 if it is gone."""
        for layer, where in zip(self.layers, self.each(moved), strict=True):
            if layer.owner is not None and where.shape[-1]:
                owner = layer.owner.long()
                found = where.gather(2, owner.clamp(min=0))
                layer.owner = found.masked_fill(owner < 0, -1).to(layer.owner.dtype)


def groups(layers: Sequence[DistinctLayer], columns: int = 0) -> list[list[int]]:
    """Numbers of layers to take together, when each head brings so many new columns."""
    found: list[list[int]] = []
    size, elsewhere = 0, _most_elsewhere(layers)
    for number, layer in enumerate(layers):
        B, H, _, D = layer.keys.shape
        cpu, slots = layer.keys.is_cpu, layer.slots
        held = 0
        if slots is not None:
            # Kernels take heads as long as they are, torch all as long as the longest.
            held = len(slots) if featured(layer) else B * H * int(slots.lengths.max())
        now = (B * H * columns + held) * (D + layer.values.shape[-1]) * 4
        most = MOST if cpu else elsewhere
        device = layer.keys.device
        fits = found and size + now <= most and (len(found[-1]) + 1) * B * H <= GRID
        if fits and layers[found[-1][-1]].keys.device == device:
            found[-1].append(number)
            size += now
        else:
            found.append([number])
            size = now
    return found


def featured(layer: DistinctLayer) -> bool:
    """Whether kernels make the features of a layer: its factor fits, and all of a key turns."""
    D, C = layer.keys.shape[-1], layer.values.shape[-1]
    whole = len(layer.rotary.frequencies) * 2 == D
    return whole and max(D, C) <= WIDEST and kernels.available(layer.keys)


def _most_elsewhere(layers: Sequence[DistinctLayer]) -> int:
    held = sum(
        part.keys.nbytes + part.values.nbytes
        for layer in layers
        for part in (layer, layer.slots)
        if part is not None
    )
    return max(MOST_ELSEWHERE, min(held // 2, MOST_EVER))
