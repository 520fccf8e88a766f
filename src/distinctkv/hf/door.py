"""What is checked before any state changes: whose keys these are, and which tokens come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from .anatomy import check_causal
from .errors import NAME, BrokenForwardError, UnsupportedModelError, WrongModelError
from .streams import Arrival, Streams

if TYPE_CHECKING:
    from .cache import DistinctCache
    from .holding import Holding
    from .layer import DistinctLayer

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
