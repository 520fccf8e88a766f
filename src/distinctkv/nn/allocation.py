"""Allocation: which tokens of a batch open a slot, and where the others go.

Keys are checked and laid out stream by stream; an engine decides (`engine`); the rest follows from
which tokens lead and which slot is nearest.
"""

# B batch, L tokens, H heads, D key size, S slots, N = B * H streams

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import torch
from torch import Tensor

from . import door, engine
from .engine import Impl
from .law import LENGTHS
from .state import SlotState

if TYPE_CHECKING:
    from .kernels.allocating import Run
    from .kernels.laying import Laid


LOOKED = slice(2, 4)  # the fields of an allocation that no decision needs


class Allocation(NamedTuple):
    """What the rule decided for each token; all ids are slots of the token's own stream.

    ``lead`` (B, L, H): the token opened a slot. ``assign``: its slot, its own if it leads, -1 for
    padding. ``nearest``: the nearest slot before it came, -1 if there was none. ``novelty``: half
    the squared distance to that slot, 2 if there was none, 0 for padding.
    ``opener`` (B, H, S): the token that opened a slot, -1 if none of this call did.
    ``n_slots``, ``overflow``, ``refused`` (B, H): slots now, tokens for which there was no room,
    keys that were not rows of length one. ``mask`` and ``sequence`` (B, L): as given.
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

    def check(self) -> Allocation:
        """Raise if a key was refused or a token found no room; this waits for the device."""
        if n := int(self.refused.sum()):
            raise ValueError(
                f"{n} keys are not finite rows of length one, or their tau is nan; use "
                "distinctkv.nn.functional.unit, and mask padding"
            )
        if n := int(self.overflow.sum()):
            raise ValueError(
                f"{n} novel tokens found all {self.opener.shape[-1]} slots taken and were merged "
                "into the nearest; raise capacity or tau"
            )
        return self

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
            self._found = _deep(nearest, H), _deep(run.novelty(), H)
        found: tuple[Any, ...] = self.__dict__.get("_found") or super().__getitem__(LOOKED)
        return found[0], found[1]

    def __iter__(self) -> Iterator[Any]:
        """All fields, in order."""
        return (getattr(self, name) for name in self._fields)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401
        """A field by its place."""
        return tuple(self)[place]


def unit(keys: Tensor) -> Tensor:
    """Keys scaled to length one, worked out in float64; a key of zeros becomes nan.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    wide = keys.double()
    length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / length).to(keys.dtype)


def allocate(
    keys: Tensor,
    tau: float | Tensor,
    *,
    state: SlotState | None = None,
    mask: Tensor | None = None,
    sequences: Tensor | None = None,
    chunk: int = 128,
    capacity: int | None = None,
    impl: Impl = "auto",
) -> Allocation:
    """Run the allocation rule of the paper (eq. 2) over keys (B, L, H, D), each head on its own.

    The slots are those of `distinctkv.rule.Rule` with first-occurrence keys, id for id, whatever
    the ``chunk``. ``keys`` are rows of length one (`unit`), and the rule sees them as float32, or
    float64 if they are. ``tau`` is a number, a 0-dim tensor or one number per head; below 0 every
    token opens a slot. No gradient passes.

    ``state`` holds slots from before and is not changed. ``mask`` (B, L) is true for real tokens.
    ``sequences`` are packed and start empty: ids (B, L), or cumulative lengths for B = 1.
    ``capacity`` bounds the slots of a stream (by default nothing can overflow). A novel token
    without room merges into the nearest slot and is counted. A key that is not finite or not of
    length one, or whose tau is nan, is left out like padding and counted. On the CPU either is an
    error at once; on a device or compiled, `Allocation.check` raises it, or `SlotState.check` for
    what was written, so that nothing need be waited for.

    >>> keys = torch.eye(3)[[1, 0, 2, 0, 1, 2]].reshape(1, 6, 1, 3)
    >>> allocate(keys, tau=0.5).assign.flatten().tolist()
    [0, 1, 2, 1, 0, 2]
    """
    door.check(keys, tau, state, mask, sequences, chunk, capacity)
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {get_args(Impl)}, got {impl!r}")
    B, L, H, D = keys.shape
    sequence, mask = door.packed(sequences, mask, L)
    bars = door.taus(tau, keys).flatten()  # (N,)
    before = keys.new_empty(B, H, 0, D) if state is None else state.keys
    n_before = bars.new_zeros(B, H, dtype=torch.int64) if state is None else state.n_slots
    S = capacity or (L if state is None else state.keys.shape[2])
    held = (before.flatten(0, 1), n_before.flatten(), S)
    run = None
    if sequence is None and not torch.compiler.is_compiling():
        run = engine.begin(keys.detach(), bars, mask, *held, impl)
    found = (
        _by_torch(keys, bars, mask, sequence, n_before, *held, chunk, impl)
        if run is None or run.laid is None
        else _by_kernels(run, run.laid, mask, n_before)
    )
    return found.check() if _at_once(keys) else found


def _by_kernels(run: Run, laid: Laid, mask: Tensor | None, n_before: Tensor) -> Later:
    """What the kernels have decided."""
    lead, slot, opener = run.assigned()
    B, H = n_before.shape
    lead, assign = _deep(lead, H), _deep(slot.long(), H)
    counts = (x.long().view(B, H) for x in (run.open, run.lost, laid.refused))
    # Nobody sees the slots in the places of nearest and novelty.
    fields = (lead, assign, assign, assign, opener.view(B, H, -1), *counts, mask, None)
    return Later.of(run, slot, *fields)


def _by_torch(
    keys: Tensor,
    bars: Tensor,
    mask: Tensor | None,
    sequence: Tensor | None,
    n_before: Tensor,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
    impl: Impl,
) -> Allocation:
    """What an engine decides of streams in order."""
    B, H = n_before.shape
    rows = _streams(keys)
    length = torch.linalg.vector_norm(rows, dim=-1)  # (N, L)
    good = (length > LENGTHS[0]) & (length < LENGTHS[1]) & ~bars.isnan()[:, None]
    real = torch.ones_like(good) if mask is None else mask.repeat_interleave(H, 0)
    refused, valid = (real & ~good).sum(1), real & good
    told = (rows, torch.where(bars.isnan(), 0, bars), valid)
    ids = None if sequence is None else sequence.repeat_interleave(H, 0)
    # The operator is for compilers. Calling it would first import them, which takes seconds.
    decide = engine.operator if torch.compiler.is_compiling() else engine.run
    lead, nearest, novelty, overflow = decide(*told, ids, slots, n_slots, capacity, chunk, impl)
    own = n_slots[:, None] + lead.cumsum(1) - 1
    assign = torch.where(lead, own, nearest).masked_fill(~valid, -1)
    lead, assign, nearest, novelty = (_deep(x, H) for x in (lead, assign, nearest, novelty))
    opener = _openers(lead, assign, capacity)
    counts = (n_before + lead.sum(1), overflow.reshape(B, H), refused.reshape(B, H))
    return Allocation(lead, assign, nearest, novelty, opener, *counts, mask, sequence)


def _at_once(keys: Tensor) -> bool:
    """Whether a look at the numbers makes nobody wait."""
    return keys.is_cpu and not torch.compiler.is_compiling()


def _streams(keys: Tensor) -> Tensor:
    """Keys (B, L, H, D) as streams (N, L, D), in 32 bits or more."""
    wide = keys.detach().to(torch.promote_types(keys.dtype, torch.float32))
    return wide.transpose(1, 2).flatten(0, 1).contiguous()


def _deep(x: Tensor, H: int) -> Tensor:
    """Streams (N, L) as (B, L, H)."""
    return x.reshape(-1, H, x.shape[1]).transpose(1, 2)


def _openers(lead: Tensor, assign: Tensor, S: int) -> Tensor:
    """The token that opened each slot (B, H, S), or -1."""
    B, L, H = lead.shape
    place = torch.arange(L, device=lead.device).expand(B, H, L)
    slot = torch.where(lead, assign, S).transpose(1, 2)
    return torch.full((B, H, S + 1), -1, device=lead.device).scatter(2, slot, place)[..., :S]
