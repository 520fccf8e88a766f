"""Learned gates: the paper's two numbers; `zoo` has the larger ones of its design space.

All have one signature, ``forward(novelty, hidden) -> log_gate``: from how novel tokens are, (...),
and what they are, (..., F), the logarithm of the probability that each is kept. `soft_read` adds
it to the logits in training, `hard_keep` keeps the top M in use.
"""

# F features of a token

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from ..policy import check_real

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

    def forward(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """Logarithm of the gate, (...)."""
        return fn.logsigmoid(self.logit(novelty, hidden))


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
