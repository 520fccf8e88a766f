"""Streams that gates are trained on, and a loss under which a large gate learns.

The paper trains on a soft read: ``log g`` on the logits, and a penalty on the sum of g. Where the
repeats of an item are alike, that loss does not mind which of them is kept, nor whether any is kept
whole. `by_chance` minds: the top M are drawn by chance and the rest is really gone, while a token
that is gone still hears what keeping it would have done.
"""

# B streams, L tokens, Q queries, D key size, C classes, M tokens kept

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from distinctkv.nn.fitting import Fit, Probe, fit, rule_loss, task_loss
from distinctkv.nn.gates import Gate, distillation
from distinctkv.nn.soft import budget_penalty, causal_novelty
from distinctkv.nn.zoo import KeyNoveltyGate
from distinctkv.rule import unit

from ..data import RecallTask
from ..data.synthetic import Episode, occurrences

KEPT = 64  # M, as many as there are items
STREAMS, QUERIES = 8, 64  # in a step
THETA = 0.1  # of the read
APART = 0.1  # tau of the rule
FLOOR = 0.1  # weight of an answer at random, so that a lost item has a finite loss
Draw = Callable[[np.random.Generator, RecallTask], Episode]
Loss = Callable[[Gate, Probe], Tensor]


class Flipped(KeyNoveltyGate):
    """The large gate, told how familiar a token is, not how novel."""

    def logit(self, novelty: Tensor, hidden: Tensor) -> Tensor:
        """From the key, and from 1 - novelty."""
        return super().logit(1 - novelty, hidden)


def even(rng: np.random.Generator, task: RecallTask) -> Episode:
    """A stream of the task: every item as often as any other."""
    return task.draw(rng, QUERIES)


def uneven(rng: np.random.Generator, task: RecallTask) -> Episode:
    """A stream as long, of half to twice as many items; some come once, some often."""
    n_items = int(rng.integers(task.n_items // 2, 2 * task.n_items + 1))
    weights = rng.random(n_items) ** 2
    rest = rng.choice(n_items, task.n_tokens - n_items, p=weights / weights.sum())
    items = rng.permutation(np.concatenate([np.arange(n_items), rest]))
    prototypes = unit(rng.standard_normal((n_items, task.width)))
    labels = rng.integers(task.n_classes, size=n_items)
    asked = rng.integers(n_items, size=QUERIES)
    return Episode(
        keys=occurrences(rng, prototypes[items], task.noise),
        values=np.eye(task.n_classes)[labels[items]],
        items=items,
        queries=occurrences(rng, prototypes[asked], task.noise),
        answers=labels[asked],
    )


def probe(rng: np.random.Generator, task: RecallTask, n_streams: int, draw: Draw = even) -> Probe:
    """Streams as tensors."""
    drawn = [draw(rng, task) for _ in range(n_streams)]
    rows = ([one.keys, one.values, one.queries, one.answers] for one in drawn)
    columns = (torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))
    return Probe(*(part.float() if part.is_floating_point() else part for part in columns))


def soft(gate: Gate, seen: Probe) -> Tensor:
    """The paper's loss."""
    return task_loss(gate, seen, budget=KEPT, theta=THETA)


def to_the_rule(gate: Gate, seen: Probe) -> Tensor:
    """Cross-entropy against what the rule keeps."""
    return rule_loss(gate, seen, tau=APART)


def against_the_rule(gate: Gate, seen: Probe) -> Tensor:
    """Cross-entropy against what the rule drops: it makes a gate that fails, to start from."""
    novelty = causal_novelty(seen.keys[:, :, None])[..., 0]
    return distillation(gate.logit(novelty, seen.keys), novelty <= APART)


def by_chance(gate: Gate, seen: Probe) -> Tensor:
    """NLL of the answers from M tokens drawn by chance; the budget sets the level of g."""
    novelty = causal_novelty(seen.keys[:, :, None])[..., 0]
    logit = gate.logit(novelty, seen.keys)
    weights = (seen.queries @ seen.keys.mT / THETA).exp() * top_by_chance(logit, KEPT)[:, None]
    mass = weights @ seen.values + FLOOR  # (B, Q, C)
    chance = mass.gather(-1, seen.answers[..., None])[..., 0] / mass.sum(-1)
    return budget_penalty(logit.sigmoid()[..., None], KEPT) - chance.log().mean()


def top_by_chance(logit: Tensor, n_kept: int) -> Tensor:
    """1 for the top tokens under Gumbel noise and 0 for the rest, (B, L), straight through.

    The slope is that of a sigmoid around the last place, for tokens on both sides of it. Without
    their mean, which is taken off, all logits would rise together.
    """
    level = torch.rand_like(logit).clamp(1e-9, 1 - 1e-7)
    drawn = logit - logit.mean(-1, keepdim=True) - torch.log(-torch.log(level))
    last = drawn.topk(n_kept + 1).values[:, -2:].mean(-1, keepdim=True).detach()
    slope = torch.sigmoid(drawn - last)
    return (drawn > last).to(slope) + (slope - slope.detach())


def trained(
    gate: Gate, loss: Loss, task: RecallTask, seed: int, steps: int, draw: Draw, asked: int
) -> Fit:
    """Train on one loss; what the gate recalls from even streams before and after."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    test = probe(np.random.default_rng((seed, 1)), task, asked)

    def fresh() -> Probe:
        return probe(rng, task, STREAMS, draw)

    return fit(gate, loss, fresh, test, budget=KEPT, steps=steps)
