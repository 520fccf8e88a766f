"""What is known of each stream of a batch, and the checks at the door of every forward pass."""

# B streams, L tokens of this pass, T tokens seen before it

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import MaskError, PositionError

LAST = 2**31 - 1  # of positions, held as int32
LEFT = "only padding on the left can be told apart from text; pad there (padding_side='left')"


class Arrival(NamedTuple):
    """The tokens of one forward pass: where they stand, and which are more than padding."""

    seen: int
    positions: Tensor  # (B, L)
    real: Tensor  # (B, L)


class Outside(NamedTuple):
    """The tokens of a window, the same for all layers: where they stand, and which are text."""

    positions: Tensor  # (B, R) int32
    real: Tensor  # (B, R)

    def to(self, device: torch.device) -> Outside:
        """The same where the layer is."""
        return Outside(self.positions.to(device), self.real.to(device))


@dataclass(slots=True)
class Streams:
    """Tokens seen, padding on the left, and the last position of each stream; on the CPU."""

    seen: int
    pads: Tensor  # (B,)
    last: Tensor  # (B,)

    def __post_init__(self) -> None:
        """Have the numbers where looking at them does not wait for a device."""
        self.pads, self.last = self.pads.cpu(), self.last.cpu()

    @classmethod
    def start(cls, batch: int) -> Streams:
        """Nothing seen."""
        zeros = torch.zeros(batch, dtype=torch.int64)
        return cls(0, zeros, zeros - 1)

    def admit(self, positions: Tensor, mask: Tensor | None, batch: int, length: int) -> Arrival:
        """Check the tokens of a forward pass, and count them as seen."""
        if batch != len(self.pads):
            raise ValueError(
                f"the cache holds {len(self.pads)} streams, this pass has {batch}; "
                "use batch_repeat_interleave or batch_select_indices, or reset()"
            )
        pads = self._pads(mask, batch, length)
        columns = torch.arange(self.seen, self.seen + length)
        real = columns >= pads[:, None]
        # The one look at the device in a pass without padding.
        last = self._last(positions.cpu().expand(batch, length), real)
        arrival = Arrival(
            self.seen, positions.expand(batch, length), real.to(positions.device, non_blocking=True)
        )
        self.pads, self.last, self.seen = pads, last, self.seen + length
        return arrival

    def outside(self, stream: int, columns: int) -> int:
        """Tokens of a stream, without padding, among the newest columns."""
        return columns - max(int(self.pads[stream]) - (self.seen - columns), 0)

    def _pads(self, mask: Tensor | None, batch: int, length: int) -> Tensor:
        """How many columns of padding each stream begins with, now that a mask is known."""
        total = self.seen + length
        if mask is None:
            if bool(self.pads.any()):
                raise MaskError(
                    f"earlier tokens were padded by {self.pads.tolist()}, this pass has no "
                    "attention_mask or one that hides nothing; give the mask of all tokens so far"
                )
            return self.pads
        fits = mask.shape[-2:] == (length, total) and len(mask) in (1, batch)
        if mask.dtype != torch.bool or not fits:
            raise MaskError(
                f"the mask is {mask.dtype} of shape {tuple(mask.shape)}, not one of {total} "
                f"tokens of {batch} streams; give a 2D attention_mask over all tokens so far"
            )
        if mask.shape[1] != 1 and not bool((mask == mask[:, :1]).all()):
            raise MaskError(
                f"the mask of shape {tuple(mask.shape)} differs from head to head, and all heads "
                "of a stream hold the same tokens; give a 2D attention_mask"
            )
        there = (~mask[:, 0, -1]).sum(1)
        columns = torch.arange(total, device=mask.device)
        real = columns >= there[:, None]
        causal = columns <= columns[self.seen :, None]
        wrong = mask[:, 0] != (causal & real[:, None])
        if bool(wrong.any()):
            raise MaskError(f"the attention_mask {_fault(mask[:, 0], wrong)}")
        pads = there.cpu().expand(batch)
        if not torch.equal(pads.clamp(max=self.seen), self.pads):
            raise MaskError(
                f"the mask pads {pads.tolist()} tokens, earlier ones said {self.pads.tolist()}; "
                "what has become a slot cannot be masked, so give the same mask, grown"
            )
        return pads

    def _last(self, positions: Tensor, real: Tensor) -> Tensor:
        """The last positions, when all positions of real tokens grow."""
        whole = positions.long()  # small types do not reach as far as the last
        if positions.is_floating_point() or bool((whole > LAST).any()):
            raise PositionError(
                f"position_ids must be whole numbers up to {LAST}, got {positions.dtype} up to "
                f"{positions.max().item()}; keys are turned back by them, so count tokens"
            )
        positions = whole
        before = torch.cat((self.last[:, None], positions[:, :-1]), 1)
        # The first real token follows the last of the pass before, not the padding beside it.
        first = real & (real.cumsum(1) == 1)
        before = torch.where(first, self.last[:, None], before)
        wrong = (real & (positions <= before)).nonzero()
        if len(wrong):
            stream, token = wrong[0].tolist()
            raise PositionError(
                f"token {token} of stream {stream} is at position {int(positions[stream, token])} "
                f"after one at {int(before[stream, token])}; positions must grow from pass to "
                "pass, so give them in order, or reset() the cache"
            )
        return torch.where(real[:, -1], positions[:, -1], self.last)

    def select(self, streams: Tensor) -> None:
        """Keep, repeat or reorder streams."""
        streams = streams.cpu()
        self.pads, self.last = self.pads[streams], self.last[streams]

    def crop(self, seen: int, positions: Tensor, real: Tensor) -> None:
        """Go back to fewer tokens, the last of which stand at (B, R) positions."""
        self.seen, self.pads = seen, self.pads.clamp(max=seen)
        last = torch.where(real[:, -1], positions[:, -1].long(), -1)
        self.last = last.cpu()


def _fault(mask: Tensor, wrong: Tensor) -> str:
    """What is wrong with a (B, L, T + L) mask, and where."""
    last, total = mask[:, -1], mask.shape[2]
    gone = ((last.cumsum(1) > 0) & ~last).nonzero()
    if not len(gone):
        stream, row, column = wrong.nonzero()[0].tolist()
        must = "must not" if bool(mask[stream, row, column]) else "must"
        token = total - mask.shape[1] + row
        return f"is not causal: token {token} of stream {stream} {must} see token {column}; {LEFT}"
    stream, column = gone[0].tolist()
    if bool(last[stream, column:].any()):
        return f"has a hole at token {column} of stream {stream}; {LEFT}"
    return (
        f"leaves out the last {total - column} of {total} tokens of stream {stream}: it is too "
        "short, or pads on the right; give a mask over all tokens, those of earlier passes too, "
        "with padding on the left (padding_side='left')"
    )
