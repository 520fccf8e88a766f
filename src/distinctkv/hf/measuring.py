"""Second moments of the queries that wait, of many layers at once.

Launching a few small products for each layer of a pass costs more than the products do. So queries
wait until the tokens are absorbed, as long as they are few.
"""

# N layers, B streams, H key-value heads, G query heads of each, L tokens, D key size

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import kernels
from .metric import Moments, products
from .rotary import Rotary

if TYPE_CHECKING:
    from .layer import DistinctLayer

# Bytes of queries in float32 that are measured at a time, and of queries that wait.
MOST, MOST_ELSEWHERE = 2**23, 2**30
WAIT, WAIT_ELSEWHERE = 2**22, 2**29


def may_wait(queries: Sequence[Tensor], n_layers: int) -> bool:
    """Whether all layers may hold as many queries as wait in one, of this and earlier passes."""
    waiting = n_layers * sum(query.nbytes for query in queries)
    return waiting <= (WAIT if queries[0].is_cpu else WAIT_ELSEWHERE)


def measure(layers: Sequence[DistinctLayer]) -> None:
    """Add the queries that wait, and the values beside them, to the moments of their layers."""
    for part in _batches([layer for layer in layers if layer.asked]):
        _measure(part)


def _batches(layers: Sequence[DistinctLayer]) -> Iterator[list[DistinctLayer]]:
    """Layers of one device, as many as may be taken at a time."""
    batch: list[DistinctLayer] = []
    for layer in layers:
        size = 4 * sum(query.numel() for query in layer.asked)
        fits = (len(batch) + 1) * size <= _most(layer.asked[0])
        if batch and fits and batch[0].keys.device == layer.keys.device:
            batch.append(layer)
            continue
        if batch:
            yield batch
        batch = [layer]
    if batch:
        yield batch


def _measure(layers: Sequence[DistinctLayer]) -> None:
    first = layers[0]
    queries = [_joined(layer.asked) for layer in layers]  # (B, H G, L, D) each
    L = queries[0].shape[2]
    assert first.positions is not None
    assert first.real is not None
    positions, real = first.positions[:, -L:], first.real[:, -L:]
    values = [layer.values[:, :, -L:] for layer in layers]
    found = _moments(queries, values, first.rotary, positions, real, first.scaling)
    for layer, query_sums, value_sums in zip(layers, found.queries, found.values, strict=True):
        here = Moments(query_sums, value_sums, found.count)
        layer.moments = here if layer.moments is None else layer.moments.plus(here)
        layer.asked = []
    for layer, query in zip(layers, queries, strict=True):
        layer.keep_measured(query)


def moments_of(layer: DistinctLayer, queries: Tensor, columns: slice) -> Moments:
    """Moments of (B, H G, L, D) queries and the values of some columns of a layer's window."""
    assert layer.positions is not None
    assert layer.real is not None
    where = layer.positions[:, columns], layer.real[:, columns]
    found = _moments([queries], [layer.values[:, :, columns]], layer.rotary, *where, layer.scaling)
    return Moments(found.queries[0], found.values[0], found.count)


def _moments(
    queries: list[Tensor],
    values: list[Tensor],
    rotary: Rotary,
    positions: Tensor,
    real: Tensor,
    scaling: float,
) -> Moments:
    """Of the queries of each layer, turned back, and its values; layers in front."""
    if kernels.available(queries[0]):
        from ..kernels import reductions

        cos, sin = rotary.query_turns(positions)
        if reductions.takes(queries[0], cos):
            with torch.cuda.device(real.device):
                moments, squares = reductions.sums(queries, values, cos, sin, real)
            return Moments.of_sums(moments, squares, real, scaling)
    each = _products(queries, rotary, positions, real)
    return Moments.of(each, torch.stack(values), real, scaling)


def _products(queries: list[Tensor], rotary: Rotary, positions: Tensor, real: Tensor) -> Tensor:
    """Sums of q q' of the queries of each layer, turned back, (N, B, H G, D, D)."""
    query = torch.stack(queries)
    step = max(1, _most(query) // (4 * query[..., 0, :].numel()))
    total: Tensor | float = 0.0
    for start in range(0, query.shape[3], step):
        part = slice(start, start + step)
        where = positions[:, None, part], real[:, None, part]
        total = total + products(rotary.unrotate_queries(query[..., part, :], *where))
    assert isinstance(total, Tensor)
    return total


def _joined(asked: list[Tensor]) -> Tensor:
    """Queries one after the other; no copy of what came at once."""
    return asked[0] if len(asked) == 1 else torch.cat(asked, 2)


def _most(query: Tensor) -> int:
    return MOST if query.is_cpu else MOST_ELSEWHERE
