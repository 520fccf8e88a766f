"""The paper's frontier: recall against size; the cache by its threshold, baselines by budget.

The stream is that of study ``recall``, 64 items seen 4 times each. At the end every item is queried
once, where the paper queries one: the means are the same, and ours have a smaller error. Of
settings the paper gives only the budget of 64; ours are those of ``recall``. A baseline has the
best setting that is known for it on this stream (`python -m reproduction.studies.scan`).

Recall at a number of slots, or bytes, is interpolated between two measured sizes, for the cache and
for a baseline in the same way (`Curve.at`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import sqrt
from time import perf_counter

import numpy as np

from ..baselines import (
    H2O,
    HAM,
    KVM,
    LFU,
    LRU,
    NEC,
    OVQ,
    TOVA,
    TTL,
    Fourier,
    GatedDelta,
    GroupSamples,
    InfFormer,
    Kanerva,
    KeyDiff,
    Recency,
    Redundancy,
    Sinks,
    SnapKV,
    SnapKVOnce,
    SubGen,
    Superposition,
    Titans,
)
from ..data import RecallTask
from ..result import Measure, Result, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent
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
    "lead": "Recall of the cache less that of a baseline, at equal slots",
    "bytes": "Recall at equal bytes; a dash where the smallest size that was measured is larger",
}
TASK = RecallTask()
EPISODES = 50
BUDGETS = (16, 32, 48, 64, 80, 96, 128)
TAU = 0.3
NOTICED = 0.005  # half a unit of the last digit that the paper prints: less is no difference
BYTES = (4096, 8192, 16384)


def window(budget: int) -> int:
    """SnapKV's window: 64, the longest in use, or three quarters of the budget.

    A window of the whole budget would recall more and be `Recency`.

    >>> window(64), window(128)
    (48, 64)
    """
    return min(64, 3 * budget // 4)


POLICIES = (
    Method("recency", "Recency", "B={}", Recency, BUDGETS, "paper"),
    Method("sinks", "Sinks and window", "B={}, 4 sinks", Sinks, BUDGETS, "paper"),
    Method(
        "h2o",
        "Heavy hitter (H2O)",
        "B={}, scores at theta .145, no recent window",
        lambda budget: H2O(budget, score_theta=0.145, recent=0),
        BUDGETS,
        "paper",
    ),
    Method(
        "h2o_tuned",
        "H2O, tuned",
        "B={}, scores at theta .1, no recent window",
        lambda budget: H2O(budget, score_theta=0.1, recent=0),
        BUDGETS,
    ),
    Method(
        "h2o_published",
        "H2O, published form",
        "B={}, scores at theta .1, half recent",
        H2O,
        BUDGETS,
    ),
    Method(
        "redundancy",
        "Redundancy eviction",
        "B={}, the older of the closest two",
        Redundancy,
        BUDGETS,
    ),
)
OTHERS = (
    Method("lru", "LRU over slots", f"B={{}}, tau {TAU}", LRU, BUDGETS),
    Method("lfu", "LFU over slots", f"B={{}}, tau {TAU}, decay .98", LFU, BUDGETS),
    Method("nec", "NEC dictionary", "B={}, 1 neighbour", NEC, BUDGETS),
    Method("keydiff", "KeyDiff", "B={}", KeyDiff, BUDGETS),
    Method("tova", "TOVA", "B={}", TOVA, BUDGETS),
    Method(
        "snapkv",
        "SnapKV",
        "B={}, window 64 or 3B/4",
        lambda budget: SnapKV(budget, window=window(budget)),
        BUDGETS,
    ),
    Method(
        "snapkv_once",
        "SnapKV once",
        "B={}, window 64 or 3B/4",
        lambda budget: SnapKVOnce(budget, window=window(budget)),
        BUDGETS,
    ),
)
# The number of slots follows from a setting and the stream. The delta of groups is that of the
# cache's tau. At an error of 2 HAM keeps no token and is the delta rule.
GROWING = (
    Method(
        "subgen",
        "SubGen",
        f"{{}} tokens sampled, groups at delta of tau {TAU}",
        lambda values: SubGen(int(values), delta=sqrt(2 * TAU)),
        (16, 32, 64, 96, 128, 192, 256),
    ),
    Method(
        "groups",
        "Samples by group (after SubGen)",
        "delta of tau {}, 1 sample",
        lambda tau: GroupSamples(delta=sqrt(2 * tau)),
        (0.01, 0.1, 0.3, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85),
    ),
    Method("kvm", "KVM", "factor {}, chunks of 16", KVM, (1, 2, 3, 4, 5, 6, 8)),
    Method("ovq", "OVQ", "limit {}, chunks of 16", OVQ, (17, 36, 59, 86, 116, 154, 256)),
    Method("ham", "HAM", "error {}, rate .05", HAM, (0.95, 0.98, 1.0, 1.02, 1.05, 2.0)),
    Method("ttl", "TTL", f"idle {{}}, tau {TAU}", TTL, (16, 32, 64, 128, 255)),
)
STATES = (
    Method(
        "fourier",
        "Fourier state",
        "{} random features, scale 2.5",
        Fourier,
        (16, 32, 48, 66, 96, 132, 192),
    ),
    Method(
        "kanerva",
        "Kanerva state",
        "{} rows and their covariance",
        Kanerva,
        (12, 16, 24, 32, 40, 48, 64),
    ),
    Method("infformer", "∞-former", "{} waves", InfFormer, (16, 32, 64, 128)),
    Method(
        "titans",
        "Titans",
        "{} hidden units, step 1, momentum .5",
        lambda hidden: Titans(int(hidden)),
        (32, 64, 128),
    ),
    Method("gated", "Gated delta rule", "rate .1, decay {}", lambda _: GatedDelta(), (0.999,)),
)
# The paper's fixed state grows only with the key width, so its streams have wider keys.
WIDE = Method(
    "wide",
    "Sum, wider keys",
    "sum of k vᵀ, keys of {} numbers",
    lambda _: Superposition(),
    (16, 32, 64, 96, 132, 192, 256),
)
WEIGHED = (
    *("dp", "recency", "h2o", "redundancy", "subgen", "groups", "kvm", "ovq", "ham", "ttl"),
    *("fourier", "kanerva", "infformer", "titans", "gated", "wide"),
)
RANKED = (*POLICIES, *(one for one in OTHERS if one.name == "snapkv"), *GROWING)
Curves = Mapping[str, Curve]
Margins = Mapping[int, Measure]  # by budget, recall of the cache less that of a baseline


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    swept = {f"{one.name}_sizes": comma_list(one.sizes) for one in (*GROWING, *STATES, WIDE)}
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
    methods = (*POLICIES, *OTHERS, *GROWING, *STATES, CACHE)
    curves = compare(methods, every_item(TASK), seeds, n_episodes, progress)
    curves["wide"] = widths(seeds, n_episodes)
    made = tuple(rows(curves))
    result = Result(
        study="frontier",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("frontier", made, **extras(curves)),
        rows=made,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(curve.series("slots") for curve in curves.values()),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


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
    """The points at K, the paper's policies first; what grows; margins; recall by bytes."""
    measures = ("recall", "slots", "bytes")
    for policy in POLICIES:
        yield curves[policy.name].row(measures, "points", TASK.n_items)
    yield curves["dp"].row(measures, "points", TAU)
    for policy in OTHERS:
        yield curves[policy.name].row(measures, "others", TASK.n_items)
    for method in (*GROWING, CACHE):
        curve = curves[method.name]
        yield curve.row(measures, "growing", smallest_best(curve))
    for method in RANKED:
        yield margin_row(method, margins(curves, method))
    for name in WEIGHED:
        if curves[name].covers(max(BYTES), "bytes"):
            yield byte_row(curves[name])


def smallest_best(curve: Curve) -> float:
    """The size with fewest slots whose recall is within `NOTICED` of the best."""
    recall, slots = (curve.found[name].mean(axis=1) for name in ("recall", "slots"))
    fewest = np.where(recall >= recall.max() - NOTICED, slots, np.inf).argmin()
    return curve.method.sizes[int(fewest)]


def extras(curves: Curves) -> Mapping[str, float]:
    """What the findings name beside the rows."""
    cache, groups = curves["dp"], curves["groups"]
    return {
        "items": TASK.n_items,
        "tau": TAU,
        "subgen_recall": curves["subgen"].mean("recall", TASK.n_items),
        "subgen_twice": curves["subgen"].mean("recall", 2 * TASK.n_items),
        "subgen_bytes": curves["subgen"].mean("bytes", TASK.n_items),
        "groups_recall": groups.mean("recall", TAU),
        "groups_bytes": groups.mean("bytes", TAU),
        "ceiling": ceiling(32),
        "cache_at_32": float(cache.at(32).mean()),
        "slots_loose": cache.mean("slots", 0.4),
        "slots_strict": cache.mean("slots", 0.02),
    }


def margins(curves: Curves, baseline: Method) -> Margins:
    """Recall of the cache less that of a baseline, at every budget that the baseline can have."""
    ours, theirs = curves["dp"], curves[baseline.name]
    return {
        budget: Measure.of((ours.at(budget) - theirs.at(budget)).tolist())
        for budget in BUDGETS
        if theirs.covers(budget)
    }


def margin_row(baseline: Method, found: Margins) -> Row:
    """What the cache gains at K, and where it gains least."""
    worst = min(found.values(), key=lambda margin: margin.mean)
    measures = {f"B={TASK.n_items}": found[TASK.n_items], "worst": worst}
    label, setting = f"Lead over {baseline.label}", f"B={min(found)} to {max(found)}"
    return Row(baseline.name, label, measures, setting, baseline.role, "lead")


def byte_row(curve: Curve) -> Row:
    """Recall at a few sizes, interpolated; none where the smallest measured one takes more."""
    measures = {
        f"{size / 1024:g} KiB": Measure.of(curve.at(size, "bytes").tolist())
        for size in BYTES
        if curve.covers(size, "bytes")
    }
    return Row(curve.method.name, curve.method.label, measures, "", curve.method.role, "bytes")


def ceiling(slots: float) -> float:
    """Recall of a memory that knows as many items as it has slots and guesses the others.

    >>> ceiling(32), ceiling(128)
    (0.53125, 1.0)
    """
    known = min(slots / TASK.n_items, 1.0)
    return known + (1 - known) / TASK.n_classes
