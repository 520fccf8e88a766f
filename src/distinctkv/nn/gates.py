"""Learned gates: how novel must a key be to open a slot; and how to fit one."""

# B sequences, L tokens, H heads, D key size, F features of a token, C classes, Q queries, M budget

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from ..policy import check_real
from .allocation import allocate
from .attention import directions
from .mixer import check_sizes
from .soft import budget_penalty, causal_novelty, hard_keep, soft_read

FLOOR = 1e-6  # the gate of a token that a hard decision drops; its logarithm must stay finite


class Gate(nn.Module):
    """A probability of being kept for each token, given by its ``logit``."""

    @property
    def needs_novelty(self) -> bool:
        """Whether the logit depends on how novel a token is, or on the tokens before it."""
        return True

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """Above 0 where a token is rather kept than dropped."""
        raise NotImplementedError

    def embed(self, keys: Tensor) -> Tensor:
        """The vectors of length one whose novelty the gate takes: by default the keys."""
        return keys

    def log_gate(self, logit: Tensor) -> Tensor:
        """Logarithm of the gate by its logit."""
        return fn.logsigmoid(logit)

    def forward(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """Logarithm of the gate, (...)."""
        return self.log_gate(self.logit(novelty, hidden))


class NoveltyGate(Gate):
    """The paper's gate, ``sigmoid(a (novelty - b))``, with ``a = softplus(.)`` above 0.

    The sign matters more than training: any positive ``a`` ranks tokens by novelty, so the top M
    are right before the first step. `fit` therefore reports recall at the start as well.

    >>> gate = NoveltyGate(slope=10, threshold=0.4)
    >>> gate(torch.tensor([0.0, 0.4, 1.0]), torch.empty(3, 0)).exp().detach()
    tensor([0.0180, 0.5000, 0.9975])
    """

    def __init__(self, slope: float = 10.0, threshold: float = 0.4) -> None:
        super().__init__()
        check_finite(slope=slope, threshold=threshold)
        if not slope > 0:
            raise ValueError(f"slope must be above 0, got {slope}; SignedGate takes any")
        self.raw = nn.Parameter(torch.tensor(slope + math.log(-math.expm1(-slope))))
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    @property
    def slope(self) -> Tensor:
        """The paper's a."""
        return fn.softplus(self.raw)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast, but keep 32 bits: the threshold decides."""
        before = [p.data for p in self.parameters()]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for parameter, wide in zip(self.parameters(), before, strict=True):
            if parameter.dtype.itemsize < wide.dtype.itemsize:
                parameter.data = wide.to(parameter.device)
        return self

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """``a (novelty - b)``; what the token is does not matter."""
        return self.slope * (novelty - self.threshold)


class SignedGate(Gate):
    """The paper's gate with ``a`` of any sign, to show what a wrong start does."""

    def __init__(self, slope: float, threshold: float) -> None:
        super().__init__()
        check_finite(slope=slope, threshold=threshold)
        self.slope = nn.Parameter(torch.tensor(float(slope)))
        self.threshold = nn.Parameter(torch.tensor(float(threshold)))

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """``a (novelty - b)``."""
        return self.slope * (novelty - self.threshold)


def check_finite(**numbers: float) -> None:
    """Refuse what is no finite number, by name."""
    for name, number in numbers.items():
        check_real(name, number)
        if math.isinf(number):
            raise ValueError(f"{name} must be finite, got {number}")


def decided(logit: Tensor) -> Tensor:
    """Logarithm of a gate of 1 where the logit is above 0, else of ``FLOOR``, straight through.

    >>> logit = torch.tensor([2.0, -1.0], requires_grad=True)
    >>> decided(logit).exp().detach()
    tensor([1.0000e+00, 1.0000e-06])
    """
    soft = logit.sigmoid()
    hard = (logit > 0).to(soft).clamp_min(FLOOR)
    return (hard + (soft - soft.detach())).log()


def distillation(logit: Tensor, lead: Tensor) -> Tensor:
    """Cross-entropy of a gate, by its logit, with the rule's decisions: the paper's upper bound.

    The logit, not its logarithm: where a gate is sure and wrong it must still hear of it.

    >>> float(distillation(torch.tensor([0.0, 0.0]), torch.tensor([True, False])).exp())
    2.0
    """
    return fn.binary_cross_entropy_with_logits(logit, lead.to(logit))


class KeyGate(Gate):
    """A network on the key alone, which cannot tell an item's first occurrence from a repeat."""

    def __init__(self, width: int, hidden: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.net = _network(width, hidden, layers)

    @property
    def needs_novelty(self) -> bool:
        """No: the token is enough."""
        return False

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """From the key."""
        return _scalar(self.net, hidden)


class SaliencyGate(KeyGate):
    """The learned saliency of the five-model comparison: one hidden layer as wide as the key.

    With width 128 it has the 16,641 numbers by which the paper's count differs from attention's.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width, hidden=width, layers=1)


class KeyNoveltyGate(Gate):
    """A network on the key and the novelty: all that is needed, and more freedom than is good."""

    def __init__(self, width: int, hidden: int = 64, layers: int = 2) -> None:
        super().__init__()
        check_sizes(width=width)
        self.net = _network(width + 1, hidden, layers)

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """From both."""
        return _scalar(self.net, torch.cat([hidden, novelty[..., None].to(hidden)], -1))


class MetricGate(Gate):
    """A learned metric: novelty among keys after a linear map, then the paper's two numbers.

    It starts as the plain cosine.
    """

    def __init__(self, width: int, slope: float = 10.0, threshold: float = 0.4) -> None:
        super().__init__()
        check_sizes(width=width)
        self.base = NoveltyGate(slope, threshold)
        self.map = nn.Parameter(torch.eye(width))

    def embed(self, keys: Tensor) -> Tensor:
        """Keys (..., F) after the map, of length one."""
        return directions(keys @ self.map.to(keys.dtype))[0]

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """``a (novelty - b)``, for a novelty measured after the map."""
        return self.base.logit(novelty, hidden)


class ContextGate(Gate):
    """A threshold that depends on the context: a small network makes a and b for each token.

    It starts as the plain `NoveltyGate`: the network's last layer is zero.
    """

    def __init__(self, width: int, hidden: int = 16) -> None:
        super().__init__()
        self.base = NoveltyGate()
        self.net = _network(width, hidden, 1, out=2)
        last = self.net[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """``a_t (novelty - b_t)``."""
        stretch, shift = _outputs(self.net, hidden).unbind(-1)
        slope = fn.softplus(self.base.raw + stretch)
        threshold: Tensor = self.base.threshold + shift
        return slope * (novelty - threshold)


class WriteGate(Gate):
    """Opens by what a token is, however novel: to store only what will be read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        check_sizes(width=width)
        self.score = nn.Linear(width, 1)

    @property
    def needs_novelty(self) -> bool:
        """No: the token is enough."""
        return False

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """Linear in the features."""
        return _scalar(self.score, hidden)


class SurpriseGate(Gate):
    """A write gate of the surprise-gated memories: linear in the features and in the surprise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        check_sizes(width=width)
        self.score = nn.Linear(width + 1, 1)

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """Linear in both."""
        return _scalar(self.score, torch.cat([hidden, novelty[..., None].to(hidden)], -1))


class StraightThrough(Gate):
    """Another gate, decided: 1 or ``FLOOR`` forward, the soft gate's slope backward.

    The slope is that of the gate, not of its logarithm, so a dropped token still hears what
    keeping it would do.
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    @property
    def needs_novelty(self) -> bool:
        """As the gate inside."""
        return self.gate.needs_novelty

    def embed(self, keys: Tensor) -> Tensor:
        """As the gate inside."""
        return self.gate.embed(keys)

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """That of the gate inside."""
        return self.gate.logit(novelty, hidden)

    def log_gate(self, logit: Tensor) -> Tensor:
        """0 or ``log(FLOOR)``."""
        return decided(logit)


class GumbelGate(StraightThrough):
    """Another gate, decided by chance in training: logistic noise on its logit, then 1 or FLOOR."""

    def __init__(self, gate: Gate, temperature: float = 1.0) -> None:
        super().__init__(gate)
        check_finite(temperature=temperature)
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def log_gate(self, logit: Tensor) -> Tensor:
        """A sample in training, the likelier of the two otherwise."""
        if self.training:
            even = torch.rand_like(logit).clamp(1e-6, 1 - 1e-6)
            logit = (logit + even.logit()) / self.temperature
        return decided(logit)


def _network(width: int, hidden: int, layers: int, out: int = 1) -> nn.Sequential:
    check_sizes(width=width, hidden=hidden)
    if layers < 0:
        raise ValueError(f"layers must be 0 or more, got {layers}; 0 is a linear gate")
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*parts, nn.Linear(width, out))


def _scalar(net: nn.Module, features: Tensor) -> Tensor:
    """The one output of a network in the type of its features, which may be wider than it."""
    found: Tensor = _outputs(net, features).squeeze(-1)
    return found


def _outputs(net: nn.Module, features: Tensor) -> Tensor:
    found: Tensor = net(features.to(next(net.parameters()).dtype))
    return found.to(features.dtype)


class _Streams(NamedTuple):
    keys: Tensor  # (B, L, D), rows of length one
    values: Tensor  # (B, L, C), one-hot
    queries: Tensor  # (B, Q, D)
    answers: Tensor  # (B, Q)


class Probe(_Streams):
    """Recall streams, and what is asked at their ends.

    >>> probe = Probe(torch.eye(2)[None, [0, 1, 0]], torch.eye(2)[None], *torch.zeros(2, 1, 1))
    >>> probe.novelty
    tensor([[2., 1., 0.]])
    """

    @cached_property
    def novelty(self) -> Tensor:
        """Novelty of each token to those before it, (B, L); computed once for all gates."""
        return causal_novelty(self.keys[:, :, None])[..., 0]

    def logit(self, gate: Gate) -> Tensor:
        """The gate's logit of each token, (B, L)."""
        rows, novelty = gate.embed(self.keys), self.novelty
        if rows is not self.keys:
            novelty = causal_novelty(rows[:, :, None])[..., 0]
        return gate.logit(novelty, self.keys)


class Score(NamedTuple):
    """How a gate does with its top M tokens, and how many tokens it would keep by itself."""

    recall: float
    kept: float  # tokens of a stream with g > 1/2


class Fit(NamedTuple):
    """A gate before and after training; without the first, the second says little."""

    start: Score
    end: Score


def class_mass(probe: Probe, log_gate: Tensor, theta: float) -> Tensor:
    """Weight of each class in what each query reads, (B, Q, C)."""
    q, k, v = (part[:, :, None] for part in (probe.queries, probe.keys, probe.values))
    return soft_read(q, k, v, log_gate[..., None], scale=1 / theta, causal=False)[:, :, 0]


def task_loss(
    gate: Gate, probe: Probe, *, budget: int, weight: float = 1.0, theta: float = 0.1
) -> Tensor:
    """The paper's objective: what the answers lack, and how far the gates are from the budget."""
    log_gate = gate.log_gate(probe.logit(gate))
    mass = class_mass(probe, log_gate, theta).gather(-1, probe.answers[..., None])
    return (
        weight * budget_penalty(log_gate.exp()[..., None], budget)
        - mass.clamp_min(1e-9).log().mean()
    )


def rule_loss(gate: Gate, probe: Probe, *, tau: float) -> Tensor:
    """Distillation: be open where the rule opens a slot."""
    lead = allocate(probe.keys[:, :, None], tau).lead[..., 0]
    return distillation(probe.logit(gate), lead)


@torch.no_grad()
def score(gate: Gate, probe: Probe, *, budget: int, theta: float = 0.1) -> Score:
    """Recall with the top M tokens kept and the others dropped; of equals the earlier is kept."""
    logit = probe.logit(gate)  # a decided gate has only two values to rank
    keep = hard_keep(logit[..., None], budget)[..., 0]
    dropped = torch.zeros_like(logit).masked_fill(~keep, -torch.inf)
    said = class_mass(probe, dropped, theta).argmax(-1)
    kept = (logit > 0).sum(1)
    return Score(float((said == probe.answers).float().mean()), float(kept.float().mean()))


def fit(
    gate: Gate,
    loss: Callable[[Gate, Probe], Tensor],
    draw: Callable[[], Probe],
    test: Probe,
    *,
    budget: int,
    steps: int = 150,
    rate: float = 1e-2,
) -> Fit:
    """Train the gate by Adam on fresh streams from ``draw``; its scores on ``test``, both ends."""
    start = score(gate, test, budget=budget)
    optimiser = torch.optim.Adam(gate.parameters(), rate)
    training = gate.training
    gate.train()
    try:
        for _ in range(steps):
            optimiser.zero_grad()
            torch.autograd.backward(loss(gate, draw()))
            optimiser.step()
    finally:
        gate.train(training)
    return Fit(start, score(gate, test, budget=budget))
