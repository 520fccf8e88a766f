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
    for layer in distinct_layers(model).values():
        layer.tau.fill_(tau)


@dataclass
class Watch:
    """Slots per token of each layer while training, and the alarm if they fall too soon.

    Warns once for a layer whose slots are below ``part`` of the most they were at this tau while
    the loss is still within 5 % of ``chance``, the loss of one who knows nothing. Slots at another
    tau say nothing, so the count begins anew whenever tau moves; and the most, not the first,
    because they are few before the mean key is known.
    """

    model: nn.Module
    chance: float
    part: float = 0.25
    most: dict[str, tuple[float, float]] = field(default_factory=dict)  # tau, slots
    warned: set[str] = field(default_factory=set)

    def look(self, step: int, loss: float) -> dict[str, float]:
        """Slots per token by layer at this step."""
        slots = {}
        for name, layer in distinct_layers(self.model).items():
            if layer.slots_per_token is None:
                continue
            slots[name] = now = float(layer.slots_per_token)
            tau, before = self.most.get(name, (0.0, 0.0))
            before = max(before, now) if tau == float(layer.tau) else now
            self.most[name] = float(layer.tau), before
            fallen = now < self.part * before and loss > 0.95 * self.chance
            if fallen and name not in self.warned:
                self.warned.add(name)
                warnings.warn(_alarm(name, before, now, step, loss, float(layer.tau)), stacklevel=2)
        return slots


def _alarm(
    name: str, before: float, now: float, step: int, loss: float, tau: float
) -> CollapseWarning:
    return CollapseWarning(
        f"{name}: slots per token fell from {before:.3f} to {now:.3f} by step {step} while the "
        f"loss, {loss:.2f}, is still at chance: its keys are falling together. "
        f"Halve tau (now {tau:.3g}; .15 is safe), or ramp it, and keep centre=True"
    )
