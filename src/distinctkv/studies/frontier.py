"""The paper's frontier: recall against size, the cache by its threshold, its rivals by budget.

The stream is that of study ``recall``, 64 items seen 4 times each. At the end every item is asked
for once, where the paper asks for one: the means are the same, and ours are closer to them. Of
settings the paper gives only the budget of 64; ours are those of ``recall``, and each rival has the
best that is known of it. `Memorizing` would have the line of `Recency`, and has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter

import numpy as np

from ..data import RecallTask
from ..memory import Memory
from ..peers import (
    H2O,
    LFU,
    LRU,
    NEC,
    TOVA,
    Fourier,
    Kanerva,
    KeyDiff,
    Recency,
    Redundancy,
    Sinks,
    SnapKV,
    SnapKVOnce,
    Superposition,
)
from ..rule import Floats
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude
from .study import FULL, Progress, Scale, silent
from .sweeping import CACHE, TAUS, Curve, Sweep, listed, race

TITLE = "The threshold against eviction"
QUESTION = (
    "The threshold of the cache decides how many slots it opens; a budget decides how many tokens "
    "an eviction policy keeps. Which recalls more from as many slots, and from as many bytes?"
)
HEADINGS = {
    "points": "A budget of 64, as many as there are items",
    "others": "Other policies at that budget",
    "lead": "Recall of the cache less that of a policy, at equal slots",
    "bytes": "Recall at equal bytes",
}
TASK = RecallTask()
EPISODES = 50
BUDGETS = (16, 32, 48, 64, 80, 96, 128)
TAU = 0.3
# A lead of less is none: half a unit of the last digit that the paper prints.
NOTICED = 0.005
BYTES = (4096, 8192, 16384)


def _whole(make: Callable[[int], Memory]) -> Callable[[float], Memory]:
    return lambda size: make(int(size))


def _policy(name: str, label: str, setting: str, make: Callable[[int], Memory]) -> Sweep:
    role: Role = "paper" if name in ("recency", "sinks", "h2o") else "added"
    return Sweep(name, label, f"B={{}}{setting}", _whole(make), BUDGETS, role)


POLICIES = (
    _policy("recency", "Recency", "", Recency),
    _policy("sinks", "Sinks and window", ", 4 sinks", Sinks),
    _policy(
        "h2o",
        "Heavy hitter (H2O)",
        ", scores at theta .145, no recent window",
        lambda budget: H2O(budget, score_theta=0.145, recent=0),
    ),
    _policy(
        "h2o_tuned",
        "H2O, tuned",
        ", scores at theta .1, no recent window",
        lambda budget: H2O(budget, score_theta=0.1, recent=0),
    ),
    _policy("h2o_published", "H2O, published form", ", scores at theta .1, half recent", H2O),
    _policy("redundancy", "Redundancy eviction", ", the older of the closest two", Redundancy),
)
LEADS = (
    "Lead over recency",
    "Lead over sinks",
    "Lead over H2O",
    "Lead over H2O, tuned",
    "Lead over H2O, published",
    "Lead over redundancy",
)
OTHERS = (
    _policy("lru", "LRU over slots", f", tau {TAU}", LRU),
    _policy("lfu", "LFU over slots", f", tau {TAU}, decay .98", LFU),
    _policy("nec", "NEC dictionary", ", 1 neighbour", NEC),
    _policy("keydiff", "KeyDiff", "", KeyDiff),
    _policy("tova", "TOVA", "", TOVA),
    _policy(
        "snapkv",
        "SnapKV",
        ", window 32 or B/2",
        lambda budget: SnapKV(budget, window=min(32, budget // 2)),
    ),
    _policy(
        "snapkv_once",
        "SnapKV once",
        ", window 32 or B/2",
        lambda budget: SnapKVOnce(budget, window=min(32, budget // 2)),
    ),
)
STATES = (
    Sweep(
        "fourier",
        "Fourier state",
        "{} random features, scale 2.5",
        _whole(Fourier),
        (16, 32, 64, 96, 132, 192, 256),
    ),
    Sweep(
        "kanerva",
        "Kanerva state",
        "{} rows and their covariance",
        _whole(Kanerva),
        (16, 24, 32, 40, 48, 56, 64),
    ),
)
# The paper's fixed state, on streams whose keys have more numbers: it has no other way to grow.
WIDE = Sweep(
    "wide",
    "Sum, wider keys",
    "sum of k vᵀ, keys of {} numbers",
    lambda _: Superposition(),
    (16, 32, 64, 96, 132, 192, 256),
)
WEIGHED = ("recency", "h2o", "redundancy", "fourier", "kanerva", "wide", "dp")
Curves = Mapping[str, Curve]


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        "queries": "every item once",
        "tau": listed(TAUS),
        "budgets": listed(BUDGETS),
        "fourier_features": listed(STATES[0].sizes),
        "kanerva_rows": listed(STATES[1].sizes),
        "wider_keys": listed(WIDE.sizes),
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every policy at every budget, the cache at every threshold, the states at every size."""
    started = perf_counter()
    n_episodes = scale.of(EPISODES)
    found = race((*POLICIES, *OTHERS, *STATES, CACHE), TASK, seeds, n_episodes, progress)
    curves = {curve.sweep.name: curve for curve in (*found, widths(seeds, n_episodes))}
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
    return conclude(result, perf_counter() - started)


def widths(seeds: Sequence[int], n_episodes: int) -> Curve:
    """The plain sum on streams of wider and wider keys."""
    parts: list[Curve] = []
    for width in WIDE.sizes:
        one = replace(WIDE, sizes=(width,))
        parts += race((one,), RecallTask(width=int(width)), seeds, n_episodes)
    found = {name: np.concatenate([part.found[name] for part in parts]) for name in parts[0].found}
    return Curve(WIDE, found)


def rows(curves: Curves) -> Iterator[Row]:
    """The points at K, the paper's policies first; leads over those; recall by bytes."""
    measures = ("recall", "slots", "bytes")
    for policy in POLICIES:
        yield curves[policy.name].row(TASK.n_items, measures, "points")
    yield curves["dp"].row(TAU, measures, "points")
    for policy in OTHERS:
        yield curves[policy.name].row(TASK.n_items, measures, "others")
    for policy, label in zip(POLICIES, LEADS, strict=True):
        yield lead_row(policy, label, leads(curves, policy))
    for name in WEIGHED:
        yield byte_row(curves[name])


def leads(curves: Curves, policy: Sweep) -> Floats:
    """Recall of the cache at as many slots as each budget, less that of a policy, (M, N)."""
    ours = np.array([curves["dp"].at(budget) for budget in BUDGETS])
    gained: Floats = ours - curves[policy.name].found["recall"]
    return gained


def led(gained: Floats) -> list[int]:
    """Budgets at which the cache leads, by what the paper would print and two standard errors.

    >>> led(np.array([[0.1, 0.1], [0.1, -0.1], [0.001, 0.001], *[[0.0, 0.0]] * 4]))
    [16]
    """
    means, errors = gained.mean(axis=1), gained.std(axis=1, ddof=1) / np.sqrt(gained.shape[1])
    by = np.maximum(NOTICED, 2 * errors)
    return [budget for budget, lead, least in zip(BUDGETS, means, by, strict=True) if lead > least]


def lead_row(policy: Sweep, label: str, gained: Floats) -> Row:
    """What the cache gains at K, and at what part of the budgets it leads."""
    part = len(led(gained)) / len(BUDGETS)
    measures = {
        f"B={TASK.n_items}": Measure.of(gained[BUDGETS.index(TASK.n_items)].tolist()),
        "budgets led": Measure(round(part, 6), 0.0, gained.shape[1]),
    }
    setting = f"B={BUDGETS[0]} to {BUDGETS[-1]}"
    return Row(policy.name, label, measures, setting, policy.role, "lead")


def byte_row(curve: Curve) -> Row:
    """Recall at a few sizes, on the lines between the points that were measured."""
    measures = {
        f"{size / 1024:g} KiB": Measure.of(curve.at(size, "bytes").tolist()) for size in BYTES
    }
    return Row(curve.sweep.name, curve.sweep.label, measures, "", curve.sweep.role, "bytes")


def lines(curves: Curves) -> Iterator[Series]:
    """Recall against slots and bytes; leads; and what whole items allow."""
    for curve in curves.values():
        yield curve.series("slots")
        yield curve.series("bytes")
    budgets = tuple(map(float, BUDGETS))
    for policy in (*POLICIES, *OTHERS):
        gained = leads(curves, policy)
        means, sds = gained.mean(axis=1).round(5), gained.std(axis=1, ddof=1).round(5)
        name = f"{policy.name}.lead"
        yield Series(name, policy.label, budgets, tuple(means.tolist()), tuple(sds.tolist()))
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
    policies, dp, fourier = (*POLICIES, *OTHERS), curves["dp"], curves["fourier"]
    known = {policy.name: curves[policy.name].at(TASK.n_items).mean() for policy in policies}
    gained = {policy.name: leads(curves, policy) for policy in policies}
    won = {name: led(lead) for name, lead in gained.items()}
    always = "; ".join(one.label for one in policies if won[one.name] == [*BUDGETS])
    bare, small = 4 * TASK.n_items * (TASK.width + 1), 4 * TASK.width * TASK.n_classes
    slots = [dp.found["slots"][TAUS.index(tau)].mean() for tau in (0.4, 0.02)]
    return (
        f"At {TASK.n_items} slots, one for each item, the cache recalls "
        f"{dp.at(TASK.n_items).mean():.3f}, recency {known['recency']:.3f}, sinks and window "
        f"{known['sinks']:.3f}, and heavy hitters {known['h2o']:.3f} at the temperature chosen for "
        "the paper's number.",
        f"That the cache dominates means that it leads at each of {len(BUDGETS)} budgets. So it "
        f"does with these: {always or 'none'}. Over heavy hitters it leads only at B about K, "
        f"{at_budgets(won['h2o'])}; at a better temperature {at_budgets(won['h2o_tuned'])}, by "
        f"{gained['h2o_tuned'].mean(axis=1).max():.3f} at most.",
        "“Every fixed-budget policy still trails” is too much said. Redundancy eviction recalls "
        f"{known['redundancy']:.3f} at {TASK.n_items} slots, and differs from the cache by "
        f"{np.abs(gained['redundancy'].mean(axis=1)).max():.3f} at most, at any budget. LRU and "
        "LFU over slots tie as well, but they are the cache itself under a budget.",
        "Below K there is little to win. Who keeps B different items and guesses the others "
        f"recalls {ceiling(32):.3f} at 32 slots; the cache recalls {dp.at(32).mean():.3f}. All "
        "that counts is not to keep an item twice. What sets the cache apart from redundancy "
        "eviction is that nobody has to know B: any tau from .02 to .4 opens "
        f"{slots[0]:.1f} to {slots[1]:.1f} slots here.",
        f"By bytes the order turns round. In {2 * small:,} bytes, twice the paper's fixed state, "
        f"Fourier features recall {fourier.at(2 * small, 'bytes').mean():.3f} and the cache "
        f"{dp.at(2 * small, 'bytes').mean():.3f}. In {bare:,}, {TASK.n_items} keys and labels and "
        f"nothing else, the features recall {fourier.at(bare, 'bytes').mean():.3f}; the cache of "
        f"{TASK.n_items} slots held {dp.found['bytes'][TAUS.index(TAU)].mean():,.0f} here, with "
        "one-hot values and counters. But a state does not grow: as with a budget, whoever sets "
        "its size has to know how many items will come.",
        "Every item is asked for, so ours is the spread of whole streams. It is smaller than the "
        "paper's, which is that of 300 single questions.",
    )


def at_budgets(found: Sequence[int]) -> str:
    """Where a lead is, in words.

    >>> at_budgets([48, 64]), at_budgets([])
    ('at 48, 64', 'nowhere')
    """
    return f"at {listed(found)}" if found else "nowhere"
