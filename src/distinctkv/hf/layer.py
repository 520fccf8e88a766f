"""One layer of the cache: slots behind, and in front of them the tokens that are not yet merged."""

# B streams, H key-value heads, L tokens, R tokens outside, D key size, C value size

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from . import inputs
from .config import CropError
from .inputs import Arrival, Outside
from .metric import Moments, measure, moments_of
from .rotary import Rotary
from .slots import Slots

MAX_WAITING = 64  # tokens that come one by one and wait to be merged together


class DistinctLayer(DynamicLayer):  # type: ignore[misc]
    """Slots of each stream and head, and the window of tokens outside (``keys``, ``values``).

    Until tokens are absorbed this is a `DynamicLayer`, and nothing else happens.
    """

    is_croppable = True

    def __init__(
        self, rotary: Rotary, *, usage: bool = False, trace: bool = False, recent: int = 32
    ) -> None:
        super().__init__()
        self.rotary, self.usage, self.trace, self.recent = rotary, usage, trace, recent
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        self.keys: Any = None  # (B, H, R, D), as in every DynamicLayer
        self.values: Any = None  # (B, H, R, C)
        self.is_initialized = False
        self.seen = 0
        self.slots: Slots | None = None
        self.moments: Moments | None = None
        self.positions: Tensor | None = None  # (B, R)
        self.real: Tensor | None = None  # (B, R)
        self.asked: list[Tensor] = []  # queries of the newest tokens, not measured yet
        self.measured: Tensor | None = None  # (B, H G, M, D), those before them, which crop needs
        self.scaling = 1.0  # of their logits
        self.got: Tensor | None = None  # (B, H, R), attention, where tokens are weighed by it
        self.owner: Tensor | None = None  # (B, H, tokens absorbed), the slot of each token

    # What transformers asks of a layer

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Add tokens to the window, and return the window."""
        self.hold(*self.window(key_states, value_states))
        self.seen += key_states.shape[-2]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens seen, by which models place the next one; not the slots."""
        return self.seen

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        """A mask over all tokens seen: it is where padding is read from."""
        # TODO: a plain int when transformers >= 5.3 is the oldest; before, positions are given.
        length = query_length if isinstance(query_length, int) else query_length.shape[0]
        return inputs.columns(self.seen, length, self.outside), 0

    def get_max_length(self) -> int:
        """No longest text."""
        return -1

    get_max_cache_shape = get_max_length

    def reset(self) -> None:
        """Forget everything."""
        self.clear()

    def crop(self, tokens: int) -> None:
        """Take back the last ``-tokens``, or all but the first ``tokens`` if that is positive."""
        remove = -tokens if tokens <= 0 else max(self.seen - tokens, 0)
        if remove == 0 or not self.is_initialized:
            return
        outside = self.keys.shape[-2]
        if remove >= self.seen:
            self.clear()
            return
        if remove > outside or (remove == outside and self.seen > outside):
            raise CropError(
                f"{remove} tokens cannot be taken back: the {self.seen - outside} before the last "
                f"{outside} are slots now; crop fewer, or make the cache with a larger recent"
            )
        self._crop_queries(remove)
        left = slice(outside - remove)
        self.keys, self.values = self.keys[:, :, left].clone(), self.values[:, :, left].clone()
        if self.positions is not None and self.real is not None:
            before = self.asking()[:, left].clamp(min=1)
            self.positions, self.real = self.positions[:, left], self.real[:, left]
            if self.got is not None:
                # Some of it came from queries that are gone: what is left is as much from each.
                self.got = self.got[..., left] * (self.asking().float() / before)[:, None]
        self.seen -= remove

    def _crop_queries(self, remove: int) -> None:
        """Take the newest queries back, those that are in the moments already too."""
        waiting = sum(query.shape[2] for query in self.asked)
        if waiting > remove:
            queries = torch.cat(self.asked, 2)[:, :, : waiting - remove]
            self.asked = list(torch.split(queries, 1, 2))
            return
        self.asked = []
        gone, known = remove - waiting, self.measured
        if gone and known is not None and self.moments is not None:
            n, stop = min(gone, known.shape[2]), self.outside - waiting
            dropped = known[:, :, known.shape[2] - n :]
            self.moments = self.moments.minus(moments_of(self, dropped, slice(stop - n, stop)))
            self.measured = known[:, :, : known.shape[2] - n].clone()

    def select(self, streams: Tensor) -> None:
        """Keep, repeat or reorder streams."""
        if not self.is_initialized:
            return
        self.measure()
        streams = streams.to(self.keys.device)
        for name in ("keys", "values", "positions", "real", "got", "owner", "measured"):
            tensor = getattr(self, name)
            if tensor is not None:
                setattr(self, name, tensor[streams])
        if self.slots is not None:
            self.slots = self.slots.select(streams)
        if self.moments is not None:
            self.moments.select(streams)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder streams, for beams."""
        self.select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some streams."""
        if indices.dtype == torch.bool:
            indices = indices.nonzero()[:, 0]
        self.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each stream."""
        if self.is_initialized:
            self.select(torch.arange(len(self.keys)).repeat_interleave(repeats))

    # What the cache asks of a layer

    @property
    def outside(self) -> int:
        """Columns that are not slots yet."""
        return int(self.keys.shape[-2]) if self.is_initialized else 0

    def asking(self) -> Tensor:
        """How many queries have seen each token of the window, (B, R): those from it on."""
        assert self.real is not None
        return self.real.flip(1).cumsum(1).flip(1)

    def window(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The window with new tokens at its end."""
        if not self.is_initialized:
            return keys, values
        return torch.cat((self.keys, keys), 2), torch.cat((self.values, values), 2)

    def grow(self, arrival: Arrival) -> Outside:
        """Positions of the window with new tokens at its end, and which of it is text."""
        positions, real = arrival.positions.to(torch.int32), arrival.real
        if self.positions is not None and self.real is not None:
            positions = torch.cat((self.positions, positions), 1)
            real = torch.cat((self.real, real), 1)
        return Outside(positions, real)

    def put(self, keys: Tensor, values: Tensor, outside: Outside) -> None:
        """Hold a window that ends with the tokens of this pass."""
        self.seen += keys.shape[2] - self.outside
        self.hold(keys.detach(), values.detach())
        self.positions, self.real = outside

    def ask(self, query: Tensor, scaling: float) -> None:
        """Remember the queries of the newest tokens until they are measured."""
        self.asked.append(query.detach())
        self.scaling = scaling

    def measure(self) -> None:
        """Add the queries that wait, and the values beside them, to the moments."""
        measure([self])

    def keep_measured(self, queries: Tensor) -> None:
        """Hold the measured queries (B, H G, L, D) of the newest tokens, for `crop`."""
        known = queries if self.measured is None else torch.cat((self.measured, queries), 2)
        n = min(known.shape[2], self.outside, self.recent + MAX_WAITING)
        self.measured = _own(known[:, :, known.shape[2] - n :])

    def trim_measured(self) -> None:
        """Hold no measured queries of tokens that are slots now: they cannot be taken back."""
        known = self.measured
        if known is not None and known.shape[2] > self.outside:
            self.measured = known[:, :, known.shape[2] - self.outside :].clone()

    def attend(self, got: Tensor) -> None:
        """Add to the attention that the tokens of the window, (B, H, R), have got."""
        if self.got is not None:
            got[..., : self.got.shape[2]] += self.got
        self.got = got

    def hold(self, keys: Tensor, values: Tensor) -> None:
        """Have this window, and no more memory than it needs."""
        self.keys, self.values, self.is_initialized = _own(keys), _own(values), True
        self.dtype, self.device = keys.dtype, keys.device


def _own(tensor: Tensor) -> Tensor:
    """A copy, if this is a view of something larger: some models cut keys and values from one."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor
