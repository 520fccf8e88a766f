"""The paper's frontier: recall against size, the cache by its threshold, its rivals by budget.

The stream is that of study ``recall``, 64 items seen 4 times each. At the end every item is asked
for once, where the paper asks for one: the means are the same, and ours are closer to them. Of
settings the paper gives only the budget of 64; ours are those of ``recall``. The rivals and their
sizes stand in ``rivals``.

Recall at so many slots, or bytes, is read off a curve, the cache's and a rival's in the same way:
on the line between two measured sizes, see `Curve.at`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter

import numpy as np

from ..data import RecallTask
from .leading import NOTICED, Curves, Leads, ahead, leads, standing, worst
from .result import Claim, Measure, Result, Row, Series, Setting
from .rivals import BUDGETS, GROWING, OTHERS, POLICIES, STATES, TAU, WIDE
from .shelf import conclude
from .study import FULL, Progress, Scale, silent
from .sweep import CACHE, TAUS, Curve, Method, comma_list, compare, every_item

TITLE = "The threshold against eviction"
QUESTION = (
    "The threshold of the cache decides how many slots it opens; a budget decides how many tokens "
    "an eviction policy keeps. Which recalls more from as many slots, and from as many bytes?"
)
HEADINGS = {
    "points": "A budget of 64, as many as there are items",
    "others": "Other policies at that budget",
    "growing": "Memories that grow: the smallest size within .005 of the best recall",
    "lead": "Recall of the cache less that of a rival, at equal slots",
    "bytes": "Recall at equal bytes",
}
TASK = RecallTask()
EPISODES = 50
BYTES = (4096, 8192, 16384)
WEIGHED = (
    *("recency", "h2o", "redundancy", "subgen", "kvm", "ovq", "ham", "ttl"),
    *("fourier", "kanerva", "infformer", "gated", "wide", "dp"),
)
RANKED = (*POLICIES, *GROWING)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    swept = {f"{sweep.name}_sizes": comma_list(sweep.sizes) for sweep in (*GROWING, *STATES, WIDE)}
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        "queries": "every item once",
        "tau": comma_list(TAUS),
        "budgets": comma_list(BUDGETS),
        **swept,
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every policy at every budget, the cache at every threshold, the others at every size."""
    started = perf_counter()
    n_episodes = scale.of(EPISODES)
    sweeps = (*POLICIES, *OTHERS, *GROWING, *STATES, CACHE)
    curves = compare(sweeps, every_item(TASK), seeds, n_episodes, progress)
    curves["wide"] = widths(seeds, n_episodes)
    result = Result(
        study="frontier",
        title=TITLE,
        question=QUESTION,
        reading=reading(curves),
        rows=tuple(rows(curves)),
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(lines(curves)),
        headings=HEADINGS,
    )
    concluded = conclude(result, perf_counter() - started)
    return replace(concluded, claims=tuple(qualify(claim, curves) for claim in concluded.claims))


def widths(seeds: Sequence[int], n_episodes: int) -> Curve:
    """The plain sum on streams of wider and wider keys."""
    parts: list[Curve] = []
    for width in WIDE.sizes:
        one = replace(WIDE, sizes=(width,))
        task = every_item(RecallTask(width=int(width)))
        parts += compare((one,), task, seeds, n_episodes).values()
    found = {name: np.concatenate([part.found[name] for part in parts]) for name in parts[0].found}
    return Curve(WIDE, found)


def rows(curves: Curves) -> Iterator[Row]:
    """The points at K, the paper's policies first; what grows; leads; recall by bytes."""
    measures = ("recall", "slots", "bytes")
    for policy in POLICIES:
        yield curves[policy.name].row(measures, "points", TASK.n_items)
    yield curves["dp"].row(measures, "points", TAU)
    for policy in OTHERS:
        yield curves[policy.name].row(measures, "others", TASK.n_items)
    for sweep in (*GROWING, CACHE):
        curve = curves[sweep.name]
        yield curve.row(measures, "growing", enough(curve))
    for sweep in RANKED:
        yield lead_row(sweep, leads(curves, sweep))
    for name in WEIGHED:
        yield byte_row(curves[name])


def enough(curve: Curve) -> float:
    """The size that recalls as much as the best, as far as that is noticed, from fewest slots."""
    recall, slots = (curve.found[name].mean(axis=1) for name in ("recall", "slots"))
    fewest = np.where(recall >= recall.max() - NOTICED, slots, np.inf).argmin()
    return curve.method.sizes[int(fewest)]


def qualify(claim: Claim, curves: Curves) -> Claim:
    """A claim that the cache is never behind, with where it is ahead; others as they are."""
    if (claim.table, claim.measure, claim.kind) != ("lead", "worst", "holds"):
        return claim
    rival = next(policy for policy in POLICIES if policy.name == claim.row)
    found = leads(curves, rival)
    won = ahead(found)
    if len(won) == len(found):
        return claim
    where = f"only at B = {comma_list(won)}" if won else "at no budget"
    return replace(claim, verdict=f"holds, leads by {NOTICED:g} beyond chance {where}")


def lead_row(rival: Method, found: Leads) -> Row:
    """What the cache gains at K, and where it gains least."""
    measures = {f"B={TASK.n_items}": found[TASK.n_items], "worst": worst(found)}
    setting = f"B={min(found)} to {max(found)}"
    return Row(rival.name, f"Lead over {rival.label}", measures, setting, rival.role, "lead")


def byte_row(curve: Curve) -> Row:
    """Recall at a few sizes, on the lines between the points that were measured."""
    measures = {
        f"{size / 1024:g} KiB": Measure.of(curve.at(size, "bytes").tolist()) for size in BYTES
    }
    return Row(curve.method.name, curve.method.label, measures, "", curve.method.role, "bytes")


def lines(curves: Curves) -> Iterator[Series]:
    """Recall against slots and bytes; leads; and what whole items allow."""
    for curve in curves.values():
        yield curve.series("slots")
        yield curve.series("bytes")
    for rival in (*POLICIES, *OTHERS, *GROWING):
        if found := leads(curves, rival):
            budgets = tuple(map(float, found))
            means = tuple(round(lead.mean, 5) for lead in found.values())
            sds = tuple(round(lead.sd, 5) for lead in found.values())
            yield Series(f"{rival.name}.lead", rival.label, budgets, means, sds)
    ends = (0.0, float(TASK.n_items), float(BUDGETS[-1]))
    yield Series("ceiling", "B items known, others guessed", ends, tuple(map(ceiling, ends)))


def ceiling(slots: float) -> float:
    """Recall of a memory that knows as many items as it has slots and guesses the others.

    >>> ceiling(32), ceiling(128)
    (0.53125, 1.0)
    """
    known = min(slots / TASK.n_items, 1.0)
    return known + (1 - known) / TASK.n_classes


def reading(curves: Curves) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""
    at_items = {name: curve.at(TASK.n_items).mean() for name, curve in curves.items()}
    slots = [curves["dp"].found["slots"][TAUS.index(tau)].mean() for tau in (0.4, 0.02)]
    return (
        f"At {TASK.n_items} slots, one for each item, the cache recalls {at_items['dp']:.3f}, "
        f"recency {at_items['recency']:.3f}, sinks and window {at_items['sinks']:.3f}, and heavy "
        f"hitters {at_items['h2o']:.3f} at the temperature chosen for the paper's number.",
        "That the cache dominates means that with as many slots it recalls no less anywhere, and "
        "more somewhere. "
        + " ".join(
            standing(one.label, leads(curves, one)) for one in POLICIES if one.role == "paper"
        ),
        "Rivals that the paper does not have: "
        + " ".join(
            standing(one.label, leads(curves, one))
            for one in RANKED
            if one.role == "added" and one.name != "subgen"
        ),
        prior(curves),
        f"Who keeps B different items and guesses the others recalls {ceiling(32):.3f} at 32 "
        f"slots; the cache recalls {curves['dp'].at(32).mean():.3f}. A budget has to be known; any "
        f"tau from .02 to .4 opens {slots[0]:.1f} to {slots[1]:.1f} slots here.",
        weighing(curves),
        "Every item is asked for, so ours is the spread of whole streams; the paper's is that of "
        "300 single questions.",
    )


def prior(curves: Curves) -> str:
    """The published rule that is ours, and what it recalls."""

    def held(name: str) -> list[float]:
        return [curves[name].mean(measure, TAU) for measure in ("slots", "recall", "bytes")]

    theirs, ours = held("subgen"), held("dp")
    return (
        "SubGen (2024) is prior work with the same rule: a key further than delta from every group "
        f"opens one, which is tau = delta²/2. At tau {TAU} it opens {theirs[0]:.1f} groups and "
        f"recalls {theirs[1]:.3f}; the cache opens {ours[0]:.1f} slots and recalls {ours[1]:.3f}. "
        f"{standing('Over all sizes', leads(curves, curves['subgen'].method))} With a first key "
        f"and a sample for each group it holds {theirs[2]:,.0f} bytes, the cache {ours[2]:,.0f}."
    )


def weighing(curves: Curves) -> str:
    """Who recalls most from so many bytes, and where the cache stands."""
    rivals = [curves[name] for name in WEIGHED if name not in ("wide", "dp")]

    def at(size: int) -> str:
        best = max(rivals, key=lambda curve: float(curve.at(size, "bytes").mean()))
        theirs, ours = best.at(size, "bytes").mean(), curves["dp"].at(size, "bytes").mean()
        return f"in {size:,} bytes {best.method.label} {theirs:.3f} and the cache {ours:.3f}"

    wide = " and ".join(f"{curves['wide'].at(size, 'bytes').mean():.3f}" for size in BYTES[:2])
    bare = 4 * TASK.n_items * (TASK.width + 1)
    return (
        "By bytes, random projections and counters included, the best rival recalls "
        f"{'; '.join(map(at, BYTES))}. A plain sum of wider keys, on streams of its own, "
        f"recalls {wide} in the first two. {TASK.n_items} keys and labels and nothing else are "
        f"{bare:,} bytes, and {at(bare)}; the cache of {TASK.n_items} slots held "
        f"{curves['dp'].found['bytes'][TAUS.index(TAU)].mean():,.0f} here, with one-hot values and "
        "counters. A state does not grow: as with a budget, whoever sets its size has to know how "
        "many items will come."
    )
