"""The larger gates of the paper's design space, each with the signature of `gates.Gate`."""

# F features of a token

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .gates import Gate, NoveltyGate, check_finite, decided
from .mixer import check_sizes, check_whole
from .projection import directions
from .soft import causal_novelty


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
        return _scalar(self.net(hidden))


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
        return _scalar(self.net(torch.cat([hidden, novelty[..., None].to(hidden)], -1)))


class MetricGate(Gate):
    """A learned metric: novelty among keys after a linear map, then the paper's two numbers.

    It compares whole streams of keys (B, L, F), or of heads (B, L, H, F), and sees all tokens
    before each, so it is for training and study; it starts as the plain cosine.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        check_sizes(width=width)
        self.base = NoveltyGate()
        self.map = nn.Parameter(torch.eye(width))

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """``a (novelty' - b)``, with novelty' measured after the map."""
        keys, _ = directions(hidden @ self.map)
        if keys.ndim == 3:
            return self.base.logit(causal_novelty(keys[:, :, None])[..., 0], hidden)
        return self.base.logit(causal_novelty(keys), hidden)


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
        stretch, shift = self.net(hidden).unbind(-1)
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
        return _scalar(self.score(hidden))


class SurpriseGate(Gate):
    """A write gate of the surprise-gated memories: linear in the features and in the surprise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        check_sizes(width=width)
        self.score = nn.Linear(width + 1, 1)

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """Linear in both."""
        return _scalar(self.score(torch.cat([hidden, novelty[..., None].to(hidden)], -1)))


class StraightThrough(Gate):
    """Another gate, decided: 1 or ``FLOOR`` forward, the soft gate's slope backward.

    The slope is that of the gate, not of its logarithm, so a dropped token still hears what
    keeping it would do.
    """

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        if not isinstance(gate, Gate):
            raise TypeError(f"gate must be a Gate, as NoveltyGate(), got {gate!r}")
        self.gate = gate

    @property
    def needs_novelty(self) -> bool:
        """As the gate inside."""
        return self.gate.needs_novelty

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """That of the gate inside."""
        return self.gate.logit(novelty, hidden)

    def forward(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """0 or ``log(FLOOR)``."""
        return decided(self.logit(novelty, hidden))


class GumbelGate(StraightThrough):
    """Another gate, decided by chance in training: logistic noise on its logit, then 1 or FLOOR."""

    def __init__(self, gate: Gate, temperature: float = 1.0) -> None:
        super().__init__(gate)
        check_finite(temperature=temperature)
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def forward(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """A sample in training, the likelier of the two otherwise."""
        logit = self.logit(novelty, hidden)
        if self.training:
            even = torch.rand_like(logit).clamp(1e-6, 1 - 1e-6)
            logit = (logit + even.logit()) / self.temperature
        return decided(logit)


def _network(width: int, hidden: int, layers: int, out: int = 1) -> nn.Sequential:
    check_sizes(width=width, hidden=hidden)
    check_whole(layers=layers)
    if layers < 0:
        raise ValueError(f"layers must be 0 or more, got {layers}; 0 is a linear gate")
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, hidden), nn.ReLU()]
        width = hidden
    return nn.Sequential(*parts, nn.Linear(width, out))


def _scalar(column: Tensor) -> Tensor:
    return column.squeeze(-1)
