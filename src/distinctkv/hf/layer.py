"""One layer of the cache: slots, and the window of recent tokens that are not merged yet."""

# B sequences, H key-value heads, G query heads of each, L tokens, R tokens of the window
# D key size, C value size

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from . import inputs
from .config import CropError
from .inputs import NewTokens, Window
from .metric import Moments, Rotary, accumulate, max_bytes
from .slots import Slots

MAX_WAITING = 64  # tokens that come one by one and are merged together
# Bytes of queries of all layers that may wait to be accumulated.
PENDING, PENDING_CUDA = 2**22, 2**29


class DistinctLayer(DynamicLayer):  # type: ignore[misc]
    """Slots of each sequence and head, and the window (``keys``, ``values``).

    Only this class assigns these tensors. Until tokens are merged it is a `DynamicLayer`.
    """

    is_croppable = True

    def __init__(self, rotary: Rotary, *, trace: bool = False, recent: int = 32) -> None:
        super().__init__()
        self.rotary, self.trace, self.recent = rotary, trace, recent
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self.keys: Any = None  # (B, H, R, D), as in every DynamicLayer
        self.values: Any = None  # (B, H, R, C)
        self.is_initialized = False
        self.seq_length = 0
        self.slots: Slots | None = None
        self.moments: Moments | None = None
        self.positions: Tensor | None = None  # (B, R)
        self.mask: Tensor | None = None  # (B, R), False for padding
        self.pending: list[Tensor] = []  # queries of the newest tokens, not in the moments yet
        self.counted: Tensor | None = None  # (B, H G, M, D), those before them, for `crop`
        self.scaling = 1.0  # of logits
        self.received: Tensor | None = None  # (B, H, R), attention received, if it is measured
        self.owner: Tensor | None = None  # (B, H, tokens merged), the slot of each; the trace

    # What transformers calls

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append tokens to the window, and return the window."""
        self.hold(*self.extended(key_states, value_states))
        self.seq_length += key_states.shape[-2]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens seen, not slots: models take the next position from it."""
        return self.seq_length

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        """A mask spans all tokens seen: padding is read from it."""
        # TODO: a plain int when transformers >= 5.3 is the oldest; before, positions are given.
        length = query_length if isinstance(query_length, int) else query_length.shape[0]
        return inputs.kv_length(self.seq_length + length), 0

    def get_max_length(self) -> int:
        """There is no longest text."""
        return -1

    get_max_cache_shape = get_max_length

    def reset(self) -> None:
        """Forget everything."""
        self.clear()

    def crop(self, tokens: int) -> None:
        """Take back the last ``-tokens``, or all but the first ``tokens`` if that is positive."""
        remove = -tokens if tokens <= 0 else max(self.seq_length - tokens, 0)
        if remove == 0 or not self.is_initialized:
            return
        R = self.window_length
        if remove >= self.seq_length:
            self.clear()
            return
        if remove > R or (remove == R and self.seq_length > R):
            raise CropError(
                f"cannot crop {remove} tokens: the {self.seq_length - R} before the last {R} are "
                "slots; crop fewer, or make the cache with a larger recent"
            )
        self._crop_queries(remove)
        left = slice(R - remove)
        self.keys, self.values = self.keys[:, :, left].clone(), self.values[:, :, left].clone()
        if self.positions is not None and self.mask is not None:
            before = self.n_queries()[:, left].clamp(min=1)
            self.positions, self.mask = self.positions[:, left], self.mask[:, left]
            if self.received is not None:
                # Part of it came from cropped queries: the mean over queries is kept.
                share = (self.n_queries().float() / before)[:, None]
                self.received = self.received[..., left] * share
        self.seq_length -= remove

    def _crop_queries(self, remove: int) -> None:
        """Remove the newest queries, also those that are in the moments already."""
        waiting = sum(query.shape[2] for query in self.pending)
        if waiting > remove:
            queries = torch.cat(self.pending, 2)[:, :, : waiting - remove]
            self.pending = list(torch.split(queries, 1, 2))
            return
        self.pending = []
        gone, known = remove - waiting, self.counted
        if gone and known is not None and self.moments is not None:
            assert self.positions is not None
            assert self.mask is not None
            n, stop = min(gone, known.shape[2]), self.window_length - waiting
            part = slice(stop - n, stop)
            (found,) = accumulate(
                [known[:, :, known.shape[2] - n :]],
                [self.values[:, :, part]],
                self.rotary,
                self.positions[:, part],
                self.mask[:, part],
                self.scaling,
            )
            self.moments = self.moments.plus(found, -1)
            self.counted = known[:, :, : known.shape[2] - n].clone()

    def select(self, sequences: Tensor) -> None:
        """Keep, repeat or reorder sequences."""
        if not self.is_initialized:
            return
        accumulate_pending([self])
        sequences = sequences.to(self.keys.device)
        for name in ("keys", "values", "positions", "mask", "received", "owner", "counted"):
            tensor = getattr(self, name)
            if tensor is not None:
                setattr(self, name, tensor[sequences])
        if self.slots is not None:
            self.slots = self.slots.select(sequences)
        if self.moments is not None:
            self.moments = self.moments.select(sequences)

    # What the cache calls

    @property
    def window_length(self) -> int:
        """Columns that are not merged yet."""
        return int(self.keys.shape[-2]) if self.is_initialized else 0

    def n_queries(self) -> Tensor:
        """Queries that saw each token of the window, (B, R): those from it on."""
        assert self.mask is not None
        return self.mask.flip(1).cumsum(1).flip(1)

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The window with new tokens at its end."""
        if not self.is_initialized:
            return keys, values
        return torch.cat((self.keys, keys), 2), torch.cat((self.values, values), 2)

    def extended_window(self, new: NewTokens) -> Window:
        """Positions and mask of the window with new tokens at its end."""
        positions, mask = new.positions.to(torch.int32), new.mask
        if self.positions is not None and self.mask is not None:
            positions = torch.cat((self.positions, positions), 1)
            mask = torch.cat((self.mask, mask), 1)
        return Window(positions, mask)

    def put(self, keys: Tensor, values: Tensor, window: Window) -> None:
        """Hold a window that ends with the tokens of this pass."""
        self.seq_length += keys.shape[2] - self.window_length
        self.hold(keys.detach(), values.detach())
        self.positions, self.mask = window

    def hold(self, keys: Tensor, values: Tensor) -> None:
        """Hold these keys and values, and no larger tensor that they are views of."""
        self.keys, self.values, self.is_initialized = _own(keys), _own(values), True
        self.dtype, self.device = keys.dtype, keys.device

    def add_query(self, query: Tensor, scaling: float) -> None:
        """Keep the queries of the newest tokens until they are accumulated."""
        self.pending.append(query.detach())
        self.scaling = scaling

    def add_moments(self, moments: Moments, queries: Tensor) -> None:
        """Count the moments of the pending queries, and keep the newest of these for `crop`."""
        self.moments = moments if self.moments is None else self.moments.plus(moments)
        self.pending = []
        known = queries if self.counted is None else torch.cat((self.counted, queries), 2)
        n = min(known.shape[2], self.window_length, self.recent + MAX_WAITING)
        self.counted = known[:, :, known.shape[2] - n :].clone()

    def add_received(self, received: Tensor) -> None:
        """Add the attention (B, H, R) that the tokens of the window received."""
        if self.received is not None:
            received[..., : self.received.shape[2]] += self.received
        self.received = received

    def set_slots(self, slots: Slots) -> None:
        """Hold these slots."""
        self.slots = slots

    def compact(self) -> None:
        """Hold slots end to end, without the room that steps in place leave behind each head."""
        if self.slots is not None:
            self.slots = self.slots.compact()

    def gather_pending(self, queries: Tensor) -> None:
        """Hold the pending queries as one tensor (B, H G, L, D) that has all of them."""
        self.pending = [queries]

    def append_trace(self, owner: Tensor) -> None:
        """The slots (B, H, L) of the tokens that are merged."""
        self.owner = owner if self.owner is None else torch.cat((self.owner, owner), 2)

    def remap_trace(self, moved: Tensor) -> None:
        """Slot s of a head is ``moved[..., s]`` (B, H, W) now."""
        if self.owner is not None and moved.shape[-1]:
            found = moved.gather(2, self.owner.long().clamp(min=0))
            self.owner = found.masked_fill(self.owner < 0, -1).to(self.owner.dtype)

    def set_window(
        self,
        keys: Tensor,
        values: Tensor,
        positions: Tensor,
        mask: Tensor,
        received: Tensor | None,
    ) -> None:
        """What is left of the window after a merge; merged tokens cannot be cropped any more."""
        self.keys, self.values, self.positions, self.mask = keys, values, positions, mask
        self.received = received
        known, R = self.counted, self.window_length
        if known is not None and known.shape[2] > R:
            self.counted = known[:, :, known.shape[2] - R :].clone()

    def share(self, first: DistinctLayer) -> None:
        """Hold the tensors that are the same in all layers once."""
        if self.is_initialized and self.keys.device == first.keys.device:
            self.positions, self.mask = first.positions, first.mask
            if self.moments is not None and first.moments is not None:
                self.moments.count = first.moments.count

    def advance(
        self,
        keys: Tensor,
        values: Tensor,
        window: Window,
        received: Tensor | None,
        query: Tensor | None,
    ) -> None:
        """One token more in buffers that the CUDA graph wrote to."""
        self.keys, self.values = keys, values
        self.positions, self.mask = window
        self.seq_length += 1
        if received is not None:
            self.received = received
        if query is not None:
            self.pending.append(query)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor but the pending queries, by name; what `restore` takes."""
        names = ("keys", "values", "positions", "mask", "received", "owner", "counted")
        found = {name: getattr(self, name) for name in names}
        if self.slots is not None:
            found |= {f"slots.{name}": part for name, part in self.slots.tensors().items()}
            found["slots.lengths"] = self.slots.lengths
        if self.moments is not None:
            moments = ("queries", "values", "count")
            found |= {f"moments.{name}": getattr(self.moments, name) for name in moments}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def restore(self, tensors: dict[str, Tensor], seq_length: int, scaling: float) -> None:
        """Hold saved `tensors`."""
        if "keys" not in tensors:
            return
        self.hold(tensors["keys"], tensors["values"])
        self.seq_length, self.scaling = seq_length, scaling
        for name in ("positions", "mask", "received", "owner", "counted"):
            setattr(self, name, tensors.get(name))
        parts: dict[str, dict[str, Tensor]] = {"slots": {}, "moments": {}}
        for name, tensor in tensors.items():
            kind, _, field = name.partition(".")
            if field:
                parts[kind][field] = tensor
        if parts["slots"]:
            lengths = parts["slots"].pop("lengths").cpu()
            self.slots = Slots(**parts["slots"], lengths=lengths)
        if parts["moments"]:
            self.moments = Moments(**parts["moments"])


def _own(tensor: Tensor) -> Tensor:
    """A copy, if this is a view of something larger: some models cut keys and values from one."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


def may_wait(queries: Sequence[Tensor], n_layers: int) -> bool:
    """Whether all layers may keep as many pending queries as one has, of all passes."""
    waiting = n_layers * sum(query.nbytes for query in queries)
    return waiting <= (PENDING if queries[0].is_cpu else PENDING_CUDA)


def accumulate_pending(layers: Sequence[DistinctLayer]) -> None:
    """Add the pending queries, and the values beside them, to the moments of their layers."""
    for part in _batches([layer for layer in layers if layer.pending]):
        first = part[0]
        assert first.positions is not None
        assert first.mask is not None
        joined = [layer.pending[0] if len(layer.pending) == 1 else torch.cat(layer.pending, 2)
                  for layer in part]  # fmt: skip
        L = joined[0].shape[2]
        found = accumulate(
            joined,
            [layer.values[:, :, -L:] for layer in part],
            first.rotary,
            first.positions[:, -L:],
            first.mask[:, -L:],
            first.scaling,
        )
        for layer, moments, queries in zip(part, found, joined, strict=True):
            layer.add_moments(moments, queries)


def _batches(layers: Sequence[DistinctLayer]) -> Iterator[list[DistinctLayer]]:
    """Layers of one device, as many as fit into memory at a time."""
    batch: list[DistinctLayer] = []
    for layer in layers:
        size = 4 * sum(query.numel() for query in layer.pending)
        fits = (len(batch) + 1) * size <= max_bytes(layer.pending[0])
        if batch and fits and batch[0].keys.device == layer.keys.device:
            batch.append(layer)
            continue
        if batch:
            yield batch
        batch = [layer]
    if batch:
        yield batch
