"""How carefully tokens are merged: by the attention they get, how far apart, how long a text."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Plan

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
