"""What a mixer remembers, and a model: the states of all its blocks."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

if TYPE_CHECKING:
    from .mixer import Mixer

ANEW = "start anew, or go on from a copy made before it (clone)"


class State:
    """What a mixer remembers of the tokens before; the mixer moves it on in place."""

    maker: str = ""  # the kind of the mixer that started it; unknown if it does not say
    calls: int = 0  # that moved it on; those of compiled code are not counted
    halfway: bool = False  # whether an error left some of it a token further

    def of(self, mixer: Mixer[Any]) -> Self:
        """This state, marked as what a mixer of this kind starts."""
        self.maker = mixer.kind
        return self

    def __repr__(self) -> str:
        """Its kind, its streams, its slots if it has some, its bytes."""
        slots = [f"{part!r}, " for part in vars(self).values() if hasattr(part, "n_slots")]
        what = self.maker or type(self).__name__
        return f"State({what}, {self.streams} streams, {''.join(slots)}{self.nbytes} bytes)"

    @property
    def streams(self) -> int:
        """How many streams it remembers."""
        return next(len(part) for part in vars(self).values() if isinstance(part, Tensor))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(getattr(part, "nbytes", 0) for part in vars(self).values())

    def check(self) -> Self:
        """Raise if something went wrong of which nobody could be told at once."""
        if self.halfway:
            raise ValueError(f"an error came while {self!r} was written; {ANEW}")
        return self

    @property
    def written(self) -> float:
        """How often its tensors were written in place; nan, equal to nothing, if nobody knows."""
        n = 0
        for part in vars(self).values():
            for held in part if isinstance(part, tuple) else (part,):
                if isinstance(held, Tensor):
                    if held.is_inference() or not held.is_cpu:  # kernels do not count
                        return nan
                    n += held._version
        return n

    def parts(self) -> tuple[dict[str, Any], float]:
        """What it is made of, for `back`."""
        return dict(vars(self)), self.written

    def back(self, parts: dict[str, Any], written: float) -> None:
        """Be as before an error; if that cannot be, because of writes in place, be marked."""
        vars(self).update(parts)
        if self.written != written:
            self.halfway = True

    def picked(self, rows: Tensor) -> Self:
        """A copy with these rows of the batch, as beam search asks for."""
        return self._each(lambda part: part.index_select(0, rows), lambda part: part.picked(rows))

    def clone(self) -> Self:
        """A copy that later tokens do not touch."""
        return self._each(Tensor.clone, lambda part: part.clone())

    def detach(self) -> Self:
        """The same numbers without a way back for gradients, for truncated back-propagation.

        Train on one segment, step, detach, and let the next segment follow.
        """
        return self._each(Tensor.detach, lambda part: part.detach())

    def _each(self, change: Callable[[Tensor], Tensor], nested: Callable[[Any], Any]) -> Self:
        """A copy with all tensors changed, and what holds tensors."""
        new = copy(self)
        for name, part in vars(self).items():
            if isinstance(part, Tensor):
                setattr(new, name, change(part))
            elif hasattr(part, "picked"):
                setattr(new, name, nested(part))
        return new


@dataclass(repr=False)
class ModelState:
    """The states of all blocks, first block first."""

    blocks: list[State]
    halfway: bool = False  # whether an error left only some of the blocks a token further

    def __repr__(self) -> str:
        """Its blocks and its bytes."""
        blocks = "".join(f"  {block!r}\n" for block in self.blocks)
        return f"ModelState({len(self.blocks)} blocks, {self.nbytes} bytes:\n{blocks})"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(block.nbytes for block in self.blocks)

    def check(self) -> ModelState:
        """Raise if a layer met what it could not tell at once; waits for the device."""
        if self.halfway:
            raise ValueError(f"an error left this state between two blocks; {ANEW}")
        for block in self.blocks:
            block.check()
        return self

    def picked(self, rows: Tensor) -> ModelState:
        """A copy with these rows of the batch, as beam search asks for."""
        return ModelState([block.picked(rows) for block in self.blocks], self.halfway)

    def clone(self) -> ModelState:
        """A copy that later tokens do not touch."""
        return ModelState([block.clone() for block in self.blocks], self.halfway)

    def detach(self) -> ModelState:
        """The same numbers without a way back for gradients, for truncated back-propagation."""
        return ModelState([block.detach() for block in self.blocks], self.halfway)


def parts(state: ModelState) -> list[dict[str, Any]]:
    """What the blocks are made of, for `moved`."""
    return [dict(vars(block)) for block in state.blocks]


def moved(state: ModelState, before: list[dict[str, Any]]) -> bool:
    """Whether a block has taken tokens in since."""
    return any(
        old.get(name) is not part
        for block, old in zip(state.blocks, before, strict=True)
        for name, part in vars(block).items()
    )
