"""Steps of `generate` as one CUDA graph: Python does not launch their kernels one by one."""

# B sequences

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as base

from . import inputs
from .attention import read, received, takes
from .cache import DistinctCache
from .config import NAME
from .inputs import Outside
from .layer import DistinctLayer
from .model_support import Anatomy
from .slots import Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .cache import DistinctCache


WAITS, PROTOTYPE = "called a synchronizing", "Synchronization debug mode"  # as torch says it


class Recorder:
    """Makes graphs of a model's kernels, one after the other in the same memory."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self.keeper: torch.cuda.CUDAGraph | None = None
        self.stream: torch.cuda.Stream | None = None
        self.able, self.watched = True, False
        self.others: list[warnings.WarningMessage] = []
        self.news = ""  # why there is no graph, to be told when the step is over

    def _weights(self) -> Iterator[Tensor]:
        """Parameters and buffers as they are now."""
        for part in self.modules:
            yield from (one for one in part._parameters.values() if one is not None)
            yield from (one for one in part._buffers.values() if one is not None)

    def hooked(self) -> bool:
        """Whether somebody listens to a module, whom a graph would not call."""
        if base._global_forward_hooks or base._global_forward_pre_hooks:
            return True
        return any(part._forward_hooks or part._forward_pre_hooks for part in self.modules)

    def watch(self, run: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Do this, and see whether it waits for the device, as a graph may not.

        A recording that fails leaves torch's random numbers unusable, so none is begun in vain.
        """
        if self.watched or self._device().type != "cuda":
            return run()
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                out = run()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        self.watched, waits = True, [one for one in told if str(one.message).startswith(WAITS)]
        self.others = [one for one in told if one not in waits]
        if waits:
            self.able, self.news = False, "the model waits for the device"
        return out

    def tell(self) -> None:
        """Give on what was said meanwhile, and why there is no graph."""
        others, self.others = self.others, []
        for one in others:
            if not str(one.message).startswith(PROTOTYPE):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        news, self.news = self.news, ""
        if news:
            warnings.warn(f"steps go one by one, as {news}", stacklevel=2)

    def _device(self) -> torch.device:
        return next(self._weights()).device

    def record(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """A graph of what this does to replay, or the thing itself if that cannot be.

        Each replay gives the same tensors, with new numbers in them.
        """
        device = self._device()
        if not self.able or device.type != "cuda":
            return run
        with torch.cuda.device(device):
            try:
                if self.keeper is None:
                    self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                    self.keeper, _ = self._graph(lambda: torch.zeros(1, device=device))
                graph, made = self._graph(run)
            except RuntimeError as error:
                self.able, self.news = False, f"a graph failed: {error}"
                return run

        def replay() -> Any:  # noqa: ANN401
            graph.replay()
            return made

        return replay

    def _graph(self, run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """What this does and makes, in the memory that the keeper holds from graph to graph."""
        graph = torch.cuda.CUDAGraph()
        pool = None if self.keeper is None else self.keeper.pool()
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                made = run()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph, made


# B streams, H key-value heads, G query heads of each, R seats of a window, the last one included
# D key size, C value size


class Seats:
    """The window of a layer with room, and what is measured beside it."""

    def __init__(self, layer: DistinctLayer, room: int) -> None:
        assert layer.slots is not None
        self.layer, self.slots = layer, layer.slots
        self.slots.bounds()  # made now, so that no graph has to
        self.keys, self.values = _widen(layer.keys, 2, room), _widen(layer.values, 2, room)
        self.got = None if layer.got is None else _widen(layer.got, 2, room)
        self.asked: Tensor | None = None
        self.left = layer.keys, layer.values, len(layer.asked)

    def widen_asked(self, query: Tensor, room: int) -> Tensor:
        """Room for the queries that wait to be measured."""
        if self.asked is None:
            B, Q, _, D = query.shape
            self.asked = query.new_zeros(B, Q, room, D)
            for at, one in enumerate(self.layer.asked):
                self.asked[:, :, at : at + 1] = one
        return self.asked

    def same(self) -> bool:
        """Whether the layer is as the last step left it."""
        layer, (keys, values, waiting) = self.layer, self.left
        # Saving a cache, for one, measures the queries that wait.
        return layer.keys is keys and layer.values is values and len(layer.asked) == waiting

    def show(self, columns: int, outside: Outside) -> None:
        """Let the layer see one token more."""
        layer = self.layer
        layer.keys, layer.values = self.keys[:, :, :columns], self.values[:, :, :columns]
        layer.positions, layer.real = outside
        layer.seen += 1
        if self.got is not None:
            layer.got = self.got[..., :columns]
        if self.asked is not None:
            n = len(layer.asked)
            layer.asked.append(self.asked[:, :, n : n + 1])
        self.left = layer.keys, layer.values, len(layer.asked)


class Steps:
    """Steps of one token for each stream, from one absorbing to the next."""

    def __init__(self, cache: DistinctCache, model: Any, room: int) -> None:  # noqa: ANN401
        first = cache.layers[0]
        assert first.positions is not None
        assert first.real is not None
        self.cache, self.model, self.room = cache, model, room
        B, device = len(first.keys), first.keys.device
        self.layers = [Seats(layer, room + 1) for layer in cache.layers]
        self.places = _widen(first.positions, 1, room + 1)
        self.real = _widen(first.real, 1, room + 1)
        self.real[:, -1] = True
        self.ids = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.positions = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.seen = torch.zeros(B, 1, dtype=torch.long, device=device)
        self.seat = torch.tensor([first.outside], device=device)
        self.turn = torch.tensor([len(first.asked)], device=device)
        self.ran = False

    @property
    def left(self) -> int:
        """Tokens for which there is room."""
        return self.room - self.cache.layers[0].outside

    def same(self) -> bool:
        """Whether nobody else has changed the cache since the last step."""
        # Tensors made in inference mode can be written to in no other.
        mode = torch.is_inference_mode_enabled() or not self.ids.is_inference()
        return bool(self.layers) and mode and all(seats.same() for seats in self.layers)

    def tell(self, ids: Tensor, positions: Tensor) -> None:
        """The tokens of the next step, (B, 1), and where they stand, (B, 1) on the CPU."""
        streams = self.cache.streams
        assert streams is not None
        self.ids.copy_(ids)
        self.positions.copy_(positions, non_blocking=True)
        self.seen.copy_(streams.seen + 1 - streams.pads[:, None], non_blocking=True)

    def run(self) -> Any:  # noqa: ANN401
        """What the device does in a step, and gives; leaves all but tensors as it was."""
        self.cache.step = self
        try:
            out = self.model(
                input_ids=self.ids,
                position_ids=self.positions,
                past_key_values=self.cache,
                use_cache=True,
            )
        finally:
            self.cache.step = None
        self.places.index_copy_(1, self.seat, self.positions.to(self.places.dtype))
        self.real.index_fill_(1, self.seat, True)
        self.seat += 1
        self.turn += 1
        self.ran = True
        return out

    def attend(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """Attention of one layer, and its new token into the window."""
        seats, care = self.layers[index], self.cache.plan.care
        seats.keys[:, :, -1:], seats.values[:, :, -1:] = key, value
        slots: Slots = seats.slots
        out = read(query, seats.keys, seats.values, self.real, slots, scaling, care.cap)
        seats.keys.index_copy_(2, self.seat, key)
        seats.values.index_copy_(2, self.seat, value)
        if seats.got is not None:
            keys, seen = seats.keys, self.seen
            seats.got += received(query, keys, self.real, seen, slots, scaling, care.cap)
            seats.got.index_copy_(2, self.seat, seats.got[..., -1:].clone())
            seats.got[..., -1] = 0.0
        if self.cache.metric is None:
            room = self.left + len(seats.layer.asked)
            seats.widen_asked(query, room).index_copy_(2, self.turn, query)
            seats.layer.scaling = scaling
        return out.transpose(1, 2).contiguous()

    def close(self, positions: Tensor) -> None:
        """After a step: the cache has one token more, and absorbs if there are enough."""
        cache = self.cache
        assert cache.streams is not None
        columns = cache.layers[0].outside + 1
        cache.window = Outside(self.places[:, :columns], self.real[:, :columns])
        for seats in self.layers:
            seats.show(columns, cache.window)
        cache.streams.last = positions[:, 0].long().clone()
        cache.streams.seen += 1
        if cache.due(1):
            self.layers.clear()  # so that old slots go as new ones come
        cache.finish(1)


def _widen(tensor: Tensor, dim: int, room: int) -> Tensor:
    """The same with zeros after it."""
    shape = list(tensor.shape)
    shape[dim] = room
    wide = tensor.new_zeros(shape)
    wide.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return wide


# B streams


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
    ``forward`` is ours meanwhile. Weights and hooks are looked at when a graph is recorded, after
    each merge: a weight that is moved or a hook that is added in between is not noticed before the
    next merge. With hooks, steps run kernel by kernel.
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
        else:
            if self.replay is None:  # weights and hooks are looked at here only
                hooked = self.recorder.hooked()
                self.replay = steps.run if hooked else self.recorder.record(steps.run)
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
    same = inputs.frequencies_known(cache) and cache.anatomy.config._attn_implementation == NAME
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
