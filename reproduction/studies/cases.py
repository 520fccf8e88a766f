"""What races on the two real streams of study ``adaptive_real``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from distinctkv.cache import Cache
from distinctkv.policy import Concentration

from ..baselines import TTL
from ..data import Events, loghub, movielens
from .contenders import Contender
from .result import Measure, Role, Row

WIDTH, NOISE, TAU, DECAY = 32, 0.1, 0.4, 0.98
Numbers = Mapping[str, Iterable[float]]  # by measure, a number per seed
WIDE = 64  # keys so wide that movies are not taken for one another


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A real stream, and the sizes of what runs on it."""

    name: str
    label: str
    data: str
    load: Callable[[], Events]
    policy: Concentration
    matched: int  # the paper's fixed budget
    worst: int  # items in the fullest window
    budgets: tuple[int, ...]  # around what the adaptive budget holds on average
    idles: tuple[int, ...]
    step: int  # tokens between two counts of the slots

    @property
    def said(self) -> str:
        """The adaptive budget in words."""
        return f"budget {self.policy.base:g} + {self.policy.gain:g} T, rate {self.policy.rate:g}"

    @property
    def drawn(self) -> tuple[str, ...]:
        """What is followed in the figure."""
        return f"b{self.matched}", f"ttl{self.idles[-1]}", "surprise"

    def contenders(self) -> tuple[Contender, ...]:
        """What races on this stream."""
        sizes = sorted({*self.budgets, self.matched, self.worst}, reverse=True)
        return (
            Contender("unbounded", "No budget", "", lambda: Cache(Concentration.fixed(TAU))),
            *map(self._fixed, sizes),
            *map(_expiring, self.idles),
            Contender(
                "surprise", "Adaptive (ours)", self.said, lambda: Cache(self.policy), "cache"
            ),
        )

    def ladder(self, prefix: str) -> tuple[int, ...]:
        """The sizes of a family of rivals, the worst case apart."""
        return {"b": self.budgets, "ttl": self.idles}[prefix]

    def row(
        self,
        table: str,
        name: str,
        label: str,
        numbers: Numbers,
        setting: str,
        role: Role,
    ) -> Row:
        """A row of a table; without numbers, one that wants for this stream."""
        measures = {word: Measure.of([*map(float, found)]) for word, found in numbers.items()}
        return Row(name, label, measures, setting, role, table, "" if measures else self.data)

    def _fixed(self, budget: int) -> Contender:
        said = {self.matched: ", matched", self.worst: ", the worst case"}.get(budget, "")
        return Contender(
            f"b{budget}",
            f"Fixed budget {budget:,}",
            f"B={budget:,}{said}",
            lambda: Cache(Concentration.fixed(TAU, budget, decay=DECAY)),
            "paper" if said else "added",
        )


def _expiring(idle: int) -> Contender:
    return Contender(
        f"ttl{idle}",
        f"Slots expire, {idle:,} idle",
        f"dropped after {idle:,} idle tokens",
        lambda: TTL(idle=idle, tau=TAU),
        "added",
    )


MOVIELENS = Case(
    "movielens",
    "MovieLens",
    "movielens",
    lambda: movielens.load(),
    Concentration.surprise(TAU, base=774, gain=600, rate=0.02, decay=DECAY),
    matched=813,
    worst=1241,
    budgets=(780, 813, 850),
    idles=(2400, 2600),
    step=100,
)
BGL = Case(
    "bgl",
    "BGL",
    "loghub/BGL",
    lambda: loghub.load("BGL").events(),
    Concentration.surprise(TAU, base=12, gain=60, rate=0.05, decay=DECAY),
    matched=18,
    worst=45,
    budgets=(14, 16, 18, 20),
    idles=(125, 150),
    step=2,
)
CASES = (MOVIELENS, BGL)
# Tokens for which a use counts, 1 / (1 - decay); the budgets of BGL that are run at each; and what
# the paper has for them.
LASTS = (10, 20, 50, 100, 150, 200, 300, 500, 1000, inf)
ALLOCATORS = {
    "fixed": Concentration.fixed(TAU, BGL.matched),
    "adaptive": BGL.policy,
    "worst case": Concentration.fixed(TAU, BGL.worst),
}
PAPER = {"fixed": 0.75, "adaptive": 0.94, "worst case": 0.95}
WIDELY = ("unbounded", f"b{MOVIELENS.matched}", "surprise")  # what runs under wide keys, too
