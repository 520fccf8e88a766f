"""A training loop that shows slots, warns of a collapse, and measures recall."""

# B sequences, L tokens

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from ..policy import Concentration, check_metric
from .distinct import DistinctAttention

FEW = 3  # slots in a sequence: fewer tell hardly anything apart
FEW_PER_TOKEN = (0.1, 0.03)  # at most, in short sequences; and where their length is not known


class CollapseWarning(UserWarning):
    """The keys of a layer are falling together while nothing has been learned."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """A number that is 0 at the start of training and rises to ``high`` between two fractions.

    For tau: 0 merges nothing that differs.

    >>> ramp = Ramp(0.3)
    >>> [round(ramp(part), 3) for part in (0.0, 0.25, 0.375, 0.5, 1.0)]
    [0.0, 0.0, 0.15, 0.3, 0.3]
    """

    high: float
    begin: float = 0.25
    end: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a ramp that does not rise within training."""
        if not (0 <= self.begin < self.end <= 1 and 0 <= self.high < math.inf):
            raise ValueError(f"a ramp needs high >= 0 and 0 <= begin < end <= 1, got {self}")

    def __call__(self, part: float) -> float:
        """Its value when this part of the steps is done."""
        return self.high * min(1.0, max(0.0, (part - self.begin) / (self.end - self.begin)))


def distinct_layers(model: nn.Module) -> dict[str, DistinctAttention]:
    """The layers that hold slots, by name."""
    found = model.named_modules()
    return {name: layer for name, layer in found if isinstance(layer, DistinctAttention)}


def set_tau(model: nn.Module, tau: float) -> None:
    """Give every layer that holds slots this threshold, 0 to 2."""
    check_metric("cosine", Concentration.fixed(tau).tau)
    layers = distinct_layers(model).values()
    if not layers:
        raise ValueError(f"tau={tau} means nothing to a model without a DistinctAttention")
    for layer in layers:
        if layer.tau.isnan():
            raise ValueError(f"{type(layer.gate).__name__} has no threshold to set to {tau}")
        layer.tau.fill_(tau)


@dataclass
class CollapseMonitor:
    """Slots per token of each layer while training, and the alarm if they fall too soon.

    Warns once for a layer while the loss is still within 5 % of ``chance``, the loss of one who
    knows nothing, if its slots are below ``part`` of the most they were at this tau, or so few
    that no tau is an excuse: under 3 in a sequence, and under a tenth of its tokens. Slots at
    another tau are no measure, so the most begins anew whenever tau moves. The first look only
    measures: slots are few before the mean key is known.
    """

    model: nn.Module
    chance: float
    part: float = 0.25
    most: dict[str, tuple[float, float]] = field(default_factory=dict)  # tau, slots
    warned: set[str] = field(default_factory=set)

    def update(self, step: int, loss: float, n_tokens: int | None = None) -> dict[str, float]:
        """Slots per token by layer at this step, whose sequences have ``n_tokens`` each.

        Where that is not told, fewer than 3 slots in 100 tokens are too few.
        """
        short, unknown = FEW_PER_TOKEN
        floor = unknown if n_tokens is None else min(short, FEW / max(1, n_tokens))
        slots = {}
        for name, layer in distinct_layers(self.model).items():
            if layer.slots_per_token is None:
                continue
            slots[name] = now = float(layer.slots_per_token)
            known, tau = name in self.most, float(layer.tau)
            at, before = self.most.get(name, (tau, now))
            before = max(before, now) if at == tau else now
            self.most[name] = tau, before
            if loss <= 0.95 * self.chance or name in self.warned:
                continue
            if now < self.part * before:
                self._warn(name, f"fell from {before:.3f} to {now:.3f}", step, loss, tau)
            elif known and now < floor:
                self._warn(name, f"are as few as {now:.3f}", step, loss, tau)
        return slots

    def _warn(self, name: str, said: str, step: int, loss: float, tau: float) -> None:
        self.warned.add(name)
        text = (
            f"{name}: slots per token {said} by step {step} while the loss, {loss:.2f}, is still "
            f"at chance: its keys are falling together. Halve tau (now {tau:.3g}; .15 is safe), or "
            "ramp it, and keep centre=True"
        )
        warnings.warn(CollapseWarning(text), stacklevel=3)


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
        torch.cuda.synchronize(tokens.device)
        with torch.cuda.device(tokens.device), torch.cuda.graph(self.graph, pool=pool):
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
            self.side = torch.cuda.Stream(where)  # type: ignore[no-untyped-call]
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
        current = torch.cuda.current_stream(self.side.device)
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            loss = self.update(tokens, targets)
        current.wait_stream(self.side)
        return loss


IGNORE_INDEX = -100  # the target of a token at which nothing is asked


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of training showed."""

    step: int
    loss: float
    slots: dict[str, float]  # slots per token, by layer


def train(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    steps: int,
    rate: float = 3e-3,
    ramp: Ramp | None = None,
    anneal: Ramp | None = None,
    chance: float | None = None,
    every: int = 1,
    captured: bool = False,
    asked: float | None = None,
) -> Iterator[Step]:
    """Train on (tokens, targets) of shape (B, L); yields what it sees ``every`` so many steps.

    The first and the last are always among them. Targets of -100 are not asked. AdamW with a
    warm-up over the first tenth, a cosine to 5 % of ``rate``, gradients clipped to length one;
    bfloat16 products on a GPU. ``ramp`` sets tau, ``anneal`` the weight of the budget penalty of
    learned gates (1 throughout if left out). With ``chance``, the loss of one who knows nothing, a
    `CollapseMonitor` looks out for a collapse. ``captured`` launches a step on a GPU as one graph
    (`Captured`). ``asked`` is for `Learner`. Batches that end before the steps do end the training,
    with a warning.
    """
    if steps < 0 or every < 1:
        raise ValueError(f"steps must be 0 or more and every 1, got {steps} and {every}")
    if not 0 <= rate < math.inf:
        raise ValueError(f"rate must be 0 or more and finite, got {rate}")
    if ramp is not None and any(one.learns_tau for one in distinct_layers(model).values()):
        raise ValueError(f"{ramp} sets tau, which a gate learns; leave ramp out")
    monitor, learner = (
        CollapseMonitor(model, math.inf if chance is None else chance),
        Learner(model, asked),
    )
    update = Captured(learner, model) if captured else learner

    asks: set[bool] = set()  # whether a step shown had targets

    def report(number: int, loss: Tensor, targets: Tensor) -> Step:
        asks.add(bool((targets != IGNORE_INDEX).any()))
        slots = monitor.update(number, loss.item(), targets.shape[1])
        return Step(number, loss.item(), slots)

    def run() -> Iterator[Step]:
        model.train()
        done, last = 0, None
        for number, (tokens, targets) in zip(range(steps), batches, strict=False):
            if ramp is not None:
                set_tau(model, ramp(number / steps))
            if anneal is not None:
                for layer in distinct_layers(model).values():
                    layer.penalty_weight.fill_(anneal(number / steps))
            learner.set_rate(rate * _rate_at(number, steps))
            done, last = number + 1, (number, update(tokens, targets), targets)
            if number % every == 0:
                yield report(*last)
                last = None
        if last is not None:
            yield report(*last)
        if done < steps:
            warnings.warn(_ended(done, steps), stacklevel=2)
        if asks == {False}:
            warnings.warn(f"nothing was asked: all targets seen were {IGNORE_INDEX}", stacklevel=2)

    return run()


class Learner:
    """A model and its optimiser: a call is one step on (tokens, targets), and gives the loss.

    With ``asked``, at most this part of the places of a stream is answered, drawn anew in each
    step from those with a target; a model must then take ``at``, as `HybridLM` does. Where no more
    than this have a target it is the same step, without the logits of all the others.
    """

    def __init__(self, model: nn.Module, asked: float | None = None) -> None:
        if asked is not None and not 0 < asked <= 1:
            raise ValueError(
                f"asked is a part of the places, above 0 and at most 1, got {asked}; for all of "
                "them leave it out"
            )
        self.model, self.asked = model, asked
        # A graph reads the rate where it lies, so it is a tensor on the model's device.
        first = next(model.parameters())
        rate = torch.zeros((), device=first.device)
        self.optimiser = torch.optim.AdamW(
            _groups(model), rate, betas=(0.9, 0.95), fused=True, capturable=first.is_cuda
        )

    def set_rate(self, rate: float) -> None:
        """Learn at this rate from now on."""
        for group in self.optimiser.param_groups:
            group["lr"].fill_(rate)

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """One step; nothing in it waits for the device."""
        _check_targets(tokens, targets)
        kind = tokens.device.type
        asked, there = targets != IGNORE_INDEX, {}
        if self.asked is not None:
            order = torch.rand_like(targets, dtype=torch.float32) + asked
            at = order.topk(math.ceil(self.asked * targets.shape[1])).indices
            targets, there = targets.gather(1, at), {"at": at}
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            logits = self.model(tokens, **there)
        # A mean over what is asked, and 0, not nan, where nothing is.
        wanted = targets.flatten().long()
        loss = fn.cross_entropy(logits.float().flatten(0, 1), wanted, reduction="sum")
        loss = loss / (targets != IGNORE_INDEX).sum().clamp(min=1)
        extra = sum(layer.write_loss(asked) for layer in distinct_layers(self.model).values())
        self.optimiser.zero_grad()
        torch.autograd.backward(loss + extra)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        return loss.detach()


@torch.no_grad()
def recall(model: nn.Module, tokens: Tensor, targets: Tensor) -> float:
    """Part of the asked targets (those not -100) that the model's likeliest token meets.

    It is nan if nothing is asked.
    """
    _check_targets(tokens, targets)
    training = model.training
    model.eval()
    try:
        right = model(tokens).argmax(-1) == targets
    finally:
        model.train(training)
    return float(right[targets != IGNORE_INDEX].float().mean())


def sweep(
    model: nn.Module, taus: Sequence[float], tokens: Tensor, targets: Tensor
) -> list[tuple[float, float, float]]:
    """(tau, recall, slots per token) of one model at other thresholds; its own is put back."""
    layers = list(distinct_layers(model).values())
    before = [float(layer.tau) for layer in layers]
    rows = []
    try:
        for tau in taus:
            set_tau(model, tau)
            score = recall(model, tokens, targets)
            used = [float(x.slots_per_token) for x in layers if x.slots_per_token is not None]
            rows.append((tau, score, sum(used) / max(1, len(used))))
    finally:
        for layer, tau in zip(layers, before, strict=True):
            layer.tau.fill_(tau)
    return rows


def _check_targets(tokens: Tensor, targets: Tensor) -> None:
    """Refuse targets that are not one for each token."""
    if tokens.shape != targets.shape:
        raise ValueError(
            f"targets must be {tuple(tokens.shape)} as tokens, {IGNORE_INDEX} where nothing is "
            f"asked, got {tuple(targets.shape)}"
        )


def _ended(number: int, steps: int) -> str:
    return (
        f"the batches ended after {number} of {steps} steps, with the rate still high; give "
        f"steps={number}, or batches that go on"
    )


def _rate_at(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / max(1, steps // 10))
    return warm * (0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2)


def _groups(model: nn.Module) -> list[dict[str, object]]:
    """Matrices and embeddings are decayed; scales, norms, biases, decays and filters are not."""
    decayed = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear | nn.Embedding)}
    weights = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in weights if id(p) in decayed], "weight_decay": 0.01},
        {"params": [p for p in weights if id(p) not in decayed], "weight_decay": 0.0},
    ]
