"""Training steps that a GPU runs as one graph: small models are done sooner than launched."""

# B streams, L tokens

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .watching import distinct_layers

WARM = 3  # steps of a shape that are launched as they are, so that all kernels are built
Update = Callable[[Tensor, Tensor], Tensor]


class Graph:
    """One captured step, the tensors it reads from, and what it leaves behind."""

    def __init__(
        self,
        update: Update,
        model: nn.Module,
        tokens: Tensor,
        targets: Tensor,
        pool: Any,  # noqa: ANN401  (torch keeps the type to itself)
    ) -> None:
        self.tokens, self.targets = tokens.clone(), targets.clone()
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, pool=pool):
            self.loss = update(self.tokens, self.targets)
        layers = distinct_layers(model).values()
        self.slots = [(layer, layer.slots_per_token) for layer in layers]

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The step on a batch of the same shape."""
        self.tokens.copy_(tokens)
        self.targets.copy_(targets)
        self.graph.replay()
        for layer, slots in self.slots:
            layer.slots_per_token = slots
        return self.loss


class Captured:
    """``update`` with (tokens, targets) on a GPU, captured once for each of their shapes.

    What the step decides by Python (a schedule, a setting of a layer) is decided for good when its
    shape is captured; what it reads from tensors (weights, tau, the rate) is read anew. A step that
    cannot be captured is launched as it is, and that is told once; so is one of a model that is not
    on a GPU.
    """

    def __init__(self, update: Update, model: nn.Module) -> None:
        self.update, self.model = update, model
        self.warmed: dict[tuple[int, ...], int] = {}
        self.graphs: dict[tuple[int, ...], Graph] = {}
        self.failed = False
        where = next(model.parameters()).device
        self.there = where.type == "cuda"
        if self.there:
            self.pool = torch.cuda.graph_pool_handle()
            self.side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        else:
            told = f"steps are run as they are: a graph needs a model on a GPU, this is on {where}"
            warnings.warn(told, stacklevel=2)

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """One step, and its loss."""
        if not self.there:
            return self.update(tokens, targets)
        shape = tuple(tokens.shape)
        if shape not in self.graphs:
            if self.failed or self.warmed.setdefault(shape, 0) < WARM:
                self.warmed[shape] = 1 + self.warmed.get(shape, 0)
                return self._aside(tokens, targets)
            try:
                self.graphs[shape] = Graph(self.update, self.model, tokens, targets, self.pool)
            except RuntimeError as wrong:
                self.failed = True
                warnings.warn(f"steps are launched, not captured: {wrong}", stacklevel=2)
                return self._aside(tokens, targets)
        return self.graphs[shape](tokens, targets)

    def _aside(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """On a stream of its own, as capturing asks for."""
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            loss = self.update(tokens, targets)
        torch.cuda.current_stream().wait_stream(self.side)
        return loss
