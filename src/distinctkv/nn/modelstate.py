"""What a model remembers: the states of all its blocks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .mixer import State


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
            raise ValueError(
                "an error left this state between two blocks; start anew, or go on from a copy "
                "made before it (clone)"
            )
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
