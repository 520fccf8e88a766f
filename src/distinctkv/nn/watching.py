"""Tau and slots while a model trains: a ramp, and an alarm before the keys fall together.

Merging pulls keys together, and keys that are together merge: early in training, while the loss
still tells them nothing apart, the slots of a layer can fall to a handful. A small tau (.15) from
the start or a ramp to a larger one avoids it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from torch import nn

from ..policy import Concentration, check_metric
from .distinct import DistinctAttention

FEW = 3  # slots in a sequence: fewer tell hardly anything apart
FEW_PER_TOKEN = (0.1, 0.03)  # at most, in short sequences; and where their length is not known


class CollapseWarning(UserWarning):
    """The keys of a layer are falling together while nothing has been learned."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """Tau by the part of training that is done: 0, which merges nothing that differs, then up.

    >>> ramp = Ramp(0.3)
    >>> [round(ramp(part), 3) for part in (0.0, 0.25, 0.375, 0.5, 1.0)]
    [0.0, 0.0, 0.15, 0.3, 0.3]
    """

    tau: float
    begin: float = 0.25
    end: float = 0.5

    def __post_init__(self) -> None:
        """Refuse a ramp that does not rise within training, or to no threshold."""
        check_metric("cosine", Concentration.fixed(self.tau).tau)
        if not 0 <= self.begin < self.end <= 1:
            raise ValueError(
                f"a ramp runs from begin to end with 0 <= begin < end <= 1, "
                f"got {self.begin} and {self.end}"
            )

    def __call__(self, part: float) -> float:
        """Tau when this part of the steps is done."""
        return self.tau * min(1.0, max(0.0, (part - self.begin) / (self.end - self.begin)))


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
        layer.tau.fill_(tau)


@dataclass
class Watch:
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

    def look(self, step: int, loss: float, n_tokens: int | None = None) -> dict[str, float]:
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
