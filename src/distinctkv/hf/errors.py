"""What can be wrong with a model, a cache, a mask or a position, by name."""

from __future__ import annotations

NAME = "distinctkv"  # of our attention, among those of transformers


class UnsupportedModelError(ValueError):
    """A model whose attention the cache cannot stand behind."""


class WrongModelError(ValueError):
    """A cache, a saved cache or a metric that was made for another model."""


class MaskError(ValueError):
    """An attention mask that is not causal with padding on the left, or that changed its mind."""


class PositionError(ValueError):
    """Positions that do not grow, or rotary frequencies that moved under the slots."""


class CropError(ValueError):
    """A wish to take back tokens that have already become slots."""


class BrokenForwardError(RuntimeError):
    """A cache whose layers have seen different tokens, because a forward pass was cut short."""
