"""The tokens of a forward pass: positions, padding, and checks before any state changes."""

# B sequences, L tokens of this pass, T tokens seen before it

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
from .model_support import check_causal

if TYPE_CHECKING:
    from .cache import DistinctCache, Holding
    from .layer import DistinctLayer


# B streams, L tokens of this pass, T tokens seen before it


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


# B streams, L tokens of a pass, T tokens seen before it


class Behind(int):
    """Columns of a mask, T + L, some of which are slots: so its maker knows whose mask it is."""


def mask(*args: Any, **told: Any) -> Tensor | None:  # noqa: ANN401 - what transformers passes on
    """What masks are made by under our name: sdpa's, or None for slots where nothing is padded."""
    from transformers.masking_utils import sdpa_mask

    columns, padding = told.get("kv_length"), told.get("attention_mask")
    if (
        isinstance(columns, Behind)
        and told.get("allow_is_causal_skip")
        and _whole(padding, columns)
    ):
        return None
    made: Tensor | None = sdpa_mask(*args, **told)
    return made


def _whole(padding: Tensor | None, columns: int) -> bool:
    """Whether a 2D mask (B, T + L) hides nothing."""
    if padding is None:
        return True
    return padding.dim() == 2 and padding.shape[1] == columns and bool(padding.all())


def columns(seen: int, length: int, outside: int) -> int:
    """Columns of the mask of a pass, of which the last ``outside`` of the seen are no slots."""
    traced = torch.compiler.is_compiling()
    return seen + length if outside == seen or traced else Behind(seen + length)


NEVER = ("softcap", "s_aux", "sliding_window", "position_bias")  # attention that we do not do


def check_keys(cache: DistinctCache, layer: DistinctLayer, keys: Tensor) -> None:
    """Refuse keys of another model, as far as keys can tell."""
    heads, size = cache.anatomy.heads, cache.anatomy.sizes["head_dim"]
    if keys.shape[1] != heads or keys.shape[3] != size:
        raise WrongModelError(
            f"keys of {keys.shape[1]} heads of {keys.shape[3]} came to a cache of {heads} of "
            f"{size}: another model uses it; make one with distinct_cache(model)"
        )
    _check_place(keys, layer)


def _check_place(keys: Tensor, layer: DistinctLayer) -> None:
    """Refuse keys of another type, or from another device, than those that are held."""
    if not layer.is_initialized:
        return
    now, held = (keys.dtype, keys.device), (layer.keys.dtype, layer.keys.device)
    if now != held:
        raise WrongModelError(
            f"keys are {now[0]} on {now[1]}, the cache holds {held[0]} on {held[1]}: the model was "
            "moved; move it back, or reset() the cache and give the context again"
        )


def check_stock(cache: DistinctCache, layer: DistinctLayer, length: int) -> None:
    """Any attention will do while there is nothing to merge."""
    plan = cache.plan
    if plan.merges and layer.seen + length > plan.sinks + plan.newest(layer.seen + length):
        raise UnsupportedModelError(
            f"attention is {cache.anatomy.config._attn_implementation!r}, which cannot read "
            f"slots; call model.set_attn_implementation({NAME!r}), or say kept=1.0"
        )


def check_caller(cache: DistinctCache, module: nn.Module) -> int:
    """The layer that attends, when it is the one whose keys were handed over."""
    index, cache.awaited = cache.awaited, None
    if index is None or module is not cache.anatomy.attentions[index]:
        raise WrongModelError(
            "this cache was made for another model; make one with distinct_cache(model)"
        )
    return index


def check_wishes(dropout: float, positions: Tensor | None, options: dict[str, object]) -> Tensor:
    """The positions, when attention is asked for nothing that slots cannot do."""
    if dropout:
        raise UnsupportedModelError(
            f"dropout is {dropout}, and slots are not dropped; call model.eval()"
        )
    if positions is None:
        raise UnsupportedModelError(
            "the model does not tell its attention the position_ids, by which keys are turned "
            "back; use a DynamicCache with it"
        )
    wishes = [name for name in NEVER if options.get(name) is not None]
    if options.get("is_causal") is False:
        wishes.append("is_causal=False")
    if wishes:
        raise UnsupportedModelError(
            f"attention was asked for {' and '.join(wishes)}, which slots do not have; "
            "use a DynamicCache with this model"
        )
    return positions


def admit(
    cache: DistinctCache, index: int, key: Tensor, positions: Tensor, mask: Tensor | None
) -> Arrival:
    """The tokens of this pass, checked once, at the first layer."""
    layer = cache.layers[index]
    if index == 0:
        check_causal(cache.anatomy.config, *cache.anatomy.attentions)
        check_whole(cache)
        cache.arrival = _arrive(cache, layer, key, positions, mask)
        cache.cut = True  # its tokens are counted: an error from here on leaves layers apart
        cache.window = layer.grow(cache.arrival)
    arrival = cache.arrival
    if arrival is None or layer.seen != arrival.seen:
        raise BrokenForwardError(
            f"layer {index} has seen {layer.seen} tokens, layer 0 {arrival and arrival.seen}: "
            "a forward pass was cut short; reset() the cache and give the context again"
        )
    return arrival


def check_whole(cache: Holding) -> None:
    """Refuse a cache of which a pass has changed some layers and not all."""
    if cache.cut:
        raise BrokenForwardError(
            f"a forward pass was cut short after {cache.layers[0].seen} tokens, so layers differ; "
            "reset() the cache and give the context again"
        )


def check_windows(cache: DistinctCache) -> None:
    """Refuse tokens that somebody else took out of the window of a layer, or put in."""
    held = [layer.outside for layer in cache.layers]
    assert cache.window is not None
    there = cache.window.real.shape[1]
    for index, columns in enumerate(held):
        if columns != there:
            raise BrokenForwardError(
                f"layer {index} holds {columns} columns of {there}: something else changed it, as "
                "a press of kvpress does; give that a DynamicCache, and reset() this one"
            )


def _arrive(
    cache: DistinctCache,
    layer: DistinctLayer,
    key: Tensor,
    positions: Tensor,
    mask: Tensor | None,
) -> Arrival:
    known = 0 if cache.streams is None else cache.streams.seen
    if layer.seen != known:
        raise UnsupportedModelError(
            f"{layer.seen - known} of {layer.seen} tokens came under another attention, so their "
            "positions are not known; reset() the cache and begin again"
        )
    frequencies, turning = cache.frequencies, _turning(cache)
    if not _same(turning, cache.turning):
        frequencies = cache.anatomy.rotary.check(frequencies)
    B, _, L, _ = key.shape
    streams = cache.streams or Streams.start(B)
    arrival = streams.admit(positions.to(key.device), mask, B, L)
    cache.turning = turning
    if cache.streams is None:
        assert frequencies is not None  # a cache that has seen nothing has not seen them turn
        cache.streams = streams
        cache.turn_at(frequencies)
        cache.sizing.start(B)
    return arrival


def frequencies_known(cache: DistinctCache) -> bool:
    """Whether keys are turned as they were in the pass before."""
    return _same(_turning(cache), cache.turning)


def _turning(cache: DistinctCache) -> tuple[Tensor, int] | None:
    """The model's tensor of frequencies, and how often it was written to, if that is known."""
    now: Tensor = cache.anatomy.rotary.module.inv_freq  # type: ignore[assignment]
    return None if now.is_inference() else (now, now._version)


def _same(now: tuple[Tensor, int] | None, before: tuple[Tensor, int] | None) -> bool:
    """Whether frequencies cannot have moved, so that nobody must wait to compare them."""
    if now is None or before is None:
        return False
    return now[0] is before[0] and now[1] == before[1]
