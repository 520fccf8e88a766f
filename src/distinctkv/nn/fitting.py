"""Train a gate on recall streams as the paper does, and measure it before and after."""

# B streams, L tokens, D key size, C classes, Q queries, M budget

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .allocation import allocate
from .gates import Gate, distillation
from .soft import budget_penalty, causal_novelty, hard_keep, soft_read


class Probe(NamedTuple):
    """Recall streams, and what is asked at their ends."""

    keys: Tensor  # (B, L, D), rows of length one
    values: Tensor  # (B, L, C), one-hot
    queries: Tensor  # (B, Q, D)
    answers: Tensor  # (B, Q)


class Score(NamedTuple):
    """How a gate does with its top M tokens, and how many tokens it would keep by itself."""

    recall: float
    kept: float  # tokens of a stream with g > 1/2


class Fit(NamedTuple):
    """A gate before and after training; without the first, the second says little."""

    start: Score
    end: Score


def log_gates(gate: Gate, probe: Probe) -> Tensor:
    """What the gate says to each token, (B, L), from its key and how novel that is."""
    found: Tensor = gate(_novelty(probe), probe.keys)
    return found


def class_mass(probe: Probe, log_gate: Tensor, theta: float) -> Tensor:
    """Weight of each class in what each query reads, (B, Q, C)."""
    q, k, v = (part[:, :, None] for part in (probe.queries, probe.keys, probe.values))
    return soft_read(q, k, v, log_gate[..., None], scale=1 / theta, causal=False)[:, :, 0]


def task_loss(
    gate: Gate, probe: Probe, *, budget: int, weight: float = 1.0, theta: float = 0.1
) -> Tensor:
    """The paper's objective: what the answers lack, and how far the gates are from the budget."""
    log_gate = log_gates(gate, probe)
    mass = class_mass(probe, log_gate, theta).gather(-1, probe.answers[..., None])
    return (
        weight * budget_penalty(log_gate.exp()[..., None], budget)
        - mass.clamp_min(1e-9).log().mean()
    )


def rule_loss(gate: Gate, probe: Probe, *, tau: float) -> Tensor:
    """Distillation: be open where the rule opens a slot."""
    lead = allocate(probe.keys[:, :, None], tau).lead[..., 0]
    return distillation(gate.logit(_novelty(probe), probe.keys), lead)


@torch.no_grad()
def score(gate: Gate, probe: Probe, *, budget: int, theta: float = 0.1) -> Score:
    """Recall with the top M tokens kept and the others dropped; of equals the earlier is kept."""
    logit = gate.logit(_novelty(probe), probe.keys)  # a decided gate has only two values to rank
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


def _novelty(probe: Probe) -> Tensor:
    return causal_novelty(probe.keys[:, :, None])[..., 0]
