"""Decoding in place: one token at a time, with tensors that stay where they are.

A graph of kernels can be replayed only on the same tensors. So between two absorbings the window
of each layer has room for all its tokens, and the seat of the next one is told by a number on the
device. The newest token sits in the last seat, where attention looks for it, until it has been
read; then it moves to the end of the others.
"""

# B streams, H key-value heads, G query heads of each, R seats of a window, the last one included
# D key size, C value size

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .attention import read
from .importance import received
from .layer import DistinctLayer
from .slots import Slots
from .streams import Outside

if TYPE_CHECKING:
    from .cache import DistinctCache


class Seats:
    """The window of a layer with room, and what is measured beside it."""

    def __init__(self, layer: DistinctLayer, room: int) -> None:
        assert layer.slots is not None
        self.layer, self.slots = layer, layer.slots
        self.slots.bounds()  # made now, so that no graph has to
        self.keys, self.values = _widen(layer.keys, 2, room), _widen(layer.values, 2, room)
        self.got = None if layer.got is None else _widen(layer.got, 2, room)
        self.asked: Tensor | None = None
        self.left = layer.keys, layer.values, len(layer.asked)

    def widen_asked(self, query: Tensor, room: int) -> Tensor:
        """Room for the queries that wait to be measured."""
        if self.asked is None:
            B, Q, _, D = query.shape
            self.asked = query.new_zeros(B, Q, room, D)
            for at, one in enumerate(self.layer.asked):
                self.asked[:, :, at : at + 1] = one
        return self.asked

    def same(self) -> bool:
        """Whether the layer is as the last step left it."""
        layer, (keys, values, waiting) = self.layer, self.left
        # Saving a cache, for one, measures the queries that wait.
        return layer.keys is keys and layer.values is values and len(layer.asked) == waiting

    def show(self, columns: int, outside: Outside) -> None:
        """Let the layer see one token more."""
        layer = self.layer
        layer.keys, layer.values = self.keys[:, :, :columns], self.values[:, :, :columns]
        layer.positions, layer.real = outside
        layer.seen += 1
        if self.got is not None:
            layer.got = self.got[..., :columns]
        if self.asked is not None:
            n = len(layer.asked)
            layer.asked.append(self.asked[:, :, n : n + 1])
        self.left = layer.keys, layer.values, len(layer.asked)


class Steps:
    """Steps of one token for each stream, from one absorbing to the next."""

    def __init__(self, cache: DistinctCache, model: Any, room: int) -> None:  # noqa: ANN401
        first = cache.layers[0]
        assert first.positions is not None
        assert first.real is not None
        self.cache, self.model, self.room = cache, model, room
        B, device = len(first.keys), first.keys.device
        self.layers = [Seats(layer, room + 1) for layer in cache.layers]
        self.places = _widen(first.positions, 1, room + 1)
        self.real = _widen(first.real, 1, room + 1)
        self.real[:, -1] = True
        self.ids = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.seen = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.seat = torch.tensor([first.outside], device=device)
        self.turn = torch.tensor([len(first.asked)], device=device)
        self.ran = False

    @property
    def left(self) -> int:
        """Tokens for which there is room."""
        return self.room - self.cache.layers[0].outside

    def same(self) -> bool:
        """Whether nobody else has changed the cache since the last step."""
        # Tensors made in inference mode can be written to in no other.
        mode = torch.is_inference_mode_enabled() or not self.ids.is_inference()
        return bool(self.layers) and mode and all(seats.same() for seats in self.layers)

    def tell(self, ids: Tensor, positions: Tensor) -> None:
        """The tokens of the next step, (B, 1), and where they stand, (B, 1) on the CPU."""
        streams = self.cache.streams
        assert streams is not None
        self.ids.copy_(ids)
        self.positions.copy_(positions, non_blocking=True)
        self.seen.copy_(streams.seen + 1 - streams.pads[:, None], non_blocking=True)

    def run(self) -> Any:  # noqa: ANN401
        """What the device does in a step, and gives; leaves all but tensors as it was."""
        self.cache.step = self
        try:
            out = self.model(
                input_ids=self.ids,
                position_ids=self.positions,
                past_key_values=self.cache,
                use_cache=True,
            )
        finally:
            self.cache.step = None
        self.places.index_copy_(1, self.seat, self.positions.to(self.places.dtype))
        self.real.index_fill_(1, self.seat, True)
        self.seat += 1
        self.turn += 1
        self.ran = True
        return out

    def attend(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """Attention of one layer, and its new token into the window."""
        seats, care = self.layers[index], self.cache.plan.care
        seats.keys[:, :, -1:], seats.values[:, :, -1:] = key, value
        slots: Slots = seats.slots
        out = read(query, seats.keys, seats.values, self.real, slots, scaling, care.cap)
        seats.keys.index_copy_(2, self.seat, key)
        seats.values.index_copy_(2, self.seat, value)
        if seats.got is not None:
            keys, seen = seats.keys, self.seen
            seats.got += received(query, keys, self.real, seen, slots, scaling, care.cap)
            seats.got.index_copy_(2, self.seat, seats.got[..., -1:].clone())
            seats.got[..., -1] = 0.0
        if self.cache.metric is None:
            room = self.left + len(seats.layer.asked)
            seats.widen_asked(query, room).index_copy_(2, self.turn, query)
            seats.layer.scaling = scaling
        return out.transpose(1, 2).contiguous()

    def close(self, positions: Tensor) -> None:
        """After a step: the cache has one token more, and absorbs if there are enough."""
        cache = self.cache
        assert cache.streams is not None
        columns = cache.layers[0].outside + 1
        cache.window = Outside(self.places[:, :columns], self.real[:, :columns])
        for seats in self.layers:
            seats.show(columns, cache.window)
        cache.streams.last = positions[:, 0].long().clone()
        cache.streams.seen += 1
        if cache.due(1):
            self.layers.clear()  # so that old slots go as new ones come
        cache.finish(1)


def _widen(tensor: Tensor, dim: int, room: int) -> Tensor:
    """The same with zeros after it."""
    shape = list(tensor.shape)
    shape[dim] = room
    wide = tensor.new_zeros(shape)
    wide.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return wide
