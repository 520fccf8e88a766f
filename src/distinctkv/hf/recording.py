"""Graphs of a model's kernels, recorded once and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Recorder:
    """Makes graphs of a model's kernels, one after the other in the same memory."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = list(model.modules())
        self.weights: list[Tensor] = [*model.parameters(), *model.buffers()]
        self.places: list[int] = []
        self.keeper: torch.cuda.CUDAGraph | None = None
        self.stream: torch.cuda.Stream | None = None
        self.able = True

    def moved(self) -> bool:
        """Whether a weight is no longer where the graph looks for it."""
        return self.places != [weight.data_ptr() for weight in self.weights]

    def hooked(self) -> bool:
        """Whether somebody listens to a module, whom a graph would not call."""
        return any(part._forward_hooks or part._forward_pre_hooks for part in self.modules)

    def record(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """A graph of what this does to replay, or the thing itself if that cannot be.

        Each replay gives the same tensors, with new numbers in them.
        """
        self.places = [weight.data_ptr() for weight in self.weights]
        device = self.weights[0].device
        if not self.able or device.type != "cuda":
            return run
        with torch.cuda.device(device):
            try:
                if self.keeper is None:
                    self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                    self.keeper, _ = self._graph(lambda: torch.zeros(1, device=device))
                graph, made = self._graph(run)
            except RuntimeError as error:
                self.able = False
                warnings.warn(f"steps go one by one, as a graph failed: {error}", stacklevel=2)
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
