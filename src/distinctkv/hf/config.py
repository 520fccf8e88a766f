"""How a cache is sized and how carefully it merges, and the errors of this package."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from math import inf
from numbers import Integral, Real
from typing import Any, Self

from ..policy import Concentration

NAME = "distinctkv"  # of our attention, among those of transformers


class UnsupportedModelError(ValueError):
    """A model whose attention the cache cannot stand behind."""


class WrongModelError(ValueError):
    """A cache, a saved cache or a metric that was made for another model."""


class MaskError(ValueError):
    """An attention mask that is not causal with padding on the left, or that changed its mind."""


class PositionError(ValueError):
    """Positions that do not grow, or rotary frequencies that moved under the slots."""


class CropError(ValueError):
    """A wish to take back tokens that have already become slots."""


class BrokenForwardError(RuntimeError):
    """A cache whose layers have seen different tokens, because a forward pass was cut short."""


LENGTH = 1024  # tokens up to which a threshold is taken as it is
HORIZON: float | None = None  # unless told
OWN: tuple[type, ...] = (int, float)  # numbers that files know


@dataclass(frozen=True, slots=True, repr=False)
class Care:
    """Ways to merge less where merging costs more; all are off unless set.

    ``importance``: distances are multiplied by the attention that a token gets, to this power. It
    is measured from the queries that saw the token; 1 is what it would get if each looked at all
    tokens alike.
    ``spare``: this part of the tokens, those of a pass with the most attention, are never merged.
    ``cap``: a slot counts in attention as its tokens do, but as no more than this many.
    ``tighten``: beyond 1024 tokens the threshold falls with their number to this power; below 0 it
    grows. A threshold that follows from a size is not touched.
    ``horizon``: so many tokens apart counts as a squared distance of 1, twice as many as 4: what
    is said again much later has a slot of its own. Say ``Care(horizon=1024)``. At a threshold of 1
    a word said again after just so many tokens joins, after one more it does not.
    ``attended``: the value of a slot is the mean of its tokens' values by the attention that each
    got in all before it was merged, not the plain mean; this takes 4 bytes more for each slot. What
    was merged soon weighs by the few queries that saw it, in units that grow with the text.

    >>> Care(tighten=0.5).threshold(2.0, 4096)
    1.0
    """

    importance: float = 0.0
    spare: float = 0.0
    cap: float | None = None
    tighten: float = 0.0
    horizon: float | None = HORIZON
    attended: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name, least in (("importance", 0), ("tighten", -1)):
            power = getattr(self, name)
            check_number(name, power)
            if not least <= power <= 4:
                raise ValueError(
                    f"{name} must lie in [{least}, 4], got {power}; it is a power, 0 is off"
                )
        check_number("spare", self.spare)
        if not 0 <= self.spare < 1:
            raise ValueError(f"spare must lie in [0, 1), got {self.spare}; 0.05 is one in twenty")
        if self.cap is not None:
            check_number("cap", self.cap)
            if not self.cap >= 1:
                raise ValueError(
                    f"cap must be at least 1, got {self.cap}; 1 counts every slot once, None is off"
                )

        if self.horizon is not None:
            check_number("horizon", self.horizon)
            if not 0 < self.horizon < inf:
                raise ValueError(
                    f"horizon must be finite and greater than 0, got {self.horizon}; "
                    "it is a number of tokens, None is off"
                )
        if not isinstance(self.attended, bool):
            raise TypeError(
                f"attended must be True or False, got {self.attended!r}; False means all tokens "
                "of a slot alike"
            )
        own_numbers(self)

    def __repr__(self) -> str:
        """What is set.

        >>> Care(cap=8)
        Care(cap=8)
        """
        told = ((part.name, getattr(self, part.name), part.default) for part in fields(self))
        return f"Care({', '.join(f'{n}={value!r}' for n, value, off in told if value != off)})"

    @property
    def weighs(self) -> bool:
        """Whether distances depend on attention."""
        return self.importance > 0 or self.spare > 0

    @property
    def watches(self) -> bool:
        """Whether attention must be measured."""
        return self.weighs or self.attended

    def threshold(self, threshold: float, tokens: int) -> float:
        """The threshold for a text of so many tokens."""
        return threshold * float(min(1.0, LENGTH / max(tokens, 1)) ** self.tighten)


def check_number(name: str, number: object) -> None:
    """Refuse what is no number; nan lies in no range, which is checked next."""
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} must be a number, got {number!r}")


def own_numbers(told: Care | Plan) -> None:
    """Make Python's own of numbers of another kind, as NumPy's are: they go into files."""
    for name in told.__slots__:
        number = getattr(told, name)
        if isinstance(number, Real) and not isinstance(number, OWN):
            own = int(number) if isinstance(number, Integral) else float(number)
            object.__setattr__(told, name, own)


# What lost least of the settings in benchmarks/llm; for it attention is computed twice.
CAREFUL = Care(importance=0.25, horizon=512, attended=True)


SIZES = ("threshold", "kept", "budget", "surprise")
RECENT, FEW, PART = 32, 8, 8  # newest tokens that wait; where little is held an eighth, but 8


@dataclass(frozen=True, slots=True)
class Plan:
    """One of four ways to size a cache, and the tokens that are never merged.

    ``threshold``: a token opens a slot when its squared distance from every slot is greater. It is
    in units of attention error, so one number serves every layer and head.
    ``kept``: the part of the tokens to hold, at every moment; the threshold is searched for, and
    anew as more of a text comes.
    ``budget``: tokens' worth to hold for each head, in the mean over layers and heads.
    ``surprise``: a threshold, and a budget that grows while slots open; least used slots go.

    With none of the four the threshold is 1. ``recent`` newest tokens are not merged yet; if it is
    not said, `newest` follows from the size.

    >>> Plan().threshold, Plan(kept=0.25).threshold
    (1.0, None)
    """

    threshold: float | None = None
    kept: float | None = None
    budget: int | None = None
    surprise: Concentration | None = None
    sinks: int = 4
    recent: int | None = None
    care: Care = field(default_factory=Care)

    def __post_init__(self) -> None:
        """Refuse numbers for which a cache means nothing."""
        own_numbers(self)
        ways = [name for name in SIZES if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ValueError(f"a cache is sized in one way, got {' and '.join(ways)}; choose one")
        if not ways:
            object.__setattr__(self, "threshold", 1.0)
        _check_count("sinks", self.sinks, least=0)
        if self.recent is not None:
            _check_count("recent", self.recent, least=0)
        if self.threshold is not None:
            check_number("threshold", self.threshold)
            if not 0 <= self.threshold < inf:
                raise ValueError(
                    f"threshold must be finite and 0 or more, got {self.threshold}; "
                    "to merge nothing say kept=1.0"
                )
        if self.kept is not None:
            check_number("kept", self.kept)
            if not 0 < self.kept <= 1:
                raise ValueError(
                    f"kept must lie in (0, 1], got {self.kept}; 0.25 holds a quarter, 1 all"
                )
        if self.budget is not None:
            _check_count("budget", self.budget, least=self.least)
        if self.surprise is not None:
            self._check_surprise(self.surprise)
        self._check_care()

    def _check_care(self) -> None:
        if not isinstance(self.care, Care):
            raise TypeError(
                f"care must be a Care, got {self.care!r}; say CAREFUL, or Care(importance=0.5)"
            )
        if self.care.spare and (self.budget is not None or self.surprise is not None):
            raise ValueError(
                f"care spares {self.care.spare} of the tokens, which no budget can bound; "
                "size the cache by threshold or kept"
            )
        if self.kept is not None and self.care.spare >= self.kept:
            raise ValueError(
                f"care spares {self.care.spare} of the tokens and {self.kept} may be kept; "
                "spare fewer than are kept"
            )

    def _check_surprise(self, surprise: Concentration) -> None:
        if not isinstance(surprise, Concentration):
            raise TypeError(
                f"surprise must be a Concentration, got {surprise!r}; "
                "say Concentration.surprise(tau=1.0, base=64, gain=512)"
            )
        if surprise.base < self.least:
            raise ValueError(
                f"base must be at least sinks + recent + 1 = {self.least}, got {surprise.base}; "
                "these tokens are held whatever the budget"
            )
        if surprise.base == inf:
            raise ValueError(
                "base must be finite, got inf: without a bound nothing is evicted; say "
                "Concentration.surprise(tau=1.0, base=64, gain=512), or threshold=1.0 for none"
            )

    @property
    def most(self) -> int:
        """The most newest tokens that are not merged yet."""
        return RECENT if self.recent is None else self.recent

    @property
    def least(self) -> int:
        """Tokens' worth below which nothing can be merged."""
        return self.sinks + self.most + 1

    def begins(self, tokens: int) -> bool:
        """Whether a part of so many tokens leaves slots beside the newest."""
        return self.kept is not None and self.kept * tokens >= self.least

    def newest(self, tokens: int) -> int:
        """Newest tokens that are not merged yet, of a text of so many.

        >>> Plan().newest(1024), [Plan(kept=1 / n).newest(1024) for n in (4, 8, 16, 32)]
        (32, [32, 16, 8, 32])
        """
        share = self.kept * tokens if self.kept is not None else self.budget
        if self.recent is not None or share is None or share < self.least:
            return self.most
        return min(RECENT, max(FEW, int(share) // PART))

    @property
    def way(self) -> str:
        """How the cache is sized, as it was said.

        >>> Plan(kept=0.25).way
        'kept=0.25'
        """
        return next(f"{n}={getattr(self, n)}" for n in SIZES if getattr(self, n) is not None)

    @property
    def merges(self) -> bool:
        """Whether a slot can ever hold more than one token."""
        return self.kept != 1

    @property
    def searches(self) -> bool:
        """Whether the threshold follows from a size."""
        return self.kept is not None or self.budget is not None

    @property
    def start(self) -> float | None:
        """The threshold before any token is seen, if it is known."""
        return self.surprise.tau if self.surprise else self.threshold

    def state(self) -> dict[str, Any]:
        """The plan as JSON."""
        state = {name: getattr(self, name) for name in self.__slots__}
        state["surprise"] = asdict(self.surprise) if self.surprise else None
        state["care"] = asdict(self.care)
        return state

    @classmethod
    def of(cls, state: dict[str, Any]) -> Self:
        """The plan that a state tells of."""
        surprise = Concentration(**state["surprise"]) if state["surprise"] else None
        return cls(**{**state, "surprise": surprise, "care": Care(**state["care"])})


def _check_count(name: str, number: object, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be a whole number, got {number!r}")
    if number < least:
        why = " (sinks + recent + 1)" if name == "budget" else ""
        way_out = "; say a smaller recent to go below" if why else ""
        raise ValueError(f"{name} must be at least {least}{why}, got {number}{way_out}")
