"""Rotary embedding and its inverse: keys and queries before their rotation."""

# L tokens, D key size, R rotated part of D

from __future__ import annotations

from typing import NoReturn, Self

import torch
from torch import Tensor, nn

from .. import kernels
from .config import PositionError


class Belonging:
    """Shared by all copies of a cache; no pickle takes it along, and the model with it."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a cache belongs to its model, which a pickle would take along; write it to a file "
            "with cache.save(path), and press a context anew"
        )


# H heads, L tokens, D key size, R rotated part of D


MOVED = (
    "moved as the text grew",
    "keep below original_max_position_embeddings, or give the whole context in one forward pass",
)
CHANGED = (
    "are not what they were",
    "use the model with its old rope settings and dtype, or reset() the cache",
)


class Rotary(Belonging):
    """The rotary settings of a model, read from its own module and never changed by us.

    The frequencies are those of the model's last forward pass, which may have been over another
    text: some kinds of scaling move them when a text grows. Keys of two settings cannot be
    compared, so a cache keeps watch, and turns back `at` the frequencies that it began with.
    """

    def __init__(self, module: nn.Module, known: Tensor | None = None) -> None:
        self.module, self.known = module, known

    def at(self, known: Tensor) -> Rotary:
        """The same with frequencies that stay as they are."""
        return Rotary(self.module, known)

    @property
    def frequencies(self) -> Tensor:
        """Radians by which one position turns each pair of numbers, (R / 2,)."""
        if self.known is not None:
            return self.known
        frequencies: Tensor = self.module.inv_freq  # type: ignore[assignment]
        return frequencies.detach().float()

    def check(self, known: Tensor | None) -> Tensor:
        """The frequencies, the same that this cache has known."""
        now = self.frequencies
        if known is None:
            return now.clone()
        if now is not known and not torch.equal(now, known.to(now.device)):
            why, way_out = MOVED if self.moves else CHANGED
            raise PositionError(
                f"the rotary frequencies of rope type {self.kind!r} {why}, and "
                f"slots were made with the old ones; {way_out}"
            )
        return known

    def mark(self) -> list[float] | None:
        """The frequencies, to know a model by; none where they move with what it reads."""
        if self.moves:
            return None
        return self.frequencies.tolist() + ([] if self.stretch == 1.0 else [self.stretch])

    @property
    def stretch(self) -> float:
        """By which the model multiplies what it turns, of keys and of queries."""
        return float(getattr(self.module, "attention_scaling", 1.0))

    @property
    def kind(self) -> str:
        """The rope type, as transformers names it."""
        return str(getattr(self.module, "rope_type", "default"))

    @property
    def moves(self) -> bool:
        """Whether the model changes its frequencies with the length of what it reads."""
        return "dynamic" in self.kind or self.kind == "longrope"

    def turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (..., L, R / 2) that turn back the (..., L) positions."""
        # As the model computes it, in float32; once for all heads and layers at a position.
        angles = positions[..., None].float() * self.frequencies.to(positions.device)
        cos, sin = angles.cos(), angles.sin_()
        return (cos, sin) if self.stretch == 1.0 else (cos / self.stretch, sin / self.stretch)

    def query_turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same for queries, which take the stretch of the keys: so logits are the model's."""
        cos, sin = self.turns(positions)
        return (cos, sin) if self.stretch == 1.0 else (cos * self.stretch**2, sin * self.stretch**2)

    def unrotate(self, keys: Tensor, positions: Tensor, real: Tensor | None = None) -> Tensor:
        """(..., L, D) keys without the turn of their (..., L) positions, in float32.

        Zeros for what is not ``real``, of the shape of the positions.
        """
        return self._back(keys, *self.turns(positions.to(keys.device)), real)

    def unrotate_queries(self, queries: Tensor, positions: Tensor, real: Tensor) -> Tensor:
        """The same of queries: times an unrotated key, each is the logit at one position."""
        return self._back(queries, *self.query_turns(positions.to(queries.device)), real)

    @staticmethod
    def _back(keys: Tensor, cos: Tensor, sin: Tensor, real: Tensor | None) -> Tensor:
        if kernels.available(keys):
            from ..kernels.rotary import unturn

            with torch.cuda.device(keys.device):
                return unturn(keys, cos, sin, real)
        half = cos.shape[-1]
        first, second = keys[..., :half], keys[..., half : 2 * half]
        # Each number is read as it is and written once or twice: this is a pass over all tokens.
        made = torch.empty(keys.shape, dtype=torch.float32, device=keys.device)
        torch.mul(first, cos, out=made[..., :half]).addcmul_(second.float(), sin)
        torch.mul(second, cos, out=made[..., half : 2 * half]).addcmul_(
            first.float(), sin, value=-1
        )
        made[..., 2 * half :] = keys[..., 2 * half :]
        return made if real is None else made.masked_fill_(~real[..., None], 0.0)
