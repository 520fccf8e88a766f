"""A loop that trains, shows its slots as it goes, and measures recall."""

# B streams, L tokens

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .capturing import Captured
from .watching import Ramp, Watch, distinct_layers, set_tau

SILENT = -100  # the target of a token at which nothing is asked


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
    chance: float | None = None,
    every: int = 1,
    captured: bool = False,
    asked: float | None = None,
) -> Iterator[Step]:
    """Train on (tokens, targets) of shape (B, L); yields what it sees ``every`` so many steps.

    The first and the last are always among them. Targets of -100 are not asked. AdamW with a
    warm-up over the first tenth, a cosine to 5 % of ``rate``, gradients clipped to length one;
    bfloat16 products on a GPU. With ``chance``, the loss of one who knows nothing, a `Watch` looks
    out for a collapse. ``captured`` launches a step on a GPU as one graph (`Captured`), for models
    that launching keeps waiting. ``asked`` is for `Learner`. Batches that end before the steps do
    end the training, with a warning.
    """
    if steps < 0 or every < 1:
        raise ValueError(f"steps must be 0 or more and every 1, got {steps} and {every}")
    if not 0 <= rate < math.inf:
        raise ValueError(f"rate must be 0 or more and finite, got {rate}")
    watch, learner = Watch(model, math.inf if chance is None else chance), Learner(model, asked)
    update = Captured(learner, model) if captured else learner

    losses: set[bool] = set()  # whether a step shown had a loss

    def told(number: int, loss: Tensor, n_tokens: int) -> Step:
        losses.add(loss.item() != 0)
        return Step(number, loss.item(), watch.look(number, loss.item(), n_tokens))

    def seen() -> Iterator[Step]:
        model.train()
        done, untold = 0, None
        for number, batch in zip(range(steps), batches, strict=False):
            tokens, targets = _pair(batch)
            if ramp is not None:
                set_tau(model, ramp(number / steps))
            learner.go_at(rate * _rate_at(number, steps))
            done, untold = number + 1, (number, update(tokens, targets), tokens.shape[1])
            if number % every == 0:
                yield told(*untold)
                untold = None
        if untold is not None:
            yield told(*untold)
        if done < steps:
            warnings.warn(_ended(done, steps), stacklevel=2)
        if losses == {False}:
            warnings.warn(f"nothing was asked: all targets seen were {SILENT}", stacklevel=2)

    return seen()


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
        # A graph reads the rate where it lies, so on a GPU it is a tensor.
        first = next(model.parameters())
        there = first.is_cuda
        rate = torch.zeros((), device=first.device) if there else 0.0
        self.optimiser = torch.optim.AdamW(
            _groups(model), rate, betas=(0.9, 0.95), fused=True, capturable=there
        )

    def go_at(self, rate: float) -> None:
        """Learn at this rate from now on."""
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """One step; nothing in it waits for the device."""
        _check_targets(tokens, targets)
        kind = tokens.device.type
        asked, there = targets != SILENT, {}
        if self.asked is not None:
            order = torch.rand_like(targets, dtype=torch.float32) + asked
            at = order.topk(math.ceil(self.asked * targets.shape[1])).indices
            targets, there = targets.gather(1, at), {"at": at}
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            logits = self.model(tokens, **there)
        # A mean over what is asked, and 0, not nan, where nothing is.
        wanted = targets.flatten().long()
        loss = fn.cross_entropy(logits.float().flatten(0, 1), wanted, reduction="sum")
        loss = loss / (targets != SILENT).sum().clamp(min=1)
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
    return float(right[targets != SILENT].float().mean())


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


def _pair(batch: object) -> tuple[Tensor, Tensor]:
    """A batch, if it is one; a tensor of two rows would pass for a pair."""
    match batch:
        case [Tensor() as tokens, Tensor() as targets]:
            return tokens, targets
    parts = batch if isinstance(batch, tuple | list) else [batch]
    seen = ", ".join(type(part).__name__ for part in parts)
    raise TypeError(f"a batch is (tokens, targets), two tensors (B, L), got {seen}")


def _check_targets(tokens: Tensor, targets: Tensor) -> None:
    """Refuse targets that are not one for each token."""
    if tokens.shape != targets.shape:
        raise ValueError(
            f"targets must be {tuple(tokens.shape)} as tokens, {SILENT} where nothing is asked, "
            f"got {tuple(targets.shape)}"
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
