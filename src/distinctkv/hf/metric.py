"""The distance between two tokens: the expected error in attention if they merge (``qmv``).

Of a key-value head, M = E[q q'] s^2 over its queries before rotation, s the scaling of logits. A
token's feature is [k L ; v / rms|v|] with L L' = M and k before rotation. The squared distance of
two features is the expected squared error in the logit, plus the squared error in the value
relative to the size of values. A horizon h appends position / h.
"""

# N layers, B sequences, H key-value heads, G query heads of each, L tokens, D key size
# C value size, R rotated part of D, P rows of a metric, F feature size

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isqrt, nan
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor, nn

from .. import kernels, snapshot
from ..kernels.limits import BLOCK
from ..nn.leaders import product_type
from .config import PositionError, WrongModelError

if TYPE_CHECKING:
    from .model_support import ModelSpec

KIND = "qmv metric"
JITTER = 3e-5  # of the mean diagonal: more than float32 leaves of what should be zero
# Rotary frequencies may differ by rounding to bfloat16, and by a step of small float16 numbers.
ROUNDED, STEP = 2.0**-7, 2.0**-24
MAX_BYTES, MAX_BYTES_CUDA = 2**23, 2**30  # of queries in float32 that are reduced at a time


class SharedByCopy:
    """Copies of a cache share it; it cannot be pickled, since a pickle would contain the model."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a cache cannot be pickled with its model; use cache.save(path)")


class Rotary(SharedByCopy):
    """The rotary settings of a model, read from its own module and never changed here.

    Some rope types change their frequencies as a text grows. Keys of two settings cannot be
    compared: a cache keeps the frequencies of its first pass (`fixed`) and raises if they change.
    """

    def __init__(self, module: nn.Module, known: Tensor | None = None) -> None:
        self.module, self.known = module, known

    def fixed(self, frequencies: Tensor) -> Rotary:
        """The same with these frequencies."""
        return Rotary(self.module, frequencies)

    @property
    def frequencies(self) -> Tensor:
        """Radians by which one position rotates each pair of elements, (R / 2,)."""
        if self.known is not None:
            return self.known
        frequencies: Tensor = self.module.inv_freq  # type: ignore[assignment]
        return frequencies.detach().float()

    def check(self, known: Tensor | None) -> Tensor:
        """The frequencies; raises `PositionError` if they are not those ``known``."""
        now = self.frequencies
        if known is None:
            return now.clone()
        if now is not known and not torch.equal(now, known.to(now.device)):
            raise PositionError(
                f"the rotary frequencies of rope type {self.rope_type!r} changed, but slots were "
                "made with the old ones; keep below original_max_position_embeddings, give the "
                "whole context in one forward pass, or reset() the cache"
            )
        return known

    def mark(self) -> list[float] | None:
        """Frequencies and scaling, to know a model by; None if they change with the text."""
        if self.is_dynamic:
            return None
        return self.frequencies.tolist() + ([] if self.scaling == 1.0 else [self.scaling])

    @property
    def scaling(self) -> float:
        """The factor of rotated keys and queries (transformers' ``attention_scaling``)."""
        return float(getattr(self.module, "attention_scaling", 1.0))

    @property
    def rope_type(self) -> str:
        """The rope type, as transformers names it."""
        return str(getattr(self.module, "rope_type", "default"))

    @property
    def is_dynamic(self) -> bool:
        """Whether the model changes its frequencies with the length of the text."""
        return "dynamic" in self.rope_type or self.rope_type == "longrope"

    def cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (..., L, R / 2) of the (..., L) positions, for keys."""
        angles = positions[..., None].float() * self.frequencies.to(positions.device)
        cos, sin = angles.cos(), angles.sin_()
        return (cos, sin) if self.scaling == 1.0 else (cos / self.scaling, sin / self.scaling)

    def query_cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same for queries, which take the scaling of the keys: logits are the model's."""
        cos, sin = self.cos_sin(positions)
        if self.scaling == 1.0:
            return cos, sin
        return cos * self.scaling**2, sin * self.scaling**2

    def unrotate(self, keys: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        """(..., L, D) keys before the rotation of their (..., L) positions, in float32.

        Zeros outside the mask, which has the shape of the positions.
        """
        return _unrotate(keys, *self.cos_sin(positions.to(keys.device)), mask)

    def unrotate_queries(self, queries: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """The same of queries: times an unrotated key, each is the logit at one position."""
        return _unrotate(queries, *self.query_cos_sin(positions.to(queries.device)), mask)


def _unrotate(keys: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
    if kernels.takes("unrotate", keys):
        from ..kernels.rotary import unturn

        with torch.cuda.device(keys.device):
            return unturn(keys, cos, sin, mask)
    half = cos.shape[-1]
    first, second = keys[..., :half], keys[..., half : 2 * half]
    made = torch.empty(keys.shape, dtype=torch.float32, device=keys.device)
    torch.mul(first, cos, out=made[..., :half]).addcmul_(second.float(), sin)
    torch.mul(second, cos, out=made[..., half : 2 * half]).addcmul_(first.float(), sin, value=-1)
    made[..., 2 * half :] = keys[..., 2 * half :]
    return made if mask is None else made.masked_fill_(~mask[..., None], 0.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """Factors of M and sizes of values; head n has row ``n // group * heads + n % heads``.

    Sequences of a batch share the row of a calibrated metric; else each head has its own.
    """

    factor: Tensor  # (P, D, D)
    size: Tensor  # (P,)
    group: int = 1
    heads: int = 1

    @property
    def sizes(self) -> Tensor:
        """The size of each head."""
        each = self.size.view(-1, 1, self.heads).expand(-1, self.group // self.heads, -1)
        return each.reshape(-1)

    def features(self, keys: Tensor, values: Tensor, places: Tensor | None = None) -> Tensor:
        """Features (N B H, L, F) of keys before rotation, of values, and of positions / horizon."""
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
    """Second moments of the queries and the values of one layer, in float64; or of N layers."""

    queries: Tensor  # (B, H, D (D + 1) / 2), the lower triangle of a symmetric matrix
    values: Tensor  # (B, H)
    count: Tensor  # (B,)

    @classmethod
    def of(cls, queries: Tensor, values: Tensor, mask: Tensor, scaling: float) -> Self:
        """Of (..., B, H G, L, D) unrotated queries, zero outside the mask, and their values.

        Values are (..., B, H, L, C), the mask (B, L).
        """
        products = second_moments(queries)
        D = products.shape[-1]
        products = products.view(*values.shape[:-2], -1, D, D).mean(-3)
        return cls.of_sums(products, squares(values, mask), mask, scaling)

    @classmethod
    def of_sums(cls, products: Tensor, squares: Tensor, mask: Tensor, scaling: float) -> Self:
        """Of sums of q q' (..., B, H, D, D), the mean over G, and of |v|^2 (..., B, H)."""
        rows, columns = _triangle(products.shape[-1], products.device)
        return cls(products[..., rows, columns] * scaling**2, squares, mask.sum(-1).double())

    def plus(self, other: Moments, sign: int = 1) -> Moments:
        """The sum with others; or these without others that are part of them (``sign=-1``)."""
        return Moments(
            self.queries + sign * other.queries,
            self.values + sign * other.values,
            self.count + sign * other.count,
        )

    def of_heads(self, heads: Sequence[int]) -> Moments:
        """Those of some heads."""
        some = list(heads)
        return Moments(self.queries[:, some], self.values[:, some], self.count)

    def select(self, sequences: Tensor) -> Moments:
        """Keep, repeat or reorder sequences."""
        return Moments(self.queries[sequences], self.values[sequences], self.count[sequences])

    def scale(self, sequence: int) -> Scale:
        """The metric of one sequence."""
        count = self.count[sequence].clamp(min=1)
        return Scale(_factor(self.queries[sequence] / count), _size(self.values[sequence] / count))

    @staticmethod
    def scales(layers: list[Moments]) -> Scale:
        """The metric of N layers and all their sequences, (N B H, D, D) and (N B H,)."""
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
    def of(cls, moments: list[Moments], spec: ModelSpec) -> Self:
        """The metric of moments pooled over sequences, one for each layer."""
        count = [layer.count.sum() for layer in moments]
        queries = [layer.queries.sum(0) / n for layer, n in zip(moments, count, strict=True)]
        values = [layer.values.sum(0) / n for layer, n in zip(moments, count, strict=True)]
        factors = torch.stack([_factor(part).cpu() for part in queries])
        identity = {**spec.identity, "frequencies": spec.rotary.mark()}
        return cls(factors, torch.stack([_size(part).cpu() for part in values]), identity)

    def __repr__(self) -> str:
        N, H, D, _ = self.factors.shape
        return f"Metric({N} layers, {H} key-value heads of {D}, {self.factors.nbytes:,} bytes)"

    def scales(
        self,
        layers: list[int],
        batch: int,
        device: torch.device,
        heads: Sequence[Sequence[int]] | None = None,
    ) -> Scale:
        """The metric of some layers, one row for all sequences of the batch; of all heads or some.

        ``layers`` are equally spaced, so that the factors of all their heads are a view.
        """
        step = layers[1] - layers[0] if len(layers) > 1 else 1
        rows = slice(layers[0], layers[-1] + 1, step)
        if device not in self._copies:
            self._copies[device] = self.factors.to(device), self.sizes.to(device)
        factors, sizes = (part[rows] for part in self._copies[device])
        if heads is not None:
            some = torch.arange(len(heads))[:, None], torch.tensor(heads)
            factors, sizes = factors[some], sizes[some]
        H = sizes.shape[1]
        return Scale(factors.flatten(0, 1), sizes.flatten(), batch * H, H)

    def check(self, spec: ModelSpec) -> None:
        """Raise `WrongModelError` for a metric of another model."""
        spec.check_same(self.identity, "metric", "calibrate one for this model")
        made_for, now = self.identity.get("frequencies"), spec.rotary.mark()
        if made_for and now and not _near(made_for, now):
            raise WrongModelError(
                "this metric is for a model with other rotary frequencies, or another "
                "attention_factor; calibrate one for this model"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a safetensors file, atomically."""
        tensors = {"factors": self.factors.numpy(), "sizes": self.sizes.numpy()}
        snapshot.save(path, KIND, tensors, self.identity)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read it back; a digest is checked."""
        tensors, identity = snapshot.load(path, KIND)
        return cls(
            torch.from_numpy(tensors["factors"]), torch.from_numpy(tensors["sizes"]), identity
        )


def _near(one: list[float], other: list[float]) -> bool:
    return len(one) == len(other) and np.allclose(one, other, rtol=ROUNDED, atol=STEP)


def accumulate(
    queries: list[Tensor],
    values: list[Tensor],
    rotary: Rotary,
    positions: Tensor,
    mask: Tensor,
    scaling: float,
) -> list[Moments]:
    """The moments of each layer's (B, H G, L, D) rotated queries and (B, H, L, C) values."""
    whole = queries[0].shape[-1] == 2 * len(rotary.frequencies)
    if whole and kernels.takes("moments", queries[0]):
        from ..kernels import reductions

        cos, sin = rotary.query_cos_sin(positions)
        with torch.cuda.device(mask.device):
            sums = reductions.sums(queries, values, cos, sin, mask)
        return _by_layer(Moments.of_sums(*sums, mask, scaling))
    query, value = torch.stack(queries), torch.stack(values)
    step = max(1, max_bytes(query) // (4 * query[..., 0, :].numel()))
    total: Moments | None = None
    for start in range(0, query.shape[3], step):
        part = slice(start, start + step)
        where = positions[:, None, part], mask[:, None, part]
        found = Moments.of(
            rotary.unrotate_queries(query[..., part, :], *where),
            value[..., part, :],
            mask[:, part],
            scaling,
        )
        total = found if total is None else total.plus(found)
    assert total is not None
    return _by_layer(total)


def _by_layer(moments: Moments) -> list[Moments]:
    pairs = zip(moments.queries, moments.values, strict=True)
    return [Moments(queries, values, moments.count) for queries, values in pairs]


def max_bytes(query: Tensor) -> int:
    """Bytes of float32 queries to reduce at a time."""
    return MAX_BYTES if query.is_cpu else MAX_BYTES_CUDA


def second_moments(queries: Tensor) -> Tensor:
    """Sums of q q' over (..., L, D) unrotated queries, (..., D, D) in float64.

    Blocks of tokens are separate products, so that there are enough of them to run in parallel.
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


def squares(values: Tensor, mask: Tensor) -> Tensor:
    """Sums of |v|^2 over the tokens of a mask (B, L), (..., B, H) in float64."""
    dtype = torch.promote_types(values.dtype, torch.float32)
    sizes = torch.linalg.vector_norm(values, dim=-1, dtype=dtype).double().square()
    return torch.where(mask[:, None], sizes, 0.0).sum(-1)


@cache
def _triangle(size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rows, columns = torch.tril_indices(size, size, device=device)
    return rows, columns


def _factor(triangle: Tensor) -> Tensor:
    """L with L L' = M, (..., D, D); the jitter helps if few queries leave M without full rank."""
    size = (isqrt(8 * triangle.shape[-1] + 1) - 1) // 2
    rows, columns = _triangle(size, triangle.device)
    moment = triangle.new_zeros(*triangle.shape[:-1], size, size)
    moment[..., rows, columns] = moment[..., columns, rows] = triangle
    mean = moment.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].clamp(min=1e-12)
    eye = torch.eye(moment.shape[-1], dtype=moment.dtype, device=moment.device)
    # A failure is not synchronised with: it gives NaN features, which raise later.
    factor, failed = torch.linalg.cholesky_ex(moment + JITTER * mean * eye)
    made: Tensor = factor.masked_fill((failed != 0)[..., None, None], nan).float()
    return made


def _size(square: Tensor) -> Tensor:
    """Root mean square of the values, never zero."""
    return square.sqrt().float().clamp(min=1e-6)
