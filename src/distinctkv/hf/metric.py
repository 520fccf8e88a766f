"""The distance between two tokens as the error that merging them makes in attention (``qmv``).

Of a key-value head, M = E[q q'] s^2 over its queries before their rotation, s the factor of the
logits. A token's feature is [k L ; v / rms|v|] with L L' = M and k before its rotation. The squared
distance of two features is then the expected squared error in the logit, plus the squared error in
the value relative to the values' size.

Queries wait until their tokens are merged, as long as they are few: launching small products for
each layer of a pass costs more than the products.
"""

# N layers, B sequences, H key-value heads, G query heads of each, L tokens, D key size
# C value size

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isqrt, nan
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from .. import kernels, snapshot
from ..kernels.limits import BLOCK
from ..nn.leaders import product_type
from .config import WrongModelError
from .model_support import Anatomy, same_model
from .rotary import Rotary

if TYPE_CHECKING:
    from .layer import DistinctLayer


# N layers, B streams, H key-value heads, G query heads of each, L tokens, D key size, C value size


KIND = "qmv metric"
JITTER = 3e-5  # of the mean diagonal: more than float32 leaves of what should be zero
# How frequencies differ at most that are rounded: a part in bfloat16, a step of small float16.
ROUNDED, STEP = 2.0**-7, 2.0**-24


@dataclass(frozen=True, slots=True)
class Scale:
    """The metric of one layer: a factor of M for the keys, a size for the values."""

    factor: Tensor  # (P, D, D)
    size: Tensor  # (P,)
    # Head n has row ``n // group * heads + n % heads``: sequences of a batch may share one row.
    group: int = 1
    heads: int = 1

    @property
    def sizes(self) -> Tensor:
        """The size of each head, (N,)."""
        each = self.size.view(-1, 1, self.heads).expand(-1, self.group // self.heads, -1)
        return each.reshape(-1)

    def features(self, keys: Tensor, values: Tensor, places: Tensor | None = None) -> Tensor:
        """Features (H, L, D + C) of keys before rotation and of values.

        One number more where ``places`` (H, L) are given: those.
        """
        D, both = keys.shape[-1], keys.shape[-1] + values.shape[-1]
        made = keys.new_empty(*keys.shape[:2], both + (places is not None))
        if self.group == 1:
            torch.bmm(keys, self.factor, out=made[..., :D])
        else:  # a product for each sequence: a broadcast factor would be copied for each
            B, H, L = self.group // self.heads, self.heads, keys.shape[1]
            own, out = keys.view(-1, B, H, L, D), made.view(-1, B, H, L, made.shape[-1])
            for b in range(B):
                found = torch.bmm(own[:, b].flatten(0, 1), self.factor)
                out[:, b, ..., :D] = found.view(-1, H, L, D)
        torch.div(values, self.sizes[:, None, None], out=made[..., D:both])
        if places is not None:
            made[..., both] = places
        return made


@dataclass(slots=True)
class Moments:
    """Running second moments of the queries and the values of one layer, in float64."""

    queries: Tensor  # (B, H, D (D + 1) / 2), the lower triangle of a symmetric matrix
    values: Tensor  # (B, H)
    count: Tensor  # (B,)

    @classmethod
    def zero(cls, batch: int, heads: int, size: int, device: torch.device) -> Self:
        """Nothing seen."""
        like: dict[str, Any] = {"dtype": torch.float64, "device": device}
        return cls(
            torch.zeros(batch, heads, size * (size + 1) // 2, **like),
            torch.zeros(batch, heads, **like),
            torch.zeros(batch, **like),
        )

    @classmethod
    def of(cls, each: Tensor, values: Tensor, real: Tensor, scaling: float) -> Self:
        """Of `products` (..., B, H G, D, D) of queries and (..., B, H, L, C) values.

        ``real`` (B, L) says which tokens are text; the queries of others were zeros. With layers in
        front the moments have them in front.
        """
        D = each.shape[-1]
        each = each.view(*values.shape[:-2], -1, D, D)
        kind = torch.promote_types(values.dtype, torch.float32)
        sizes = torch.linalg.vector_norm(values, dim=-1, dtype=kind).double().square()
        squares = torch.where(real[:, None], sizes, 0.0).sum(-1)
        return cls.of_sums(each.mean(-3), squares, real, scaling)

    @classmethod
    def of_sums(cls, moment: Tensor, squares: Tensor, real: Tensor, scaling: float) -> Self:
        """Of sums of q q' (..., B, H, D, D), the mean over G, and of |v|^2 (..., B, H)."""
        rows, columns = _triangle(moment.shape[-1], moment.device)
        return cls(moment[..., rows, columns] * scaling**2, squares, real.sum(-1).double())

    def add(self, queries: Tensor, values: Tensor, real: Tensor, scaling: float) -> None:
        """Take in (B, H G, L, D) unrotated queries and (B, H, L, C) values of ``real`` tokens."""
        queries = torch.where(real[:, None, :, None], queries.float(), 0.0)
        total = self.plus(Moments.of(products(queries), values, real, scaling))
        self.queries, self.values, self.count = total.queries, total.values, total.count

    def plus(self, other: Moments) -> Moments:
        """Both, of as many streams."""
        queries, values = self.queries + other.queries, self.values + other.values
        return Moments(queries, values, self.count + other.count)

    def minus(self, other: Moments) -> Moments:
        """These without the others, which are part of them."""
        queries, values = self.queries - other.queries, self.values - other.values
        return Moments(queries, values, self.count - other.count)

    def select(self, streams: Tensor) -> None:
        """Keep, repeat or reorder streams."""
        self.queries, self.values = self.queries[streams], self.values[streams]
        self.count = self.count[streams]

    def scale(self, stream: int) -> Scale:
        """The metric of one stream, from what it has seen."""
        count = self.count[stream].clamp(min=1)
        return Scale(_factor(self.queries[stream] / count), _size(self.values[stream] / count))

    @staticmethod
    def scales(layers: list[Moments]) -> Scale:
        """The metric of N layers and all their streams, (N B H, D, D) and (N B H,)."""
        count = torch.stack([layer.count for layer in layers]).clamp(min=1)[..., None]
        queries = torch.stack([layer.queries for layer in layers]) / count[..., None]
        values = torch.stack([layer.values for layer in layers]) / count
        return Scale(_factor(queries.flatten(0, 2)), _size(values.flatten()))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Metric:
    """A metric that was measured once, for a model: see `calibrate`."""

    factors: Tensor  # (N, H, D, D)
    sizes: Tensor  # (N, H)
    identity: dict[str, Any]
    _copies: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, moments: list[Moments], anatomy: Anatomy) -> Self:
        """The metric of moments pooled over streams, one for each layer."""
        count = [layer.count.sum() for layer in moments]
        queries = [layer.queries.sum(0) / n for layer, n in zip(moments, count, strict=True)]
        values = [layer.values.sum(0) / n for layer, n in zip(moments, count, strict=True)]
        factors = torch.stack([_factor(part).cpu() for part in queries])
        identity = {**anatomy.identity, "frequencies": anatomy.rotary.mark()}
        return cls(factors, torch.stack([_size(part).cpu() for part in values]), identity)

    def __repr__(self) -> str:
        N, H, D, _ = self.factors.shape
        return f"Metric({N} layers, {H} key-value heads of {D}, {self.factors.nbytes:,} bytes)"

    def scales(self, layers: list[int], batch: int, device: torch.device) -> Scale:
        """The metric of some layers, one row for all sequences of the batch.

        ``layers`` are equally spaced, so that their factors are a view.
        """
        step = layers[1] - layers[0] if len(layers) > 1 else 1
        rows = slice(layers[0], layers[-1] + 1, step)
        factors, sizes = self.on(device)
        H = sizes.shape[1]
        return Scale(factors[rows].flatten(0, 1), sizes[rows].flatten(), batch * H, H)

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Factors and sizes on a device, copied there once."""
        if device not in self._copies:
            self._copies[device] = self.factors.to(device), self.sizes.to(device)
        return self._copies[device]

    def check(self, anatomy: Anatomy) -> None:
        """Refuse a metric of another model."""
        same_model(self.identity, anatomy.identity, "metric", "calibrate one for this model")
        made_for, now = self.identity.get("frequencies"), anatomy.rotary.mark()
        if made_for and now and not _near(made_for, now):
            raise WrongModelError(
                "this metric is for a model with other rotary frequencies, or another "
                "attention_factor, whose queries are others; calibrate one for this model"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a safetensors file, whole or not at all."""
        tensors = {"factors": self.factors.numpy(), "sizes": self.sizes.numpy()}
        snapshot.save(path, KIND, tensors, self.identity)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it back, every byte checked."""
        tensors, identity = snapshot.load(path, KIND)
        return cls(
            torch.from_numpy(tensors["factors"]), torch.from_numpy(tensors["sizes"]), identity
        )


def _near(one: list[float], other: list[float]) -> bool:
    """Whether frequencies are the same, but for rounding."""
    return len(one) == len(other) and np.allclose(one, other, rtol=ROUNDED, atol=STEP)


def products(queries: Tensor) -> Tensor:
    """Sums of q q' over (..., L, D) unrotated queries, (..., D, D) in float64.

    Each block of each head is a product by itself: there are more of them than processors.
    """
    *heads, L, D = queries.shape
    total = torch.zeros(*heads, D, D, dtype=torch.float64, device=queries.device)
    whole = L - L % BLOCK
    for part, size in ((queries[..., :whole, :], BLOCK), (queries[..., whole:, :], L - whole)):
        if part.numel():
            blocks = part.reshape(-1, size, D).to(product_type(part))
            found = torch.bmm(blocks.mT, blocks).view(*heads, -1, D, D)
            total += found.sum(-3, dtype=torch.float64)
    return total


@cache
def _triangle(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rows, columns = torch.tril_indices(size, size, device=device)
    return rows, columns


def _factor(triangle: Tensor) -> Tensor:
    """L with L L' = M, (H, D, D); a few queries leave M without full rank, hence the jitter."""
    size = (isqrt(8 * triangle.shape[-1] + 1) - 1) // 2
    rows, columns = _triangle(size, triangle.device)
    moment = triangle.new_zeros(*triangle.shape[:-1], size, size)
    moment[..., rows, columns] = moment[..., columns, rows] = triangle
    mean = moment.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].clamp(min=1e-12)
    eye = torch.eye(moment.shape[-1], dtype=moment.dtype, device=moment.device)
    # Whether it failed is not waited for: features that are not finite are refused.
    factor, failed = torch.linalg.cholesky_ex(moment + JITTER * mean * eye)
    made: Tensor = factor.masked_fill((failed != 0)[..., None, None], nan).float()
    return made


def _size(square: Tensor) -> Tensor:
    """Root mean square of the values, never zero."""
    return square.sqrt().float().clamp(min=1e-6)


# N layers, B streams, H key-value heads, G query heads of each, L tokens, D key size


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
