"""A way to hold a context in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .kv_states import Context, Held

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Way:
    """A name, the setting in words, and what it makes of a context for each part to keep.

    ``passes`` is how often it reads the context. A way that sizes itself is not told a part: it is
    given one, which it does not look at.
    """

    name: str
    setting: str
    hold: Callable[[PreTrainedModel, Context, Sequence[float]], list[list[Held]]]
    passes: int = 1
    sizes_itself: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is one of ours that works on all layers at once."""
        return self.name.startswith(("ours", "threshold"))


def each(
    hold: Callable[[PreTrainedModel, Context, float], list[Held]],
) -> Callable[[PreTrainedModel, Context, Sequence[float]], list[list[Held]]]:
    """One part after the other."""
    return lambda model, context, parts: [hold(model, context, part) for part in parts]
