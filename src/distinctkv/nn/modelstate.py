"""What a mixer remembers, and a model: the states of all its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .mixer import Mixer

ANEW = "start anew, or go on from a copy made before it (clone)"


class State:
    """What a mixer remembers of the tokens before; the mixer moves it on in place.

    After an error it is as it was, unless something it holds was written in place. A layer that
    says nothing may do so anywhere. One that never does gives its state ``writes = 0``; one that
    does counts up just before (`will_write`), and up to there an error changes nothing. What you
    derive from a state with ``writes = 0`` must do as much.
    """

    maker: str = ""  # the kind of the mixer that started it; unknown if it does not say
    calls: int = 0  # that moved it on; those of compiled code are not counted
    moved: bool = False  # whether its mixer is done with the last call of a model
    halfway: bool = False  # whether an error may have left some of it a token further
    writes: float = nan  # in place; nan, equal to nothing, if its layer does not count them

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
            raise ValueError(f"an error may have left {self!r} written in part; {ANEW}")
        return self

    def will_write(self) -> None:
        """Count a write in place that comes next; compiled code does not count."""
        if not torch.compiler.is_compiling():
            self.writes += 1

    def parts(self) -> list[tuple[State, float, dict[str, Any]]]:
        """What it is made of, and the states it holds, for `back`."""
        return [(state, state.writes, dict(vars(state))) for state in self._nested()]

    def back(self, parts: list[tuple[State, float, dict[str, Any]]]) -> None:
        """Be as before an error; if that cannot be, because of writes in place, be marked."""
        for state, writes, held in parts:
            now = state.writes
            vars(state).clear()
            vars(state).update(held)
            if now != writes:
                state.writes, state.halfway, self.halfway = now, True, True

    def _nested(self) -> Iterator[State]:
        """Itself, and the states it holds."""
        yield self
        for part in vars(self).values():
            if isinstance(part, State):
                yield from part._nested()

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
    halfway: bool = False  # whether an error came after some blocks had taken tokens in

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
            raise ValueError(f"an error came after some blocks had taken tokens in; {ANEW}")
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


def calls(state: ModelState) -> list[int]:
    """How often each block was moved on, for `moved`; what blocks hold would be held on to."""
    return [block.calls for block in state.blocks]


def moved(state: ModelState, before: list[int]) -> bool:
    """Whether a block has taken tokens in since, or may have in part."""
    # Compiled mixers do not count calls.
    return calls(state) != before or any(b.halfway or b.moved for b in state.blocks)
