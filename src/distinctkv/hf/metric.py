"""The distance between two tokens as the error that merging them makes in attention (``qmv``).

Of a key-value head, M = E[q q'] s^2 over its queries before their rotation, s the factor of the
logits. A token's feature is [k L ; v / rms|v|] with L L' = M and k before its rotation. The squared
distance of two features is then the expected squared error in the logit, plus the squared error in
the value relative to the values' size.
"""

# N layers, B streams, H key-value heads, G query heads of each, L tokens, D key size, C value size

from __future__ import annotations

import os
from dataclasses import dataclass
from math import isqrt
from typing import Any, Self

import torch
from torch import Tensor

from .. import snapshot
from .anatomy import Anatomy, same_model

KIND = "qmv metric"
JITTER = 1e-6


@dataclass(frozen=True, slots=True)
class Scale:
    """The metric of one layer: a factor of M for the keys, a size for the values."""

    factor: Tensor  # (H, D, D)
    size: Tensor  # (H,)

    def features(self, keys: Tensor, values: Tensor) -> Tensor:
        """Features (H, L, D + C) of keys before rotation and of values."""
        return torch.cat((keys @ self.factor, values.float() / self.size[:, None, None]), dim=-1)


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

    def add(self, queries: Tensor, values: Tensor, real: Tensor, scaling: float) -> None:
        """Take in (B, H G, L, D) unrotated queries and (B, H, L, C) values of ``real`` tokens."""
        B, H = self.values.shape
        queries = queries.double() * real[:, None, :, None] * scaling
        queries = queries.view(B, H, -1, queries.shape[-1])
        groups = queries.shape[2] / real.shape[1]
        rows, columns = _triangle(queries.shape[-1], queries.device)
        self.queries = self.queries + (queries.mT @ queries / groups)[..., rows, columns]
        self.values = self.values + (values.double().square().sum(-1) * real[:, None]).sum(-1)
        self.count = self.count + real.sum(-1)

    def plus(self, other: Moments) -> Moments:
        """Both, of as many streams."""
        queries, values = self.queries + other.queries, self.values + other.values
        return Moments(queries, values, self.count + other.count)

    def select(self, streams: Tensor) -> None:
        """Keep, repeat or reorder streams."""
        self.queries, self.values = self.queries[streams], self.values[streams]
        self.count = self.count[streams]

    def scale(self, stream: int) -> Scale:
        """The metric of one stream, from what it has seen."""
        count = self.count[stream].clamp(min=1)
        return Scale(_factor(self.queries[stream] / count), _size(self.values[stream] / count))


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric that was measured once, for a model: see `calibrate`."""

    factors: Tensor  # (N, H, D, D)
    sizes: Tensor  # (N, H)
    identity: dict[str, Any]

    @classmethod
    def of(cls, moments: list[Moments], anatomy: Anatomy) -> Self:
        """The metric of moments pooled over streams, one for each layer."""
        count = [layer.count.sum() for layer in moments]
        queries = [layer.queries.sum(0) / n for layer, n in zip(moments, count, strict=True)]
        values = [layer.values.sum(0) / n for layer, n in zip(moments, count, strict=True)]
        factors = torch.stack([_factor(part).cpu() for part in queries])
        return cls(factors, torch.stack([_size(part).cpu() for part in values]), anatomy.identity)

    def scale(self, layer: int, device: torch.device) -> Scale:
        """The metric of one layer."""
        return Scale(self.factors[layer].to(device), self.sizes[layer].to(device))

    def check(self, anatomy: Anatomy) -> None:
        """Refuse a metric of another model."""
        same_model(self.identity, anatomy.identity, "metric", "calibrate one for this model")

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
    factor: Tensor = torch.linalg.cholesky(moment + JITTER * mean * eye).float()
    return factor


def _size(square: Tensor) -> Tensor:
    """Root mean square of the values, never zero."""
    return square.sqrt().float().clamp(min=1e-6)
