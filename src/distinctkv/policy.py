"""The policies of a memory: when a slot opens, and what a repeat does to its slot."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf, isnan
from typing import Literal, Self, get_args

Metric = Literal["cosine", "euclidean"]
KeyPolicy = Literal["first", "mean", "ema"]
ValuePolicy = Literal["first", "last", "mean", "counts"]


@dataclass(frozen=True, slots=True)
class Concentration:
    """The five numbers of the allocation rule; it holds no state.

    A slot opens when novelty > ``tau``. The budget is ``base + gain * temperature`` slots, and the
    temperature is a moving average, at ``rate``, of how often slots open (paper, eqs. 2, 4, 5).
    ``decay`` is the part of a slot's usage that is left after one more token.

    >>> Concentration.fixed(tau=0.3)
    Concentration(tau=0.3, base=inf, gain=0.0, rate=0.05, decay=0.98)
    """

    tau: float = 0.5
    base: float = inf
    gain: float = 0.0
    rate: float = 0.05
    decay: float = 0.98

    def __post_init__(self) -> None:
        """Raise for numbers outside their range."""
        for field in fields(self):
            check_real(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, float(getattr(self, field.name)))
        if self.tau < 0:
            raise ValueError(f"tau must be 0 or more, got {self.tau}; 0 merges identical keys only")
        if self.base < 1:
            raise ValueError(
                f"budget must be at least 1 slot, got {self.base}; for no limit leave it out"
            )
        if not 0 <= self.gain < inf:
            raise ValueError(f"gain must be finite and 0 or more, got {self.gain}")
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must lie in (0, 1], got {self.rate}; the default is .05")
        if not 1e-6 <= self.decay <= 1:
            raise ValueError(
                f"decay must lie in [1e-6, 1], got {self.decay}; "
                "1 never forgets, 1e-6 evicts the least recently used"
            )

    @classmethod
    def fixed(cls, tau: float = 0.5, budget: float = inf, *, decay: float = 0.98) -> Self:
        """Approach I: one threshold, and a fixed budget if one is given."""
        check_real("budget", budget)
        return cls(tau=tau, base=budget, decay=decay)

    @classmethod
    def similar(cls, similarity: float, budget: float = inf, *, decay: float = 0.98) -> Self:
        """Approach I, by the smallest cosine that still merges: ``tau = 1 - similarity``.

        The paper's section on sensitivity states its threshold this way, its eq. 2 the other.

        >>> Concentration.similar(0.75).tau
        0.25
        """
        check_real("similarity", similarity)
        if not -1 <= similarity <= 1:
            raise ValueError(f"similarity is a cosine in [-1, 1], got {similarity}")
        return cls.fixed(1.0 - similarity, budget, decay=decay)

    @classmethod
    def surprise(
        cls,
        tau: float = 0.4,
        base: float = 8.0,
        gain: float = 40.0,
        *,
        rate: float = 0.05,
        decay: float = 0.98,
    ) -> Self:
        """Approach II: the budget grows while slots open and shrinks when the stream repeats."""
        return cls(tau, base, gain, rate, decay)

    @property
    def bounded(self) -> bool:
        """Whether slots can ever be evicted."""
        return self.base < inf


@dataclass(frozen=True, slots=True)
class Merge:
    """What a repeat does to its slot: to its key, and to its value.

    ``key``: ``first`` keeps the first occurrence (the paper), ``mean`` the running mean of all
    occurrences, ``ema`` moves a part ``pace`` of the way to each repeat, so it follows drift.
    ``value``: ``first`` never changes, ``last`` is re-bound by each repeat, ``mean`` averages
    vectors, ``counts`` counts class labels.

    >>> Merge(value="last")
    Merge(key='first', value='last', pace=0.1)
    """

    key: KeyPolicy = "first"
    value: ValuePolicy = "first"
    pace: float = 0.1

    def __post_init__(self) -> None:
        """Raise for unknown policies, which would otherwise show at the first repeat."""
        if self.key not in get_args(KeyPolicy):
            raise ValueError(f"key must be one of {get_args(KeyPolicy)}, got {self.key!r}")
        if self.value not in get_args(ValuePolicy):
            raise ValueError(f"value must be one of {get_args(ValuePolicy)}, got {self.value!r}")
        check_real("pace", self.pace)
        object.__setattr__(self, "pace", float(self.pace))
        if not 0 < self.pace <= 1:
            raise ValueError(f"pace must lie in (0, 1], got {self.pace}; 1 keeps the last key")


def check_metric(metric: str, tau: float) -> None:
    """Raise for an unknown metric, and for a threshold that no cosine novelty exceeds."""
    if metric not in get_args(Metric):
        raise ValueError(f"metric must be one of {get_args(Metric)}, got {metric!r}")
    if metric == "cosine" and tau > 2:
        raise ValueError(
            f"tau must be at most 2 for cosine novelty, got {tau}; 2 keeps one slot for everything"
        )


def check_real(name: str, number: float) -> None:
    """Raise for nan, and for what is not a number."""
    if isnan(number):
        raise ValueError(f"{name} must be a number, got nan")
