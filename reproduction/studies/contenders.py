"""What races in study ``adaptive``, and on which streams."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration

from ..baselines import TTL, Attention, DecayedSuperposition, Superposition
from ..data import PhasedTask, RecallTask
from .result import Role

EASY, HARD = RecallTask(n_items=6, repeats=6), RecallTask(n_items=30, repeats=6)
STREAMS = {
    "alternating": PhasedTask((EASY, HARD) * 4),
    "equal": PhasedTask((RecallTask(n_items=6, repeats=30), HARD) * 4),
    "steady": PhasedTask((RecallTask(n_items=18, repeats=6),) * 8),
}
TAU = 0.44
# Fixed budgets on each stream: those of the paper, and some of about the size of the adaptive one.
BUDGETS = {"alternating": (30, 24, 22, 18), "equal": (20, 18, 16), "steady": (22, 20, 18)}
IDLES = (30, 40, 50)
STATE_DECAY = 0.995
POLICY = Concentration.surprise(tau=TAU)
# Rivals that come in sizes.
FAMILIES = {"fixed": "b", "expiry": "ttl"}


@dataclass(frozen=True, slots=True)
class Contender:
    """A memory in the race, how to make an empty one, and the streams it runs on."""

    name: str
    label: str
    setting: str
    make: Callable[[], Memory]
    role: Role = "paper"
    streams: Collection[str] = tuple(STREAMS)


def _fixed(budget: int) -> Contender:
    return Contender(
        f"b{budget}",
        f"Fixed budget {budget}",
        f"tau {TAU}, B={budget}" + ", the worst case" * (budget == 30),
        lambda: Cache(Concentration.fixed(TAU, budget)),
        "paper" if budget in (18, 30) else "added",
        [stream for stream, budgets in BUDGETS.items() if budget in budgets],
    )


def _expiring(idle: int) -> Contender:
    return Contender(
        f"ttl{idle}",
        f"Slots expire, {idle} idle",
        f"tau {TAU}, dropped after {idle} idle tokens",
        lambda: TTL(idle=idle, tau=TAU),
        "added",
    )


CONTENDERS = (
    Contender("superposition", "Fixed state (SSM)", "sum of k vᵀ, no decay", Superposition),
    Contender(
        "decay",
        "State that forgets",
        f"sum of k vᵀ, decay {STATE_DECAY}",
        lambda: DecayedSuperposition(STATE_DECAY),
        "added",
    ),
    Contender("attention", "Full attention", "keeps every token", Attention),
    Contender(
        "unbounded",
        "No budget",
        f"tau {TAU}",
        lambda: Cache(Concentration.fixed(TAU)),
        streams=("alternating",),
    ),
    *map(_fixed, sorted({b for budgets in BUDGETS.values() for b in budgets}, reverse=True)),
    *map(_expiring, IDLES),
    Contender(
        "surprise",
        "Adaptive (ours)",
        f"tau {TAU}, budget {POLICY.base:g} + {POLICY.gain:g} T, rate {POLICY.rate:g}",
        lambda: Cache(POLICY),
        "cache",
    ),
)


def ladder(stream: str, prefix: str) -> tuple[Contender, ...]:
    """The sizes of a family that run on a stream."""
    return tuple(
        one
        for one in CONTENDERS
        if stream in one.streams and one.name.removeprefix(prefix).isdigit()
    )
