"""Where the cache leads a rival of study ``frontier``, and by how much beyond chance."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from statistics import fmean

from .result import Measure
from .rivals import BUDGETS
from .sweep import Curve, Method, comma_list

# A lead of less is none: half a unit of the last digit that the paper prints.
NOTICED = 0.005
Curves = Mapping[str, Curve]
# By budget, the lead of the cache in each seed.
Leads = Mapping[int, Measure]


def leads(curves: Curves, rival: Method) -> Leads:
    """Recall of the cache less that of a rival with as many slots, where it can be that small."""
    ours, theirs = curves["dp"], curves[rival.name]
    least = theirs.found["slots"].max(axis=1).min()
    return {
        budget: Measure.of((ours.at(budget) - theirs.at(budget)).tolist())
        for budget in BUDGETS
        if budget >= least
    }


def ahead(found: Leads, sign: int = 1) -> list[int]:
    """Budgets at which the cache leads, by what the paper would print and beyond chance.

    With ``sign`` -1 those at which it trails.

    >>> ahead({16: Measure(0.1, 0.01, 9), 32: Measure(0.007, 0.02, 9), 48: Measure(0.001, 0.0, 9)})
    [16]
    """
    least = NOTICED + chance(found)
    return [at for at, lead in found.items() if sign * lead.mean > least]


def chance(found: Leads) -> float:
    """How far a lead may be from the truth: the margin by the variance of all budgets together.

    Two seeds say little of the spread at one budget, and more at seven.

    >>> round(chance(dict.fromkeys((16, 32, 48), Measure(0.1, 0.01, 4))), 5)     # 2.26 * .01 / 2
    0.0113
    """
    n = min(lead.n for lead in found.values())
    seen = len(found) * (n - 1) + 1
    pooled = sqrt(fmean(lead.sd**2 for lead in found.values()) * seen / n)
    return Measure(0.0, pooled, seen).margin


def worst(found: Leads) -> Measure:
    """The smallest lead at any budget; below 0 the cache trails there.

    >>> worst({16: Measure(0.1, 0.01, 9), 32: Measure(-0.002, 0.01, 9)})
    Measure(mean=-0.002, sd=0.01, n=9)
    """
    return min(found.values(), key=lambda lead: lead.mean)


def dominates(found: Leads) -> bool:
    """Never behind beyond what is noticed and chance, and ahead somewhere."""
    return not ahead(found, -1) and bool(ahead(found))


def standing(label: str, found: Leads) -> str:
    """Where the cache leads a rival and where it trails, in a sentence.

    >>> standing("LRU", {16: Measure(0.1, 0.01, 9), 32: Measure(-0.002, 0.001, 9)})
    'LRU: ahead at 16 slots, by 0.100 at most; it dominates.'
    """
    won, lost = ahead(found), ahead(found, -1)
    means = [lead.mean for lead in found.values()]
    said = []
    if won:
        where = "at every size" if len(won) == len(found) else f"at {comma_list(won)} slots"
        said.append(f"ahead {where}, by {max(means):.3f} at most")
    if lost:
        said.append(f"behind at {comma_list(lost)}, by {-min(means):.3f} at most")
    if not said:
        said.append(f"a tie, within {max(map(abs, means)):.3f} everywhere")
    return f"{label}: {', '.join(said)}{'; it dominates' if dominates(found) else ''}."
