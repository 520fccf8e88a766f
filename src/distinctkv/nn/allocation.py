"""Allocate slots for whole batches of keys: the rule of `distinctkv.rule` in torch, id for id."""

# B sequences, L tokens, H heads, D key size, S slots

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .. import kernels
from ..kernels.limits import LENGTHS
from . import leaders
from .slot_state import SlotState, check_inputs, least, packed, reads_without_sync, taus

if TYPE_CHECKING:
    from ..kernels.allocate import Laid, Run


# B batch, L tokens, H heads, S slots, N = B * H streams


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
        if reads_without_sync(self.lead) and (n := int(self.astray(state).sum())):
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


Impl = Literal["auto", "torch", "triton"]
Answer = tuple[Tensor, Tensor, Tensor, Tensor]
Engine = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor, int, int], Answer]

SCHEMA = (
    "(Tensor rows, Tensor tau, Tensor valid, Tensor? sequence, Tensor slots, Tensor n_slots, "
    "int capacity, int chunk, str impl) -> (Tensor, Tensor, Tensor, Tensor)"
)


def choose(impl: str, device: torch.device) -> Engine:
    """The engine to run: Triton on CUDA where it is installed, torch elsewhere."""
    if impl == "torch" or (impl == "auto" and device.type != "cuda"):
        return leaders.allocate
    if not kernels.installed():
        if impl == "auto":
            return leaders.allocate
        raise ImportError("impl='triton' needs Triton; it comes with torch for CUDA")
    return _allocate_by_kernels


def _allocate_by_kernels(
    rows: Tensor,
    tau: Tensor,
    valid: Tensor,
    sequence: Tensor | None,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
) -> Answer:
    """`leaders.allocate`, id for id, in Triton.

    ``chunk`` is for that engine; this one cuts as suits the device. Packed sequences, float64
    keys and odd key sizes are left to it.
    """
    from ..kernels.allocate import Room, Run
    from ..kernels.limits import WIDTHS

    if sequence is not None or rows.dtype != torch.float32 or rows.shape[2] not in WIDTHS:
        return leaders.allocate(rows, tau, valid, sequence, slots, n_slots, capacity, chunk)
    run = Run(rows, tau, valid, Room(slots, n_slots, capacity))
    return run.leads(), run.nearest().long(), run.novelty(), run.lost.long()


def run(
    rows: Tensor,
    tau: Tensor,
    valid: Tensor,
    sequence: Tensor | None,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    chunk: int,
    impl: str,
) -> Answer:
    """What the chosen engine answers, in full precision whatever autocast says."""
    with torch.autocast(rows.device.type, enabled=False):
        engine = choose(impl, rows.device)
        return engine(rows, tau, valid, sequence, slots, n_slots, capacity, chunk)


def begin(
    keys: Tensor,
    tau: Tensor,
    mask: Tensor | None,
    slots: Tensor,
    n_slots: Tensor,
    capacity: int,
    impl: str,
) -> Run | None:
    """What the kernels decide of keys (B, L, H, D), with nobody asked yet which slot is nearest.

    None where torch decides. ``tau`` (N,) may be nan, which refuses a stream's keys.
    """
    if choose(impl, keys.device) is leaders.allocate:
        return None
    from ..kernels.allocate import Room, Run, laid_out
    from ..kernels.limits import WIDTHS

    if keys.dtype == torch.float64 or keys.shape[3] not in WIDTHS:
        return None
    with torch.autocast(keys.device.type, enabled=False):
        laid, room = laid_out(keys, tau, mask), Room(slots, n_slots, capacity)
        return Run(laid.rows, tau.nan_to_num(0.0, inf, -inf), laid.valid, room, laid=laid)


def _shapes(rows: Tensor, *_: object) -> Answer:
    """Empty tensors like those `run` returns, for a compiler."""
    N, L, _D = rows.shape
    return (
        rows.new_empty(N, L, dtype=torch.bool),
        rows.new_empty(N, L, dtype=torch.int64),
        rows.new_empty(N, L),
        rows.new_empty(N, dtype=torch.int64),
    )


operator = torch.library.custom_op("distinctkv::allocate", run, mutates_args=(), schema=SCHEMA)
operator.register_fake(_shapes)


# B batch, L tokens, H heads, D key size, S slots, N = B * H streams


def unit(keys: Tensor) -> Tensor:
    """Keys scaled to length one, worked out in float64.

    A key of zeros becomes nan, so that nobody takes it for a key, and passes no gradient.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    if not keys.is_floating_point():
        raise ValueError(f"keys must be floats, got {keys.dtype}; keys.float() are")
    wide = keys.double()
    if keys.dtype == torch.float64:  # squares may leave its range: bring rows near one first
        size = wide.detach().abs().amax(-1, keepdim=True)
        power = torch.frexp(size).exponent.clamp(-1000, 1000)
        wide = wide * torch.ldexp(torch.ones_like(size), -power)
    length: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    if least(length) > 0:
        return (wide / length).to(keys.dtype)
    none = length == 0
    return (wide / length.masked_fill(none, 1)).masked_fill(none, torch.nan).to(keys.dtype)


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
    token opens a slot (layers take 0 to 2, as `Concentration` does). No gradient passes.

    ``state`` holds slots from before and is not changed. ``mask`` (B, L) is true for real tokens.
    ``sequences`` are packed and start empty: ids (B, L), each a run that does not come back, or
    cumulative lengths for B = 1, behind the last of which tokens are padding. Slots are numbered
    on from one sequence of a row to the next.
    ``capacity`` bounds the slots of a stream (by default nothing can overflow). A novel token
    without room merges into the nearest slot and is counted. A key that is not finite or not of
    length one, or whose tau is nan, is left out like padding and counted. On the CPU either is an
    error at once; on a device or compiled, `Allocation.check` raises it, or `SlotState.check` for
    what was written, so that nothing need be waited for.

    >>> keys = torch.eye(3)[[1, 0, 2, 0, 1, 2]].reshape(1, 6, 1, 3)
    >>> allocate(keys, tau=0.5).assign.flatten().tolist()
    [0, 1, 2, 1, 0, 2]
    """
    check_inputs(keys, tau, state, mask, sequences, chunk, capacity)
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {get_args(Impl)}, got {impl!r}")
    B, L, H, D = keys.shape
    sequence, mask = packed(sequences, mask, L)
    bars = taus(tau, keys).flatten()  # (N,)
    before = keys.new_empty(B, H, 0, D) if state is None else state.keys
    n_before = bars.new_zeros(B, H, dtype=torch.int64) if state is None else state.n_slots
    S = capacity or (L if state is None else state.keys.shape[2])
    held = (before.flatten(0, 1), n_before.flatten(), S)
    run = None
    if sequence is None and not torch.compiler.is_compiling():
        run = begin(keys.detach(), bars, mask, *held, impl)
    seen = None if state is None else state.seen.clone()  # writes count on in the state
    found = (
        _by_torch(keys, bars, mask, sequence, seen, n_before, *held, chunk, impl)
        if run is None or run.laid is None
        else _by_kernels(run, run.laid, mask, seen, n_before)
    )
    return found.check() if reads_without_sync(keys) else found


def _by_kernels(
    run: Run, laid: Laid, mask: Tensor | None, seen: Tensor | None, n_before: Tensor
) -> Later:
    """What the kernels have decided."""
    lead, slot, opener = run.assigned()
    B, H = n_before.shape
    lead, assign = deep(lead, H), deep(slot.long(), H)
    counts = (x.long().view(B, H) for x in (run.open, run.lost, laid.refused))
    # Nobody sees the slots in the places of nearest and novelty.
    fields = (lead, assign, assign, assign, opener.view(B, H, -1), *counts, mask, None, seen)
    return Later.of(run, slot, *fields)


def _by_torch(
    keys: Tensor,
    bars: Tensor,
    mask: Tensor | None,
    sequence: Tensor | None,
    seen: Tensor | None,
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
    decide = operator if torch.compiler.is_compiling() else run
    lead, nearest, novelty, overflow = decide(*told, ids, slots, n_slots, capacity, chunk, impl)
    own = n_slots[:, None] + lead.cumsum(1) - 1
    assign = torch.where(lead, own, nearest).masked_fill(~valid, -1)
    lead, assign, nearest, novelty = (deep(x, H) for x in (lead, assign, nearest, novelty))
    opener = _openers(lead, assign, capacity)
    counts = (n_before + lead.sum(1), overflow.reshape(B, H), refused.reshape(B, H))
    return Allocation(lead, assign, nearest, novelty, opener, *counts, mask, sequence, seen)


def _streams(keys: Tensor) -> Tensor:
    """Keys (B, L, H, D) as streams (N, L, D), in 32 bits or more."""
    wide = keys.detach().to(torch.promote_types(keys.dtype, torch.float32))
    return wide.transpose(1, 2).flatten(0, 1).contiguous()


def _openers(lead: Tensor, assign: Tensor, S: int) -> Tensor:
    """The token that opened each slot (B, H, S), or -1."""
    B, L, H = lead.shape
    place = torch.arange(L, device=lead.device).expand(B, H, L)
    slot = torch.where(lead, assign, S).transpose(1, 2)
    return torch.full((B, H, S + 1), -1, device=lead.device).scatter(2, slot, place)[..., :S]
