"""Decoding steps of `generate` as one CUDA graph, instead of one launch for each kernel."""

# B sequences, H key-value heads, G query heads of each, R columns of a static window, the last one
# for the new token; D key size, C value size

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as base

from .attention import attention_received, kernel_takes, read
from .cache import DistinctCache
from .config import NAME, MaskError, PositionError
from .inputs import GROW, Window
from .layer import DistinctLayer
from .merge import merge_in_place, not_finite
from .model_support import ModelSpec
from .slots import SlotBuffer, Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROOM = 4  # blocks of tokens for which each head has room behind its slots
SYNCHRONISES = "called a synchronizing"  # how torch's warning begins
# Arguments of a step; all others must be None or False.
ARGUMENTS = {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache",
             "cache_position", "logits_to_keep", "return_dict"}  # fmt: skip


@contextmanager
def captured(model: PreTrainedModel) -> Iterator[None]:
    """Within this, decoding steps with a `DistinctCache` run as one CUDA graph.

    >>> with captured(model):  # doctest: +SKIP
    ...     model.generate(ids, past_key_values=distinct_cache(model, kept=0.25))

    A step is a forward pass of one token for each sequence. The first runs kernel by kernel, the
    second is recorded, and those that follow are replayed; logits agree with plain steps to
    rounding. Merges leave the graph valid, until a head has no room for more slots or a size is
    searched. All other passes, other caches and other devices go to the model unchanged. A weight
    that is moved or a hook that is added is noticed at the next merge. With hooks, steps run kernel
    by kernel.
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
        self.places: list[int] = []  # of the weights, when the last graph was recorded

    def has_hooks(self) -> bool:
        """Whether a module has hooks, which a graph would not call."""
        if base._global_forward_hooks or base._global_forward_pre_hooks:
            return True
        modules = self.model.modules()
        return any(part._forward_hooks or part._forward_pre_hooks for part in modules)

    def is_current(self) -> bool:
        """Whether a graph recorded now would be the last one, or none can be recorded."""
        return not self.able or (self.places == self._places() and not self.has_hooks())

    def _places(self) -> list[int]:
        tensors = (*self.model.parameters(), *self.model.buffers())
        return [tensor.data_ptr() for tensor in tensors]

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
        device, self.places = self._device(), []
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

        self.places = self._places()
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

    def __init__(self, layer: DistinctLayer, slots: Slots, keys: Tensor, values: Tensor,
                 received: Tensor | None) -> None:  # fmt: skip
        self.layer, self.slots = layer, slots
        self.keys, self.values, self.received = keys, values, received
        self.pending: Tensor | None = None  # (B, H G, tokens until a merge, D) queries
        self.left = layer.keys, layer.values, len(layer.pending)
        layer.set_slots(slots)

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
        return (
            layer.keys is keys
            and layer.values is values
            and len(layer.pending) == waiting
            and layer.slots is self.slots
        )

    def advance(self, columns: int, window: Window) -> None:
        """Show the layer one token more."""
        layer, n = self.layer, len(self.layer.pending)
        query = None if self.pending is None else self.pending[:, :, n : n + 1]
        keys, values, received = self.window(columns)
        layer.advance(keys, values, window, received, query)
        self.left = layer.keys, layer.values, len(layer.pending)

    def window(self, columns: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and attention received of the first columns."""
        received = None if self.received is None else self.received[..., :columns]
        return self.keys[:, :, :columns], self.values[:, :, :columns], received

    def drop(self, columns: int, window: Window) -> None:
        """Show the layer the columns that a merge left."""
        keys, values, received = self.window(columns)
        self.layer.set_window(keys, values, *window, received)
        self.left = keys, values, len(self.layer.pending)


class StaticStep:
    """Steps of one token for each sequence in static buffers, which merges shift and fill.

    The device is asked for nothing from one merge to the next: what it finds wrong in positions
    and masks that lie there is told by the next merge, or at the end.
    """

    def __init__(self, cache: DistinctCache, model: Any, block: int) -> None:  # noqa: ANN401
        first, batch = cache.layers[0], cache.batch
        assert first.positions is not None
        assert first.mask is not None
        assert batch is not None
        self.cache, self.model = cache, model
        room = cache.config.max_recent + block
        held = [layer.slots for layer in cache.layers if layer.slots is not None]
        self.buffer = SlotBuffer(held, ROOM * block)
        # Of all layers: (N, B, H, room + 1) and a key or value of each
        self.keys = _widen([layer.keys for layer in cache.layers], 2, room + 1)
        self.values = _widen([layer.values for layer in cache.layers], 2, room + 1)
        measured = [layer.received for layer in cache.layers if layer.received is not None]
        self.received = _widen(measured, 2, room + 1) if measured else None
        self.layers = [
            StaticLayer(layer, self.buffer.layers[n], self.keys[n], self.values[n],
                        None if self.received is None else self.received[n])
            for n, layer in enumerate(cache.layers)
        ]  # fmt: skip
        self.window_positions = _widen([first.positions], 1, room + 1)[0]
        self.mask = _widen([first.mask], 1, room + 1)[0]
        self.mask[:, -1] = True
        B, device = len(first.keys), first.keys.device
        self.ids, self.positions = (
            torch.zeros(B, 1, dtype=torch.long, device=device) for _ in range(2)
        )
        self.padding = batch.padding[:, None].to(device)
        self.seen = batch.seq_length + 1 - self.padding  # with the new token
        self.last = batch.last[:, None].to(device).clone()
        self.wrong = torch.zeros(2, dtype=torch.bool, device=device)  # a position, a mask
        self.column = torch.tensor([first.window_length], device=device)  # of the new token
        self.query = torch.tensor([len(first.pending)], device=device)  # and of its queries
        self.n_pending = max(block, room - first.window_length + len(first.pending))
        self.ran = False

    def is_unchanged(self) -> bool:
        """Whether nobody else has changed the cache since the last step."""
        # Tensors made in inference mode can be written to in no other.
        mode = torch.is_inference_mode_enabled() or not self.ids.is_inference()
        return bool(self.layers) and mode and all(layer.is_unchanged() for layer in self.layers)

    def set_inputs(self, step: Step) -> None:
        """The tokens of the next step, their positions and the mask."""
        batch = self.cache.batch
        assert batch is not None
        self.ids.copy_(step.ids)
        self.positions.copy_(step.positions, non_blocking=True)
        if step.mask is not None:
            real = torch.arange(batch.seq_length + 1, device=self.ids.device) >= self.padding
            self.wrong[1] |= (step.mask != real).any()

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
        self.wrong[0] |= (self.positions <= self.last).any()
        self.last.copy_(self.positions)
        self.column += 1
        self.query += 1
        self.seen += 1
        self.ran = True
        return out

    def attend(
        self, index: int, query: Tensor, key: Tensor, value: Tensor, scaling: float
    ) -> Tensor:
        """Attention of one layer, and its new token into the window."""
        static = self.layers[index]
        static.keys[:, :, -1:], static.values[:, :, -1:] = key, value
        out, logs = read(query, static.keys, static.values, self.mask, static.slots, scaling)
        static.keys.index_copy_(2, self.column, key)
        static.values.index_copy_(2, self.column, value)
        if static.received is not None:
            static.received += attention_received(
                query, static.keys, self.mask, self.seen, static.slots, scaling, logs
            )
            static.received.index_copy_(2, self.column, static.received[..., -1:].clone())
            static.received[..., -1] = 0.0
        if self.cache.metric is None:
            static.add_query(query, self.query, self.n_pending)
            static.layer.scaling = scaling
        return out.transpose(1, 2).contiguous()

    def close(self) -> bool:
        """After a step: the cache has one token more. Whether tokens merged, as enough waited."""
        cache = self.cache
        assert cache.batch is not None
        columns = cache.layers[0].window_length + 1
        window = cache.window = self.window(columns)
        for static in self.layers:
            static.advance(columns, window)
        cache.batch.advance(self.positions)
        merged = cache.budget.n_to_merge(cache, 1)
        if merged and self.takes(merged):
            self.merge(merged)
            cache.budget.settle(cache)
        elif merged:
            self.check()
            self.layers.clear()  # so that old slots are freed as new ones come
            cache.finish(1)
        return merged > 0

    def window(self, columns: int) -> Window:
        """The first columns of the window."""
        return Window(self.window_positions[:, :columns], self.mask[:, :columns])

    def takes(self, columns: int) -> bool:
        """Whether so many columns can merge in place: there is room, and a threshold is known."""
        known = self.cache.budget.current(self.cache, columns)
        return self.buffer.has_room(columns) and any(at is not None for at in known)

    def merge(self, columns: int) -> None:
        """Merge the oldest columns in place: what the graph reads and writes stays where it is."""
        cache = self.cache
        for static in self.layers:
            if static.pending is not None:
                n = len(static.layer.pending)
                static.layer.gather_pending(static.pending[:, :, :n])
        cache.accumulate()
        thresholds = cache.budget.current(cache, columns)
        found = merge_in_place(
            cache.layers, columns, cache.config, thresholds, cache.metric, self.buffer
        )
        # The only synchronisation from one merge to the next.
        found = torch.cat((found, self.wrong.long())).cpu()
        self.tell(found[-2:])
        if found[-3]:
            raise not_finite()
        self.buffer.count(found[:-3])
        left = cache.layers[0].window_length - columns
        for rows, dim in ((self.window_positions, 1), (self.mask, 1), (self.keys, 3),
                          (self.values, 3), (self.received, 3)):  # fmt: skip
            if rows is not None:
                rows.narrow(dim, 0, left).copy_(rows.narrow(dim, columns, left).clone())
        self.mask[:, left:-1] = False
        self.column.fill_(left)
        self.query.zero_()
        for static in self.layers:
            static.drop(left, self.window(left))
        cache.share()

    def check(self) -> None:
        """Raise if positions or a mask on the device were wrong; synchronises."""
        self.tell(self.wrong.cpu())

    def tell(self, wrong: Tensor) -> None:
        """Raise what was wrong with a position and a mask, (2,) on the CPU."""
        if not wrong.any():
            return
        self.layers.clear()
        self.cache.interrupted = True
        if wrong[0]:
            raise PositionError(f"a position since the last merge is not after the last; {GROW}")
        raise MaskError(
            "an attention_mask since the last merge is not the known padding and ones; give the "
            "mask of the prompt with a 1 for each new token, and reset() the cache"
        )


def _widen(tensors: Sequence[Tensor], dim: int, room: int) -> Tensor:
    """The tensors one beside the other, with zeros behind each."""
    shape = list(tensors[0].shape)
    shape[dim] = room
    wide = tensors[0].new_zeros(len(tensors), *shape)
    for one, tensor in zip(wide, tensors, strict=True):
        one.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return wide


class Step(NamedTuple):
    """One new token for each sequence of a cache."""

    cache: DistinctCache
    ids: Tensor  # (B, 1)
    positions: Tensor  # (B, 1)
    mask: Tensor | None  # (B, tokens), on the device, to be compared there


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
        steps, self.closed, self.known = self.steps, True, None
        self.steps = self.replay = None
        while isinstance(top := vars(self.model).get("forward"), CapturedForward) and top.closed:
            del self.model.forward
            if top.before is not None:
                self.model.forward = top.before
        if steps is not None and not steps.cache.interrupted:
            steps.check()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """What the model returns."""
        if self.closed:
            return self.forward(*args, **kwargs)
        step = self._step(self.signature.bind(*args, **kwargs).arguments)
        if step is not None and self._is_unchanged(step.cache):
            return self._run(step)
        if self.steps is not None and self.steps.layers:
            self.steps.check()
        self.steps = self.replay = self.known = None
        out = self.forward(*args, **kwargs)
        self.known = None if step is None else _windows(step.cache)
        return out

    def _run(self, step: Step) -> Any:  # noqa: ANN401
        cache, steps = step.cache, self.steps
        if steps is None or not steps.is_unchanged():
            self.steps = self.replay = None  # frees their memory first
            steps = self.steps = StaticStep(cache, self.forward, cache.budget.block(cache))
        steps.set_inputs(step)
        cache.interrupted = True
        if not steps.ran:  # the first compiles kernels
            out = self.recorder.check(steps.run)
        else:
            if self.replay is None:
                self.replay = self.recorder.record(steps.run)
            out = self.replay()
        self.known = None
        if steps.close() and not self.recorder.is_current():
            self.replay = None
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
        mask = arguments.get("attention_mask")
        if not _is_known(cache, mask):
            return None
        positions = _positions(cache, ids, arguments.get("position_ids"))
        later = mask.bool() if mask is not None and not mask.is_cpu else None
        return None if positions is None else Step(cache, ids, positions, later)


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
    """Whether a mask is the padding that is known, on the left; on a device it may be."""
    assert cache.batch is not None
    padding, total = cache.batch.padding, cache.batch.seq_length + 1
    if mask is None:
        return not bool(padding.any())
    if not isinstance(mask, Tensor) or mask.shape != (len(padding), total):
        return False
    if not mask.is_cpu:
        return True
    return bool((mask.bool() == (torch.arange(total) >= padding[:, None])).all())


def _positions(cache: DistinctCache, ids: Tensor, given: Tensor | None) -> Tensor | None:
    """Positions (B, 1) of the tokens, if they come after those before; on a device they may."""
    assert cache.batch is not None
    if given is None:
        given = torch.full((1, 1), cache.batch.seq_length)
    if given.shape not in ((1, 1), ids.shape):
        return None
    positions, last = given.expand(len(ids), 1), cache.batch.last
    if positions.is_cpu and last.is_cpu:
        return positions if bool((positions[:, 0] > last).all()) else None
    return positions
