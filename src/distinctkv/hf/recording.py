"""Graphs of a model's kernels, recorded once and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as base

WAITS, PROTOTYPE = "called a synchronizing", "Synchronization debug mode"  # as torch says it


class Recorder:
    """Makes graphs of a model's kernels, one after the other in the same memory."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self.places: list[int] = []
        self.keeper: torch.cuda.CUDAGraph | None = None
        self.stream: torch.cuda.Stream | None = None
        self.able, self.watched = True, False
        self.others: list[warnings.WarningMessage] = []
        self.news = ""  # why there is no graph, to be told when the step is over

    def moved(self) -> bool:
        """Whether a weight is no longer where the graph looks for it."""
        return self.places != self._where()

    def _where(self) -> list[int]:
        return [weight.data_ptr() for weight in self._weights()]

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
        self.places, device = self._where(), self._device()
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
