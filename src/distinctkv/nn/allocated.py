"""What an allocation decided, and which slots it was decided with."""

# B batch, L tokens, H heads, S slots, N = B * H streams

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from . import door
from .state import SlotState

if TYPE_CHECKING:
    from .kernels.allocating import Run

LOOKED = slice(2, 4)  # the fields of an allocation that no decision needs


class Allocation(NamedTuple):
    """What the rule decided for each token; all ids are slots of the token's own stream.

    ``lead`` (B, L, H): the token opened a slot. ``assign``: its slot, its own if it leads, -1 for
    padding. ``nearest``: the nearest slot before it came, -1 if there was none. ``novelty``: half
    the squared distance to that slot, 2 if there was none, 0 for padding.
    ``opener`` (B, H, S): the token that opened a slot, -1 if none of this call did.
    ``n_slots``, ``overflow``, ``refused`` (B, H): slots now, tokens for which there was no room,
    tokens left out, whose keys were not rows of length one. ``mask`` and ``sequence`` (B, L): as
    given. ``before`` (B, H): the tokens that its state had seen, None if it was given none.
    """

    lead: Tensor
    assign: Tensor
    nearest: Tensor
    novelty: Tensor
    opener: Tensor
    n_slots: Tensor
    overflow: Tensor
    refused: Tensor
    mask: Tensor | None
    sequence: Tensor | None
    before: Tensor | None = None

    def check(self) -> Allocation:
        """Raise if a token was refused or found no room; this waits for the device."""
        if n := int(self.refused.sum()):
            raise ValueError(
                f"{n} keys are not finite rows of length one, or their values are not finite, or "
                "their tau is nan; use distinctkv.nn.functional.unit, and mask padding"
            )
        if n := int(self.overflow.sum()):
            raise ValueError(
                f"{n} novel tokens found all {self.opener.shape[-1]} slots taken and were merged "
                "into the nearest; raise capacity or tau"
            )
        return self

    def check_slots(self, state: SlotState | None) -> None:
        """Refuse slots that this was not decided with, as far as a look makes nobody wait."""
        if state is None:
            if self.before is not None:
                raise ValueError(
                    "this allocation was made with slots from before; give state=, as it was then"
                )
            return
        if self.opener.shape != state.weights.shape:
            raise ValueError(
                f"allocation is for slots {tuple(self.opener.shape)}, this state holds "
                f"{tuple(state.weights.shape)}; allocate with state=state"
            )
        if door.readable(self.lead) and (n := int(self.astray(state).sum())):
            raise ValueError(
                f"{n} of {state.seen.numel()} streams of this state have taken in other tokens "
                "than the allocation knew; allocate with state=state, read, then write, once each"
            )

    def astray(self, state: SlotState) -> Tensor:
        """Streams (B, H) whose slots are not those this was decided with."""
        seen = 0 if self.before is None else self.before
        return (state.seen != seen) | (state.n_slots != self.n_slots - self.lead.sum(1))

    def streams(self) -> tuple[Tensor, Tensor]:
        """The slot of each token, and the slots that were open when it came: (N, L), 32 bits."""
        lead, slot = (x.transpose(1, 2).flatten(0, 1) for x in (self.lead, self.assign))
        opened = lead.sum(1).reshape_as(self.n_slots)
        before = (self.n_slots - opened).flatten()[:, None]
        return slot.int().contiguous(), (before + lead.cumsum(1) - lead.long()).int()


class Later(Allocation):
    """An allocation by kernels: nearest slots are looked for when somebody asks for them.

    No decision needs them all, and they take as long as the decisions. Until they are asked for,
    it holds on to the tables they are found in.
    """

    _run: Run | None
    _found: tuple[Tensor, Tensor]
    _streams: tuple[Tensor, Tensor]

    @classmethod
    def of(cls, run: Run, slot: Tensor, *fields: Any) -> Later:  # noqa: ANN401
        """The fields of an allocation, whose nearest slots and novelty are still to be found."""
        new = cls._make(fields)
        new._run, new._streams = run, (slot, run.visible)
        return new

    def streams(self) -> tuple[Tensor, Tensor]:
        """As the kernels left it; worked out again if a field was replaced."""
        return self.__dict__.get("_streams") or super().streams()

    @property
    def nearest(self) -> Tensor:
        """The nearest slot before the token came."""
        return self._looked()[0]

    @property
    def novelty(self) -> Tensor:
        """Half the squared distance to it."""
        return self._looked()[1]

    def _looked(self) -> tuple[Tensor, Tensor]:
        run = self.__dict__.pop("_run", None)
        if run is not None:
            H, nearest = self.lead.shape[2], run.nearest().long()
            self._found = deep(nearest, H), deep(run.novelty(), H)
        found: tuple[Any, ...] = self.__dict__.get("_found") or super().__getitem__(LOOKED)
        return found[0], found[1]

    def __iter__(self) -> Iterator[Any]:
        """All fields, in order."""
        return (getattr(self, name) for name in self._fields)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401
        """A field by its place."""
        return tuple(self)[place]


def deep(x: Tensor, H: int) -> Tensor:
    """Streams (N, L) as (B, L, H)."""
    return x.reshape(-1, H, x.shape[1]).transpose(1, 2)
