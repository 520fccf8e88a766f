"""Steps of `generate` as one graph of kernels: Python does not launch them token by token."""

# B streams

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from . import door
from .anatomy import Anatomy
from .attention import takes
from .cache import DistinctCache
from .errors import NAME
from .recording import Recorder
from .stepping import Steps

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# What a step may be told; all else must be off.
TOLD = {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache",
        "cache_position", "logits_to_keep", "return_dict"}  # fmt: skip


@contextmanager
def captured(model: PreTrainedModel) -> Iterator[None]:
    """Within this, the steps of a model with a cache of ours run as one graph on a CUDA device.

    >>> with captured(model):  # doctest: +SKIP
    ...     model.generate(ids, past_key_values=distinct_cache(model, kept=0.25))

    A step is a forward pass of one token for each stream. After tokens were absorbed the first
    runs kernel by kernel, the second is recorded, and those that follow are replayed. The kernels
    are those of a plain step, over a window with room, so that logits agree to rounding. All other
    passes, and those with another cache or on another device, go to the model as ever. Its
    ``forward`` is ours meanwhile: leave its modules as they are. While there are hooks on them
    steps run kernel by kernel.
    """
    Anatomy.of(model)  # or an error that says why not
    mine = model.forward = Capturing(model)
    try:
        yield
    finally:
        mine.close()


class Step(NamedTuple):
    """One new token for each stream of a cache."""

    cache: DistinctCache
    ids: Tensor  # (B, 1)
    positions: Tensor  # (B, 1), on the CPU


class Capturing:
    """A forward that runs steps in place, and hands on all else."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.forward = model, model.forward
        self.before = vars(model).get("forward")
        self.closed = False
        self.signature = inspect.signature(model.forward)
        kinds = {one.kind: name for name, one in self.signature.parameters.items()}
        self.rest = kinds.get(inspect.Parameter.VAR_KEYWORD, "")
        self.known: tuple[DistinctCache, list[Tensor]] | None = None  # what the last pass left
        self.steps: Steps | None = None
        self.replay: Callable[[], Any] | None = None
        self.recorder = Recorder(model)
        update_wrapper(self, model.forward, updated=())

    def close(self) -> None:
        """Put the model's own forward back, as soon as nobody's is on top of it."""
        self.closed, self.steps, self.replay, self.known = True, None, None, None
        while isinstance(top := vars(self.model).get("forward"), Capturing) and top.closed:
            del self.model.forward
            if top.before is not None:
                self.model.forward = top.before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What the model gives."""
        if self.closed:
            return self.forward(*args, **kwargs)
        step = self._step(self.signature.bind(*args, **kwargs).arguments)
        if step is not None and self._unchanged(step.cache):
            return self._run(step)
        self.steps = self.replay = self.known = None
        out = self.forward(*args, **kwargs)
        self.known = None if step is None else _left(step.cache)
        return out

    def _run(self, step: Step) -> Any:  # noqa: ANN401
        cache, steps = step.cache, self.steps
        if steps is None or not steps.same():
            self.steps = self.replay = None  # their memory goes first
            steps = self.steps = Steps(cache, self.forward, cache.plan.most + cache.block)
        steps.tell(step.ids, step.positions)
        cache.cut = True
        if not steps.ran:  # the first builds kernels
            out = self.recorder.watch(steps.run)
        elif self.recorder.hooked():
            out = steps.run()
        else:
            if self.replay is None or self.recorder.moved():
                self.replay = self.recorder.record(steps.run)
            out = self.replay()
        self.known = None
        steps.close(step.positions)
        cache.cut = False
        self.known = _left(cache)
        self.recorder.tell()
        return type(out)(logits=out.logits.clone(), past_key_values=cache)

    def _unchanged(self, cache: DistinctCache) -> bool:
        """Whether the cache is as the last pass left it; beams, for one, move streams each time."""
        if self.known is None or self.known[0] is not cache:
            return False
        now = [layer.keys for layer in cache.layers]
        return all(a is b for a, b in zip(self.known[1], now, strict=True))

    def _step(self, told: dict[str, Any]) -> Step | None:
        """A step that can run in place, or nothing if the model itself is to look at it."""
        told |= told.pop(self.rest, {})
        cache, ids = told.get("past_key_values"), told.get("input_ids")
        if not isinstance(cache, DistinctCache) or not isinstance(ids, Tensor):
            return None
        if self.model.training or torch.is_grad_enabled() or not _plain(told, self.model.config):
            return None
        if not (_settled(cache, ids) and _expected(cache, told.get("attention_mask"))):
            return None
        positions = _positions(cache, ids, told.get("position_ids"))
        return None if positions is None else Step(cache, ids, positions)


def _left(cache: DistinctCache) -> tuple[DistinctCache, list[Tensor]]:
    """A cache, and the windows by which to know whether it changes."""
    return cache, [layer.keys for layer in cache.layers]


def _plain(told: Mapping[str, Any], config: Any) -> bool:  # noqa: ANN401
    """Whether a pass is asked for logits and nothing else."""
    kept = told.get("logits_to_keep")
    more = ("output_hidden_states", "output_attentions")
    return (
        not any(getattr(config, name, False) for name in more)
        and getattr(config, "return_dict", True) is not False
        and all(told[name] is None or told[name] is False for name in told.keys() - TOLD)
        and told.get("use_cache") is not False
        and told.get("return_dict") is not False
        and (kept is None or (isinstance(kept, int) and kept in (0, 1)))
    )


def _settled(cache: DistinctCache, ids: Tensor) -> bool:
    """Whether every layer has slots that a kernel reads, and nothing about the cache is open."""
    first = cache.layers[0]
    if cache.streams is None or cache.cut or not cache.plan.merges:
        return False
    if ids.shape != (len(cache.streams.pads), 1) or ids.device != first.keys.device:
        return False
    slots = [layer.slots for layer in cache.layers if layer.slots is not None]
    same = door.frequencies_known(cache) and cache.anatomy.config._attn_implementation == NAME
    return (
        len(slots) == len(cache.layers)
        and same
        and not torch.is_autocast_enabled(ids.device.type)
        and not cache.anatomy.rotary.moves
        and all(layer.keys.device == first.keys.device for layer in cache.layers)
        and kernels(cache)
    )


def kernels(cache: DistinctCache) -> bool:
    """Whether attention over the slots is a kernel, so that no number is waited for."""
    first = cache.layers[0]
    assert first.slots is not None
    return takes(first.keys, first.keys, first.values, first.slots)


def _expected(cache: DistinctCache, mask: object) -> bool:
    """Whether a mask says what is known: padding on the left, and no more."""
    assert cache.streams is not None
    pads, total = cache.streams.pads, cache.streams.seen + 1
    if mask is None:
        return not bool(pads.any())
    if not isinstance(mask, Tensor) or mask.shape != (len(pads), total):
        return False
    real = torch.arange(total, device=mask.device) >= pads.to(mask.device)[:, None]
    return bool((mask.bool() == real).all())


def _positions(cache: DistinctCache, ids: Tensor, told: Tensor | None) -> Tensor | None:
    """Where the tokens stand, (B, 1) on the CPU, if they come after those before."""
    assert cache.streams is not None
    if told is None:
        told = torch.full((1, 1), cache.streams.seen)
    if told.shape not in ((1, 1), ids.shape) or told.is_floating_point():
        return None
    positions = told.cpu().expand(len(ids), 1)
    return positions if bool((positions[:, 0] > cache.streams.last).all()) else None
