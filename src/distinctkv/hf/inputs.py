"""The tokens of a forward pass: positions, padding, and checks before any state changes."""

# B sequences, L tokens of this pass, T tokens seen before it, R tokens of the window

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from .config import (
    NAME,
    BrokenForwardError,
    MaskError,
    PositionError,
    UnsupportedModelError,
    WrongModelError,
)

if TYPE_CHECKING:
    from .cache import DistinctCache
    from .layer import DistinctLayer

GROW = "positions must grow from pass to pass: give them in order, or reset() the cache"
# Options of attention that slots do not have.
UNSUPPORTED = ("softcap", "s_aux", "sliding_window", "position_bias")


class NewTokens(NamedTuple):
    """The tokens of one forward pass."""

    start: int  # tokens seen before
    positions: Tensor  # (B, L)
    mask: Tensor  # (B, L), False for padding


class Window(NamedTuple):
    """The tokens of a window, the same for all layers."""

    positions: Tensor  # (B, R) int32
    mask: Tensor  # (B, R), False for padding

    def to(self, device: torch.device) -> Window:
        """The same on the device of a layer."""
        return Window(self.positions.to(device), self.mask.to(device))


@dataclass(slots=True)
class Batch:
    """Tokens seen, padding on the left (on the CPU), and the last position of each sequence."""

    seq_length: int
    padding: Tensor  # (B,)
    last: Tensor  # (B,), on the CPU or, after steps in place, on the device

    @classmethod
    def start(cls, size: int) -> Batch:
        """Nothing seen."""
        zeros = torch.zeros(size, dtype=torch.int64)
        return cls(0, zeros, zeros - 1)

    def admit(self, positions: Tensor, mask: Tensor | None, size: int, length: int) -> NewTokens:
        """Check the tokens of a forward pass, and count them as seen."""
        if size != len(self.padding):
            raise ValueError(
                f"the cache holds {len(self.padding)} sequences, this pass has {size}; use "
                "batch_repeat_interleave or batch_select_indices, or reset()"
            )
        padding = self._padding(mask, size, length)
        columns = torch.arange(self.seq_length, self.seq_length + length)
        real = columns >= padding[:, None]
        # Without padding, the one synchronisation of a pass.
        last = self._last(positions.cpu().expand(size, length).long(), real)
        new = NewTokens(
            self.seq_length,
            positions.expand(size, length),
            real.to(positions.device, non_blocking=True),
        )
        self.padding, self.last, self.seq_length = padding, last, self.seq_length + length
        return new

    def advance(self, positions: Tensor) -> None:
        """Count one token of each sequence, at (B, 1) positions."""
        self.last, self.seq_length = positions[:, 0].long().clone(), self.seq_length + 1

    def tokens(self) -> list[int]:
        """Tokens of each sequence, without padding."""
        counts: list[int] = (self.seq_length - self.padding).tolist()
        return counts

    def in_window(self, sequence: int, columns: int) -> int:
        """Tokens of a sequence, without padding, among the newest columns."""
        return columns - max(int(self.padding[sequence]) - (self.seq_length - columns), 0)

    def _padding(self, mask: Tensor | None, size: int, length: int) -> Tensor:
        """Columns of padding at the start of each sequence, by a (B, T + L) or causal 4D mask."""
        total = self.seq_length + length
        if mask is None:
            if bool(self.padding.any()):
                raise MaskError(
                    f"earlier tokens were padded by {self.padding.tolist()}, but this pass has no "
                    "attention_mask; give the mask of all tokens so far"
                )
            return self.padding
        real = mask[:, 0, -1] if mask.dim() == 4 else mask
        if mask.dtype != torch.bool or real.shape[1:] != (total,) or len(real) not in (1, size):
            raise MaskError(
                f"the mask is {mask.dtype} of shape {tuple(mask.shape)}, not one of {total} tokens "
                f"of {size} sequences; give a 2D attention_mask over all tokens so far"
            )
        padding = (~real).sum(1)
        columns = torch.arange(total, device=mask.device)
        left = columns >= padding[:, None]
        wrong = not torch.equal(real, left)
        if mask.dim() == 4:
            causal = columns <= columns[self.seq_length :, None]
            wrong |= not torch.equal(mask, (causal & left[:, None])[:, None].expand_as(mask))
        if wrong:
            raise MaskError(
                "the attention_mask is not causal with padding on the left; give a 2D mask over "
                "all tokens so far, those of earlier passes too, and pad with padding_side='left'"
            )
        padding = padding.cpu().expand(size)
        if not torch.equal(padding.clamp(max=self.seq_length), self.padding):
            raise MaskError(
                f"the mask pads {padding.tolist()} tokens, earlier passes {self.padding.tolist()}; "
                "slots cannot be masked afterwards: give the same mask, extended"
            )
        return padding

    def _last(self, positions: Tensor, real: Tensor) -> Tensor:
        """The last positions, if the positions of all tokens grow."""
        self.last = self.last.cpu()
        before = torch.cat((self.last[:, None], positions[:, :-1]), 1)
        # The first token follows the last of the pass before, not the padding beside it.
        first = real & (real.cumsum(1) == 1)
        before = torch.where(first, self.last[:, None], before)
        wrong = (real & (positions <= before)).nonzero()
        if len(wrong):
            sequence, token = wrong[0].tolist()
            raise PositionError(
                f"token {token} of sequence {sequence} has position "
                f"{int(positions[sequence, token])} after {int(before[sequence, token])}; {GROW}"
            )
        return torch.where(real[:, -1], positions[:, -1], self.last)

    def select(self, sequences: Tensor) -> None:
        """Keep, repeat or reorder sequences."""
        sequences = sequences.cpu()
        self.padding, self.last = self.padding[sequences], self.last[sequences]

    def crop(self, seq_length: int, positions: Tensor, mask: Tensor) -> None:
        """Go back to fewer tokens, the last of which have (B, R) positions."""
        self.seq_length, self.padding = seq_length, self.padding.clamp(max=seq_length)
        self.last = torch.where(mask[:, -1], positions[:, -1].long(), -1).cpu()


class KVLength(int):
    """The length of a mask that is made for a `DistinctCache`."""


def kv_length(columns: int) -> int:
    """Columns of a mask; marked, so that `make_mask` knows the cache."""
    return columns if torch.compiler.is_compiling() else KVLength(columns)


def make_mask(*args: Any, **options: Any) -> Tensor | None:  # noqa: ANN401
    """What transformers calls: for our cache the 2D padding mask or None, else sdpa's mask."""
    from transformers.masking_utils import sdpa_mask

    padding, columns = options.get("attention_mask"), options.get("kv_length")
    if isinstance(columns, KVLength) and options.get("allow_is_causal_skip"):
        whole = padding is None or (padding.shape[-1] == columns and bool(padding.all()))
        return None if whole else padding
    made: Tensor | None = sdpa_mask(*args, **options)
    return made


def visible(mask: Tensor, length: int) -> Tensor:
    """Whether query l of ``length`` sees column r of the window (B, R) that it ends, (B, L, R).

    Padding sees itself, so that no row of the softmax is empty.
    """
    R = mask.shape[1]
    columns = torch.arange(R, device=mask.device)
    rows = columns[R - length :, None]
    return ((columns <= rows) & mask[:, None]) | (columns == rows)


def check_keys(cache: DistinctCache, layer: DistinctLayer, keys: Tensor) -> None:
    """Raise for keys of another model, or of another dtype or device than the cache's."""
    heads, size = cache.spec.heads, cache.spec.head_dim
    if keys.shape[1] != heads or keys.shape[3] != size:
        raise WrongModelError(
            f"keys have {keys.shape[1]} heads of {keys.shape[3]}, the cache {heads} of {size}: "
            "another model uses it; make one with distinct_cache(model)"
        )
    if layer.is_initialized:
        now, held = (keys.dtype, keys.device), (layer.keys.dtype, layer.keys.device)
        if now != held:
            raise WrongModelError(
                f"keys are {now[0]} on {now[1]}, the cache holds {held[0]} on {held[1]}; move the "
                "model back, or reset() the cache and give the context again"
            )


def check_other_attention(cache: DistinctCache, layer: DistinctLayer, length: int) -> None:
    """Any attention can read the cache while there is nothing to merge."""
    total = layer.seq_length + length
    if cache.merges and total > cache.config.sinks + cache.budget.recent(total):
        raise UnsupportedModelError(
            f"attention is {cache.spec.config._attn_implementation!r}, which cannot read slots; "
            f"call model.set_attn_implementation({NAME!r}), or give kept=1.0"
        )


def check_options(dropout: float, positions: Tensor | None, options: dict[str, object]) -> Tensor:
    """The positions, if attention is asked for nothing that slots do not support."""
    if dropout:
        raise UnsupportedModelError(f"dropout is {dropout}; call model.eval()")
    if positions is None:
        raise UnsupportedModelError(
            "the model does not pass position_ids to its attention, which are needed to unrotate "
            "keys; use a DynamicCache with it"
        )
    found = [name for name in UNSUPPORTED if options.get(name) is not None]
    if options.get("is_causal") is False:
        found.append("is_causal=False")
    if found:
        raise UnsupportedModelError(
            f"attention was called with {' and '.join(found)}, which slots do not support; use a "
            "DynamicCache with this model"
        )
    return positions


def check_complete(cache: DistinctCache) -> None:
    """Raise if a pass has changed some layers and not all."""
    if cache.interrupted:
        raise BrokenForwardError(
            f"a forward pass was interrupted after {cache.layers[0].seq_length} tokens, so layers "
            "differ; reset() the cache and give the context again"
        )


def check_module(cache: DistinctCache, index: int | None, module: nn.Module) -> int:
    """The layer that attends, if it is the one whose keys were handed over last."""
    if index is None or module is not cache.spec.attentions[index]:
        raise WrongModelError(
            "this cache was made for another model; make one with distinct_cache(model)"
        )
    return index
