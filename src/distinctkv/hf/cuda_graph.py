"""Decoding steps of `generate` as one CUDA graph, instead of one launch for each kernel."""

# B sequences, H key-value heads, G query heads of each, R columns of a static window, the last one
# for the new token; D key size, C value size

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

from .attention import attention_received, kernel_takes, read
from .cache import DistinctCache
from .config import NAME
from .inputs import Window
from .layer import DistinctLayer
from .model_support import ModelSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SYNCHRONISES = "called a synchronizing"  # how torch's warning begins
# Arguments of a step; all others must be None or False.
ARGUMENTS = {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache",
             "cache_position", "logits_to_keep", "return_dict"}  # fmt: skip


@contextmanager
def captured(model: PreTrainedModel) -> Iterator[None]:
    """Within this, decoding steps with a `DistinctCache` run as one CUDA graph.

    >>> with captured(model):  # doctest: +SKIP
    ...     model.generate(ids, past_key_values=distinct_cache(model, kept=0.25))

    A step is a forward pass of one token for each sequence. After each merge the first step runs
    kernel by kernel, the second is recorded, and those that follow are replayed; logits agree with
    plain steps to rounding. All other passes, other caches and other devices go to the model
    unchanged. Weights and hooks are looked at when a graph is recorded: a weight that is moved or a
    hook that is added in between is not noticed before the next merge. With hooks, steps run
    kernel by kernel.
    """
    ModelSpec.of(model)  # raises for unsupported models
    mine = model.forward = CapturedForward(model)
    try:
        yield
    finally:
        mine.close()


class GraphRecorder:
    """Records graphs of a model's kernels, one after the other in the same memory pool."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.keeper: torch.cuda.CUDAGraph | None = None  # holds the pool between graphs
        self.stream: torch.cuda.Stream | None = None
        self.able, self.checked = True, False

    def has_hooks(self) -> bool:
        """Whether a module has hooks, which a graph would not call."""
        if base._global_forward_hooks or base._global_forward_pre_hooks:
            return True
        modules = self.model.modules()
        return any(part._forward_hooks or part._forward_pre_hooks for part in modules)

    def check(self, step: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Run a step, and see whether it synchronises, which a graph cannot.

        A recording that fails leaves torch's random numbers unusable, so none is begun in vain.
        """
        if self.checked or self._device().type != "cuda":
            return step()
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                out = step()
            finally:
                torch.cuda.set_sync_debug_mode(before)
        self.checked = True
        if any(str(one.message).startswith(SYNCHRONISES) for one in found):
            self.able = False
            warnings.warn("the model synchronises: steps run kernel by kernel", stacklevel=2)
        return out

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def record(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """A graph of the step to replay, or the step itself if that fails.

        Each replay returns the same tensors, with new elements.
        """
        device = self._device()
        if not self.able or device.type != "cuda" or self.has_hooks():
            return step
        with torch.cuda.device(device):
            try:
                if self.keeper is None:
                    self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                    self.keeper, _ = self._graph(lambda: torch.zeros(1, device=device))
                graph, out = self._graph(step)
            except RuntimeError as error:
                self.able = False
                warnings.warn(f"no graph, steps run kernel by kernel: {error}", stacklevel=2)
                return step

        def replay() -> Any:  # noqa: ANN401
            graph.replay()
            return out

        return replay

    def _graph(self, step: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        pool = None if self.keeper is None else self.keeper.pool()
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                out = step()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        return graph, out


class StaticLayer:
    """The window of a layer in a buffer with room, and what is measured beside it."""

    def __init__(self, layer: DistinctLayer, room: int) -> None:
        assert layer.slots is not None
        self.layer, self.slots = layer, layer.slots
        self.slots.bounds()  # made before a graph is recorded
        self.keys, self.values = _widen(layer.keys, 2, room), _widen(layer.values, 2, room)
        self.received = None if layer.received is None else _widen(layer.received, 2, room)
        self.pending: Tensor | None = None  # (B, H G, room, D) queries
        self.left = layer.keys, layer.values, len(layer.pending)

    def add_query(self, query: Tensor, index: Tensor, room: int) -> None:
        """Write the queries of the new token into the pending ones."""
        if self.pending is None:
            B, Q, _, D = query.shape
            self.pending = query.new_zeros(B, Q, room, D)
            for number, one in enumerate(self.layer.pending):
                self.pending[:, :, number : number + 1] = one
        self.pending.index_copy_(2, index, query)

    def is_unchanged(self) -> bool:
        """Whether the layer is as the last step left it."""
        layer, (keys, values, waiting) = self.layer, self.left
        # Saving a cache, for one, accumulates the pending queries.
        return layer.keys is keys and layer.values is values and len(layer.pending) == waiting

    def advance(self, columns: int, window: Window) -> None:
        """Show the layer one token more."""
        layer, n = self.layer, len(self.layer.pending)
        layer.advance(
            self.keys[:, :, :columns],
            self.values[:, :, :columns],
            window,
            None if self.received is None else self.received[..., :columns],
            None if self.pending is None else self.pending[:, :, n : n + 1],
        )
        self.left = layer.keys, layer.values, len(layer.pending)


class StaticStep:
    """Steps of one token for each sequence in static buffers, from one merge to the next."""

    def __init__(self, cache: DistinctCache, model: Any, room: int) -> None:  # noqa: ANN401
        first = cache.layers[0]
        assert first.positions is not None
        assert first.mask is not None
        self.cache, self.model, self.room = cache, model, room
        B, device = len(first.keys), first.keys.device
        self.layers = [StaticLayer(layer, room + 1) for layer in cache.layers]
        self.window_positions = _widen(first.positions, 1, room + 1)
        self.mask = _widen(first.mask, 1, room + 1)
        self.mask[:, -1] = True
        self.ids, self.positions, self.seen = (
            torch.zeros(B, 1, dtype=torch.long, device=device) for _ in range(3)
        )
        self.column = torch.tensor([first.window_length], device=device)  # of the new token
        self.query = torch.tensor([len(first.pending)], device=device)  # and of its queries
        self.ran = False

    def is_unchanged(self) -> bool:
        """Whether nobody else has changed the cache since the last step."""
        # Tensors made in inference mode can be written to in no other.
        mode = torch.is_inference_mode_enabled() or not self.ids.is_inference()
        return bool(self.layers) and mode and all(layer.is_unchanged() for layer in self.layers)

    def set_inputs(self, ids: Tensor, positions: Tensor) -> None:
        """The tokens (B, 1) of the next step, and their positions (B, 1) on the CPU."""
        batch = self.cache.batch
        assert batch is not None
        self.ids.copy_(ids)
        self.positions.copy_(positions, non_blocking=True)
        self.seen.copy_(batch.seq_length + 1 - batch.padding[:, None], non_blocking=True)

    def run(self) -> Any:  # noqa: ANN401
        """What the device does in a step; changes nothing but tensors."""
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
        positions = self.positions.to(self.window_positions.dtype)
        self.window_positions.index_copy_(1, self.column, positions)
        self.mask.index_fill_(1, self.column, True)
        self.column += 1
        self.query += 1
        self.ran = True
        return out

    def attend(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """Attention of one layer, and its new token into the window."""
        static = self.layers[index]
        static.keys[:, :, -1:], static.values[:, :, -1:] = key, value
        out = read(query, static.keys, static.values, self.mask, static.slots, scaling)
        static.keys.index_copy_(2, self.column, key)
        static.values.index_copy_(2, self.column, value)
        if static.received is not None:
            static.received += attention_received(
                query, static.keys, self.mask, self.seen, static.slots, scaling
            )
            static.received.index_copy_(2, self.column, static.received[..., -1:].clone())
            static.received[..., -1] = 0.0
        if self.cache.metric is None:
            left = self.room - self.cache.layers[0].window_length
            static.add_query(query, self.query, left + len(static.layer.pending))
            static.layer.scaling = scaling
        return out.transpose(1, 2).contiguous()

    def close(self, positions: Tensor) -> None:
        """After a step: the cache has one token more, and merges if enough wait."""
        cache = self.cache
        assert cache.batch is not None
        columns = cache.layers[0].window_length + 1
        cache.window = Window(self.window_positions[:, :columns], self.mask[:, :columns])
        for static in self.layers:
            static.advance(columns, cache.window)
        cache.batch.advance(positions)
        if cache.budget.n_to_merge(cache, 1):
            self.layers.clear()  # so that old slots are freed as new ones come
        cache.finish(1)


def _widen(tensor: Tensor, dim: int, room: int) -> Tensor:
    """The same with zeros behind it."""
    shape = list(tensor.shape)
    shape[dim] = room
    wide = tensor.new_zeros(shape)
    wide.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return wide


class Step(NamedTuple):
    """One new token for each sequence of a cache."""

    cache: DistinctCache
    ids: Tensor  # (B, 1)
    positions: Tensor  # (B, 1), on the CPU


class CapturedForward:
    """A model's forward that runs steps in static buffers, and passes on all other calls."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.forward = model, model.forward
        self.before = vars(model).get("forward")
        self.closed = False
        self.signature = inspect.signature(model.forward)
        kinds = {one.kind: name for name, one in self.signature.parameters.items()}
        self.rest = kinds.get(inspect.Parameter.VAR_KEYWORD, "")
        self.known: tuple[DistinctCache, list[Tensor]] | None = None  # what the last pass left
        self.steps: StaticStep | None = None
        self.replay: Callable[[], Any] | None = None
        self.recorder = GraphRecorder(model)
        update_wrapper(self, model.forward, updated=())

    def close(self) -> None:
        """Restore the model's own forward, as soon as none is on top of it."""
        self.closed, self.steps, self.replay, self.known = True, None, None, None
        while isinstance(top := vars(self.model).get("forward"), CapturedForward) and top.closed:
            del self.model.forward
            if top.before is not None:
                self.model.forward = top.before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What the model returns."""
        if self.closed:
            return self.forward(*args, **kwargs)
        step = self._step(self.signature.bind(*args, **kwargs).arguments)
        if step is not None and self._is_unchanged(step.cache):
            return self._run(step)
        self.steps = self.replay = self.known = None
        out = self.forward(*args, **kwargs)
        self.known = None if step is None else _windows(step.cache)
        return out

    def _run(self, step: Step) -> Any:  # noqa: ANN401
        cache, steps = step.cache, self.steps
        if steps is None or not steps.is_unchanged():
            self.steps = self.replay = None  # frees their memory first
            room = cache.config.max_recent + cache.budget.block(cache)
            steps = self.steps = StaticStep(cache, self.forward, room)
        steps.set_inputs(step.ids, step.positions)
        cache.interrupted = True
        if not steps.ran:  # the first compiles kernels
            out = self.recorder.check(steps.run)
        else:
            if self.replay is None:
                self.replay = self.recorder.record(steps.run)
            out = self.replay()
        self.known = None
        steps.close(step.positions)
        cache.interrupted = False
        self.known = _windows(cache)
        return type(out)(logits=out.logits.clone(), past_key_values=cache)

    def _is_unchanged(self, cache: DistinctCache) -> bool:
        """Whether the cache is as the last pass left it; beams reorder it each time."""
        if self.known is None or self.known[0] is not cache:
            return False
        now = [layer.keys for layer in cache.layers]
        return all(a is b for a, b in zip(self.known[1], now, strict=True))

    def _step(self, arguments: dict[str, Any]) -> Step | None:
        """A step that can run in static buffers, else None."""
        arguments |= arguments.pop(self.rest, {})
        cache, ids = arguments.get("past_key_values"), arguments.get("input_ids")
        if not isinstance(cache, DistinctCache) or not isinstance(ids, Tensor):
            return None
        if self.model.training or torch.is_grad_enabled():
            return None
        if not (_logits_only(arguments, self.model.config) and _is_ready(cache, ids)):
            return None
        if not _is_known(cache, arguments.get("attention_mask")):
            return None
        positions = _positions(cache, ids, arguments.get("position_ids"))
        return None if positions is None else Step(cache, ids, positions)


def _windows(cache: DistinctCache) -> tuple[DistinctCache, list[Tensor]]:
    """A cache, and the windows by which a change is noticed."""
    return cache, [layer.keys for layer in cache.layers]


def _logits_only(arguments: Mapping[str, Any], config: Any) -> bool:  # noqa: ANN401
    """Whether a pass is asked for logits and nothing else."""
    keep = arguments.get("logits_to_keep")
    more = ("output_hidden_states", "output_attentions")
    return (
        not any(getattr(config, name, False) for name in more)
        and getattr(config, "return_dict", True) is not False
        and all(
            arguments[name] is None or arguments[name] is False
            for name in arguments.keys() - ARGUMENTS
        )
        and arguments.get("use_cache") is not False
        and arguments.get("return_dict") is not False
        and (keep is None or (isinstance(keep, int) and keep in (0, 1)))
    )


def _is_ready(cache: DistinctCache, ids: Tensor) -> bool:
    """Whether every layer has slots that a kernel reads, on one device."""
    first = cache.layers[0]
    if cache.batch is None or cache.interrupted or not cache.merges:
        return False
    if ids.shape != (len(cache.batch.padding), 1) or ids.device != first.keys.device:
        return False
    return (
        all(layer.slots is not None for layer in cache.layers)
        and cache.same_frequencies()
        and cache.spec.config._attn_implementation == NAME
        and not torch.is_autocast_enabled(ids.device.type)
        and not cache.spec.rotary.is_dynamic
        and all(layer.keys.device == first.keys.device for layer in cache.layers)
        and reads_by_kernel(cache)
    )


def reads_by_kernel(cache: DistinctCache) -> bool:
    """Whether attention over the slots is a kernel, so that a step does not synchronise."""
    first = cache.layers[0]
    assert first.slots is not None
    return kernel_takes(first.keys, first.keys, first.values, first.slots)


def _is_known(cache: DistinctCache, mask: object) -> bool:
    """Whether a mask is the padding that is known, on the left."""
    assert cache.batch is not None
    padding, total = cache.batch.padding, cache.batch.seq_length + 1
    if mask is None:
        return not bool(padding.any())
    if not isinstance(mask, Tensor) or mask.shape != (len(padding), total):
        return False
    real = torch.arange(total, device=mask.device) >= padding.to(mask.device)[:, None]
    return bool((mask.bool() == real).all())


def _positions(cache: DistinctCache, ids: Tensor, given: Tensor | None) -> Tensor | None:
    """Positions (B, 1) of the tokens on the CPU, if they come after those before."""
    assert cache.batch is not None
    if given is None:
        given = torch.full((1, 1), cache.batch.seq_length)
    if given.shape not in ((1, 1), ids.shape):
        return None
    positions = given.cpu().expand(len(ids), 1)
    return positions if bool((positions[:, 0] > cache.batch.last).all()) else None
