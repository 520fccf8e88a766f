"""Keys as they were before their position was turned into them."""

# H heads, L tokens, D key size, R rotated part of D

from __future__ import annotations

import torch
from torch import Tensor, nn

from .errors import PositionError


class Rotary:
    """The rotary settings of a model, read from its own module and never changed by us.

    The frequencies are those of the last forward pass. Some kinds of scaling move them when the
    text grows; keys of two settings cannot be compared, so a cache keeps watch.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __deepcopy__(self, memo: object) -> Rotary:
        """Shared by all copies of a cache: it belongs to the model."""
        return self

    @property
    def frequencies(self) -> Tensor:
        """Radians by which one position turns each pair of numbers, (R / 2,)."""
        frequencies: Tensor = self.module.inv_freq  # type: ignore[assignment]
        return frequencies.detach().float()

    def check(self, known: Tensor | None) -> Tensor:
        """The frequencies, the same that this cache has known."""
        now = self.frequencies
        if known is None:
            return now.clone()
        if now is not known and not torch.equal(now, known.to(now.device)):
            raise PositionError(
                f"the rotary frequencies of rope type {self.kind!r} moved as the text grew, and "
                "slots were made with the old ones; keep below "
                "original_max_position_embeddings, or give the whole context in one forward pass"
            )
        return known

    @property
    def kind(self) -> str:
        """The rope type, as transformers names it."""
        return str(getattr(self.module, "rope_type", "default"))

    def unrotate(self, keys: Tensor, positions: Tensor) -> Tensor:
        """(..., L, D) keys or queries without the turn of their (..., L) positions, in float32."""
        angles = positions[..., None].float() * self.frequencies.to(keys.device)
        scale = float(getattr(self.module, "attention_scaling", 1.0))
        cos, sin = angles.cos() / scale, angles.sin() / scale
        half = angles.shape[-1]
        keys = keys.float()
        first, second, rest = keys[..., :half], keys[..., half : 2 * half], keys[..., 2 * half :]
        return torch.cat(
            (first * cos + second * sin, second * cos - first * sin, rest),
            dim=-1,
        )
