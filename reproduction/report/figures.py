"""What the figure of each study shows: one each, and the picture at the head of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from distinctkv import snapshot

from ..result import Result, Row
from .plots import OURS, Axis, Curve, Curves, Dots, Lines, Mark, Pairs, Picture, Points
from .text import claim_on, number

PARTS = (0, 0.2, 0.4, 0.6, 0.8, 1)
RECALL = Axis("recall", (0, 1.04), PARTS)
ALONG = Axis("recall", (-0.02, 1.04), PARTS)
SLOTS = Axis("slots held", (0, 130), tuple(range(0, 129, 32)))
BYTES = tuple(2.0**n for n in range(11, 20))
Rows = Callable[[Result], list[Row]]


# What is shown of a result


def named(names: str) -> list[tuple[str, str, str]]:
    """Names with their labels and colours; a label with "(ours)" has our colour.

    >>> named("dp The cache (ours)|h2o H2O")
    [('dp', 'The cache (ours)', 'ours'), ('h2o', 'H2O', 's1')]
    """
    rest = iter(range(1, 6))
    pairs = (one.split(" ", 1) for one in names.split("|"))
    return [(name, label, OURS if "(ours)" in label else f"s{next(rest)}") for name, label in pairs]


def series(pattern: str, names: str) -> Curves:
    """The series whose names ``pattern`` makes of these names, with their labels.

    Series that a run does not have, for want of data or in a quick run, are left out.
    """

    def find(result: Result) -> list[Curve]:
        measured = {one.name: one for one in result.series}
        return [
            rising(Curve(label, colour, line.x, line.y, line.sd))
            for name, label, colour in named(names)
            if (line := measured.get(pattern.format(name)))
        ]

    return find


def rising(curve: Curve) -> Curve:
    """The same points in rising order of x, so that the label stands at the right end."""
    order = np.argsort(curve.x, kind="stable")
    x, y, sd = ([numbers[i] for i in order if numbers] for numbers in (curve.x, curve.y, curve.sd))
    return replace(curve, x=x, y=y, sd=sd)


def points(table: str, x: str, names: str) -> Curves:
    """Rows of a table as points, by two of their measures."""

    def find(result: Result) -> list[Curve]:
        measured = {row.name: row.measures for row in rows(table)(result)}
        return [
            Curve(label, colour, (found[x].mean,), (found["recall"].mean,))
            for name, label, colour in named(names)
            if (found := measured.get(name))
        ]

    return find


def rows(*tables: str, only: str = "") -> Rows:
    """The measured rows of these tables, or of these names, which a bar separates."""

    def find(result: Result) -> list[Row]:
        found = (row for table in tables for row in result.tables.get(table, ()))
        wanted = only.split("|")
        return [row for row in found if row.measures and (not only or row.name in wanted)]

    return find


def paper_points(
    table: str, x: str | Callable[[Row], float], only: str = "", y: str = "recall"
) -> Pairs:
    """The paper's numbers for ``y`` in a table, at its own ``x`` or else at ours."""

    def place(result: Result, row: Row) -> float:
        if callable(x):
            return x(row)
        claim = claim_on(result, row, x)
        return claim.paper if claim else row.measures[x].mean

    def find(result: Result) -> list[tuple[float, float]]:
        claims = [(row, claim_on(result, row, y)) for row in rows(table, only=only)(result)]
        return [(place(result, row), claim.paper) for row, claim in claims if claim]

    return find


def spoken_bytes(row: Row) -> str:
    """The bytes of a row in words."""
    return f"{number(row.measures['bytes'].mean)} B"


# Those that need more than names


def streams(result: Result) -> list[Row]:
    """Study domains: the streams that were here, each with the measures of two tables."""
    names = "movielens|mimic|synpuf"
    both = zip(rows("counts", only=names)(result), rows("keyed", only=names)(result), strict=True)
    return [
        replace(counts, measures={**counts.measures, **keyed.measures}, role="paper")
        for counts, keyed in both
    ]


def accuracy_by_system(result: Result) -> list[Row]:
    """Study logs: for each system and for their mean the accuracy of every parser."""
    parsers = rows("ga")(result)
    found = [
        Row(name, name, {parser.name: parser.measures[name] for parser in parsers}, "", "paper")
        for name in (parsers[0].measures if parsers else ())
    ]
    means = {row.name: row.measures["GA"] for row in rows("average")(result)}
    return [*found, Row("mean", "mean of all", means, "", "paper")] if found else []


def models_by_bytes(result: Result) -> list[Curve]:
    """Study mqar: models that grow as lines; fixed states, whose bytes stay, as columns of dots."""
    names = "mass Slots (ours)|full Attention|kvm KVM-like|ovq OVQ-like|mamba2 Mamba-2"
    found = series("{}", f"{names}|delta Gated DeltaNet")(result)
    return [replace(c, style="none" if len(set(c.x)) == 1 else "-", sd=()) for c in found]


def read_times(result: Result) -> list[Curve]:
    """Study cost: a query of attention and of the cache, for both numbers of items."""
    kinds = (("attention", "s1", "Attention"), ("cache", OURS, "Cache"))
    return [
        Curve(f"{label}, {one.label}", colour, one.x, one.y, style="-" if filled else "--")
        for name, colour, label in kinds
        for filled, one in enumerate(o for o in result.series if o.name.endswith(f".{name}"))
    ]


def recall_by_cost(result: Result) -> list[Curve]:
    """Study adaptive: three kinds of budgets by the slots that they hold, in two averages."""
    kinds = (("b", "Fixed budget", "s1"), ("ttl", "Slots expire", "s2"))
    found = []
    for start, label, colour in (*kinds, ("surprise", "Adaptive (ours)", OURS)):
        group = [row for row in rows("alternating")(result) if row.name.startswith(start)]
        group.sort(key=lambda row: row.measures["per token"].mean)
        y = tuple(row.measures["recall"].mean for row in group)
        for average, style, filled in (("per token", "-", True), ("phase end", ":", False)):
            x = tuple(row.measures[average].mean for row in group)
            found.append(Curve(label if filled else "", colour, x, y, (), style, filled))
    return [curve for curve in found if curve.x]


EVER = 2500.0  # where "for ever" is drawn
REACH = Axis(
    "tokens for which a use counts",
    ticks=(10, 50, 200, 1000, EVER),
    log=10,
    tick_labels=("10", "50", "200", "1,000", "ever"),
)


def recall_by_reach(result: Result) -> list[Curve]:
    """Study adaptive_real: recall of three budgets on BGL against how long a use counts."""
    found = rows("decay")(result)
    x = tuple(min(float(row.name.removeprefix("lasts_")), EVER) for row in found)
    kinds = (
        ("worst case", "s2", "Fixed budget, worst case"),
        ("fixed", "s1", "Fixed budget, matched"),
        ("adaptive", OURS, "Adaptive (ours)"),
    )
    return [
        Curve(label, colour, x, tuple(row.measures[name].mean for row in found))
        for name, colour, label in kinds
        if found
    ]


def paper_reach(result: Result) -> list[tuple[float, float]]:
    """Where each budget on BGL has the paper's recall, which falls as a use counts for longer."""
    rings = []
    for line, row in zip(recall_by_reach(result), ("b45", "b18", "surprise"), strict=False):
        recall = next(c.paper for c in result.claims if c.id == f"adaptive_real.bgl.{row}.recall")
        rings.append((float(np.interp(-recall, -np.array(line.y), line.x)), recall))
    return rings


def expiry(result: Result) -> list[tuple[str, float]]:
    """Study adaptive_real: recall of slots that expire, which have no decay."""
    return [
        ("Slots expire", row.measures["recall"].mean) for row in rows("bgl", only="ttl150")(result)
    ]


def tables(result: Result) -> list[Curve]:
    """Study process: tables of the process, and slots of the rule on two streams."""
    shown = (
        ("alpha_20", "Process, alpha 20", "s1", "-"),
        ("alpha_5", "Process, alpha 5", "s1", "-"),
        ("alpha_1", "Process, alpha 1", "s1", "-"),
        ("types", "Slots on 64 types", OURS, "-"),
        ("isotropic", "Slots, no repeats", OURS, "--"),
    )
    measured = {one.name: one for one in result.series}
    return [
        Curve(label, colour, measured[name].x, measured[name].y, style=style)
        for name, label, colour, style in shown
    ]


# One figure for each study, and the picture

STORY = "recall"
FIGURES: Mapping[str, tuple[Lines | Dots, str]] = {
    "story": (
        Points(
            points(
                "table",
                "slots",
                "attention Full attention|h2o Heavy hitters (H2O)|recency Most recent|"
                "superposition Fixed state|redundancy Redundancy eviction|dp The cache (ours)",
            ),
            Axis("slots held at the end of the stream", (16, 700), (16, 32, 64, 128, 256), log=2),
            Axis("recall", (0.6, 1.03), (0.6, 0.7, 0.8, 0.9, 1)),
            rings=paper_points("table", "slots"),
        ),
        "64 items, each seen four times: recall against slots held. The cache finds the number of "
        "items by itself; the eviction policies are given it as their budget. Rings: the paper.",
    ),
    "recall": (
        Points(
            points(
                "table",
                "bytes",
                "attention Full attention|fourier Fourier state|ridge Ridge state|"
                "superposition Fixed state|dp The cache (ours)",
            ),
            Axis("bytes held at the end of the stream", (1500, 200_000), BYTES[::2], log=2),
            Axis("recall", (0.75, 1.02), (0.8, 0.9, 1)),
            left=("The cache (ours)",),
        ),
        "Recall against bytes held, values and counters included. The slots of a fixed state are "
        "the rows of a matrix, so only bytes compare it with the cache.",
    ),
    "frontier": (
        Lines(
            series(
                "{}.slots",
                "dp The cache (ours)|redundancy Redundancy|subgen SubGen|h2o H2O|"
                "recency Most recent|sinks Sinks, window",
            ),
            SLOTS,
            RECALL,
            rings=paper_points("points", "slots"),
        ),
        "Recall against slots held. The cache is given a threshold, the others are given a number "
        "of slots. There are 64 items. Rings: the paper.",
    ),
    "kmeans": (
        Lines(
            series(
                "{}.slots",
                "dp The cache (ours)|spread_10 k-means++, 10×|spread k-means++|"
                "random_10 random, 10×|random random start",
            ),
            SLOTS,
            RECALL,
            rings=paper_points("points", lambda row: 64),
        ),
        "Recall against slots: k-means by its M, the cache by its threshold. 10× is the best of "
        "ten fits. Rings: the paper.",
    ),
    "real_frontier": (
        Lines(
            series(
                "{}.slots",
                "dp The cache (ours)|redundancy Redundancy|h2o_tuned H2O, tuned|"
                "h2o H2O|recency Most recent",
            ),
            Axis("slots held", (90, 35_000), (100, 1000, 10_000), log=10),
            RECALL,
            rings=paper_points("points", "slots", "dp|h2o|recency"),
        ),
        "Genres of 1,388 movies recalled, against slots held. Rings: the paper.",
    ),
    "domains": (
        Dots(
            streams,
            (
                Mark("slots", "slots of the cache", OURS, size=8, spread=False),
                Mark("distinct", "distinct items", "s1", filled=False, size=10, spread=False),
                Mark("events", "events", "s2", spread=False),
            ),
            Axis("count", (100, 300_000), log=10),
            stem="joined",
            rings=False,
            note=lambda row: f"recall {row.measures['recall'].mean:.2f}",
        ),
        "Events, distinct items and slots of each stream; at the right the recall of the cache.",
    ),
    "tau": (
        Lines(
            series(
                "slots.{}",
                "movielens MovieLens|mimic MIMIC-IV demo|synpuf DE-SynPUF",
            ),
            Axis("similarity at which a repeat merges, s = 1 − tau"),
            Axis("slots per distinct item", ticks=(0.03, 0.1, 0.3, 1, 3), log=10),
            band=(0.5, 0.8),
        ),
        "Slots per distinct item against the threshold; 1 is right. Grey: where the paper says "
        "that nothing changes.",
    ),
    "logs": (
        Dots(
            accuracy_by_system,
            (
                Mark("ours", "LogParser (ours)", OURS, size=8, spread=False),
                Mark("drain3_best", "Drain3, at its best", "s1", spread=False, size=6),
                Mark("drain3_masked", "Drain3, masked", "s1", False, 6, spread=False),
                Mark("bare_30", "Bare rule, tau .3", "s2", False, 6, spread=False),
            ),
            Axis("grouping accuracy", (-0.01, 1.03), PARTS),
        ),
        "Share of lines in the right group, by system; one setting for all. The parser's rules "
        "were written with these systems in view.",
    ),
    "gates": (
        Dots(
            rows("gates"),
            (
                Mark("before", "before training", "s2", filled=False, size=6, spread=False),
                Mark("recall", "after training"),
            ),
            ALONG,
            stem="joined",
        ),
        "Recall from 64 kept tokens, before a gate is trained and after. Rings: the paper.",
    ),
    "hybrid": (
        Dots(rows("models"), (Mark("recall"),), ALONG, stem="zero", note=spoken_bytes),
        "Recall of items by models that must also keep a running count, with the bytes held. "
        "Rings: the paper.",
    ),
    "five_models": (
        Dots(rows("table"), (Mark("recall"),), ALONG, stem="zero", note=spoken_bytes),
        "Recall of models trained end to end, with the bytes that a stream of 512 tokens leaves. "
        "Rings: the paper.",
    ),
    "mqar": (
        Lines(
            models_by_bytes,
            Axis(
                "bytes held at the end of a sequence",
                ticks=tuple(2.0**n for n in range(13, 20)),
                tick_labels=tuple(f"{2**n} KiB" for n in range(3, 10)),
                log=2,
            ),
            RECALL,
        ),
        "Recall against bytes held as the items grow, from left to right; fixed states keep their "
        "size and fall. No model is trained again for the longer sequences.",
    ),
    "companion": (
        Lines(
            series(
                "{}.rare",
                "both Slots, window (ours)|cache Slots (ours)|window Window|random Random slots|"
                "kvm KVM-like|ovq OVQ-like|stride Stride",
            ),
            Axis("part of the bytes kept", ticks=(0.05, 0.1, 0.2, 0.4), log=2),
            Axis("part of the lead kept"),
        ),
        "The lead of full attention over Mamba-2 on rare 8-grams of held-out novels: the part that "
        "other reads of the same weights keep, against their bytes. Nothing is trained again.",
    ),
    "cost": (
        Lines(
            read_times,
            Axis("tokens in the stream", ticks=tuple(10.0**n for n in range(6)), log=10),
            Axis("microseconds per query in a batch", log=10),
        ),
        "Time of a query as the stream repeats its items: attention reads every token, the cache "
        "its slots. Medians over streams.",
    ),
    "adaptive": (
        Lines(recall_by_cost, Axis("average slots"), Axis("recall", (0.78, 1.01))),
        "Recall against average slots. Filled: averaged over tokens. Open: averaged over ends of "
        "phases, as in the paper, which counts a short phase as much as a long one.",
    ),
    "adaptive_real": (
        Lines(recall_by_reach, REACH, Axis("recall"), rings=paper_reach, levels=expiry),
        "BGL: recall against how long the use of a slot counts, 1 / (1 − decay). Rings: where each "
        "budget has the paper's number; no one setting has all three.",
    ),
    "process": (
        Lines(
            tables,
            Axis("tokens", ticks=(1, 100, 10_000), log=10),
            Axis("tables or slots", ticks=(1, 10, 100, 1000, 10_000), log=10),
        ),
        "Tables of the process grow with ln N; the rule stops at the number of types, and never "
        "stops where nothing repeats.",
    ),
    "stress": (
        Dots(
            rows("choice"),
            (
                Mark("plain recall", "plain", "s1", spread=False),
                Mark("safe recall", "safe", "s2", spread=False),
                Mark("chosen recall", "recommended", "s3", False, 10, spread=False),
            ),
            ALONG,
        ),
        "Recall where each strain is greatest: with the paper's setting, with one safe setting for "
        "all, and with the recommended one.",
    ),
}


def figure(result: Result, story: bool = False) -> Picture | None:
    """The figure of a study, or the picture of the page; None without data."""
    if story and result.study != STORY:
        return None
    name = "story" if story else result.study
    plot, caption = FIGURES.get(name, (None, ""))
    shown: Sequence[object] = ()
    if plot and result.rows:
        shown = plot.rows(result) if isinstance(plot, Dots) else plot.curves(result)
    return Picture(name, plot, caption, result) if plot and shown else None


def write_story(results: Sequence[Result], path: Path) -> bool:
    """The picture of the page as an SVG file; False if its study is not among the results."""
    drawn = [found for result in results if (found := figure(result, story=True))]
    if not drawn:
        return False
    snapshot.replace(path, drawn[0].standalone().encode())
    return True
