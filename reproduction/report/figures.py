"""What the figures of each study show; ``figures.toml`` has their titles, captions and sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from distinctkv import snapshot

from ..result import Result, Row, Series
from .plots import Axis, Dots, Line, Lines, Mark, Picture, Rings
from .text import claim_on, number

PARTS = (0, 0.2, 0.4, 0.6, 0.8, 1)
RECALL = Axis("recall", (0, 1.06), PARTS)
ALONG = Axis("recall", (-0.02, 1.04), PARTS)
GAIN = Axis("recall gained by the cache")
SLOTS = Axis("slots held", (0, 130), tuple(range(0, 129, 16)))
TOKENS = Axis("tokens", ticks=tuple(10.0**n for n in range(6)), log=10)
MICROSECONDS = Axis("microseconds", log=10)
SIMILARITY = Axis("similarity at which a repeat merges (tau = 1 − similarity)")
STYLES = ("o-", "D--", "s:", "^-", "v--", "x:", "P-", "*--")  # in turn
Rows = Callable[[Result], list[Row]]


# What is shown of a result


def lines(pattern: str, names: str, faint: str = "") -> Callable[[Result], list[Line]]:
    """The series whose names ``pattern`` makes of these names, which a bar separates.

    ``{}`` in the pattern stands for the name; a name may also be that of a series. A line has the
    colour of the row of its name, or ``role:name`` says which. Those in ``faint`` are thin and
    grey. Series whose data is missing are left out.
    """

    def find(result: Result) -> list[Line]:
        roles = {row.name: row.role for row in reversed(result.rows)}  # of its first table
        series = {line.name: line for line in result.series}
        found = []
        for place, given in enumerate(names.split("|")):
            role, _, name = given.rpartition(":")
            if line := _find(result, series, pattern.format(name), name):
                found.append(Line(line, role or roles[name], STYLES[place]))
        for name in faint.split("|") if faint else ():
            if line := _find(result, series, pattern.format(name), name):
                found.append(Line(replace(line, sd=()), "muted", ".-", 0.8))
        return found

    return find


def _find(result: Result, series: Mapping[str, Series], *names: str) -> Series | None:
    """The first of these names that there is."""
    found = next((series[name] for name in names if name in series), None)
    if found is None and not result.missing:
        raise ValueError(f"study {result.study} has no series {' or '.join(names)}")
    return found


def rows(*tables: str, only: str = "") -> Rows:
    """The measured rows of these tables, or the one of this name."""

    def find(result: Result) -> list[Row]:
        found = (row for table in tables for row in result.tables.get(table, ()))
        return [row for row in found if row.measures and only in ("", row.name)]

    return find


def paper_points(table: str, x: str | Callable[[Row], float], y: str) -> Rings:
    """The paper's numbers for ``y`` in a table, at its own ``x`` or else at ours."""

    def place(result: Result, row: Row) -> float:
        if callable(x):
            return x(row)
        claim = claim_on(result, row, x)
        return claim.paper if claim else row.measures[x].mean

    def find(result: Result) -> list[tuple[float, float]]:
        claims = [(row, claim_on(result, row, y)) for row in rows(table)(result)]
        return [(place(result, row), claim.paper) for row, claim in claims if claim]

    return find


def level(
    table: str, row: str, measure: str, label: str = ""
) -> Callable[[Result], list[tuple[str, float, str]]]:
    """A horizontal line at a measure of a row, if it was measured."""

    def find(result: Result) -> list[tuple[str, float, str]]:
        found = rows(table, only=row)(result)
        return [(label or one.label, one.measures[measure].mean, one.role) for one in found]

    return find


def point(row: Row, x: float, y: str, side: str = "right") -> Line:
    """A row as one point with its label beside it."""
    series = Series(row.name, "", (x,), (row.measures[y].mean,))
    return Line(
        series, row.role, "s" if row.role == "added" else "o", names=(row.label,), side=side
    )


def tail(row: Row) -> int:
    """The number at the end of a row's name: 69 of ``bags_69``, 128 of ``k64_r128``."""
    return int(row.name.rpartition("_")[2].lstrip("r"))


def spoken_bytes(row: Row) -> str:
    """The bytes of a row in words."""
    return f"{number(row.measures['bytes'].mean)} bytes"


# Those that need more than names


def recall_points(result: Result) -> list[Line]:
    """Study recall: a point for each memory whose slots are tokens or items."""
    states = ("s4d", "delta", "ridge", "fourier", "based", "kanerva")  # their rows are no slots
    left = ("superposition", "redundancy", "dp")
    return [
        point(row, row.measures["slots"].mean, "recall", "left" if row.name in left else "right")
        for row in result.rows
        if row.name not in states
    ]


def policies(result: Result) -> list[Line]:
    """Study real_frontier: lines by budget; SnapKV at the tokens that it reads, not holds."""
    names = "dp|redundancy|h2o_tuned|h2o|recency|attention"
    found = lines("{}.slots", names, "sinks|keydiff|lfu|subgen")(result)
    return found + [
        point(row, 1600, "recall") for row in rows("points", only="snapkv_once")(result)
    ]


def streams(result: Result) -> list[Row]:
    """Study domains: the streams that were here, each with the measures of all tables."""
    tables = [rows(table)(result) for table in ("counts", "keyed", "quarter")]
    return [
        replace(found[0], measures={name: m for row in found for name, m in row.measures.items()})
        for found in zip(*tables, strict=True)
    ]


def accuracy_by_system(result: Result) -> list[Row]:
    """Study logs: for each system and for their mean the accuracy of every parser."""
    parsers = rows("ga")(result)
    found = [
        Row(name, name, {parser.name: parser.measures[name] for parser in parsers}, "", "paper")
        for name in (parsers[0].measures if parsers else ())
    ]
    means = {row.name: row.measures["GA"] for row in rows("average")(result)}
    return [*found, Row("mean", "mean of all", means, "", "cache")] if found else []


def bare_rule(result: Result) -> list[Line]:
    """Study logs: accuracy on HDFS against tau, a line for each similarity."""
    labels = {"in_place": "Equal words", "numbers_alike": "Equal words, digits alike"}
    found = []
    for style, kind in (("o--", "in_place"), ("o-", "numbers_alike"), ("o:", "bags")):
        points = [row for row in rows("bare")(result) if row.name.startswith(kind)]
        if points and "HDFS GA" in points[0].measures:
            means = tuple(row.measures["HDFS GA"].mean for row in points)
            x = tuple(tail(row) / 100 for row in points)
            label = labels.get(kind, "Bags of words")
            found.append(Line(Series(kind, label, x, means), "paper", style))
    return found


def trained_models(result: Result) -> list[Line]:
    """Study mqar: models that grow as lines, fixed states as points named by their items."""
    columns = [name.split() for name in result.tables["recall"][0].measures]
    items = tuple(items for items, repeats in columns if repeats == columns[0][1])
    found = lines("{}", "mass|first|paper:full|kvm|ovq|ink:mamba2|ink:delta|ink:window")(result)
    return [replace(line, names=items) if len(set(line.series.x)) == 1 else line for line in found]


def times(*kinds: tuple[str, str, str]) -> Callable[[Result], list[Line]]:
    """Study cost: the series of each kind (name, role, label), for every number of items."""

    def find(result: Result) -> list[Line]:
        return [
            Line(replace(series, label=f"{label}, {series.label}"), role)
            for kind, role, label in kinds
            for series in result.series
            if series.name.partition(".")[2] == kind
        ]

    return find


def recall_by_cost(result: Result) -> list[Line]:
    """Study adaptive: fixed budgets, expiry and the adaptive budget, by two averages of slots."""
    found = []
    kinds = (("b", "Fixed budget", "paper"), ("ttl", "Slots expire", "added"))
    for start, label, role in (*kinds, ("surprise", "Adaptive (ours)", "cache")):
        group = [row for row in rows("alternating")(result) if row.name.startswith(start)]
        names = tuple(row.name.removeprefix(start) for row in group)
        y = tuple(row.measures["recall"].mean for row in group)
        for average, style, filled in (("per token", "o-", True), ("phase end", "o:", False)):
            x = tuple(row.measures[average].mean for row in group)
            series = Series(start, f"{label}, {average}", x, y)
            found.append(Line(series, role, style, 1.2, filled, names if filled else ()))
    return found


def gains(result: Result) -> list[Row]:
    """Studies adaptive and adaptive_real: the paper's comparisons, then those at equal cost."""
    claimed = [row for row in rows("gain")(result) if result.claims_of(row)]
    return [*claimed, *rows("level")(result)]


def traces(start: str, names: str, top: float | None = None) -> Lines:
    """Studies adaptive and adaptive_real: slots held along a stream, over the demand."""
    return Lines(
        lines(start + "{}", names),
        Axis("tokens"),
        Axis("slots", (0, top) if top else None),
        shade=lambda result: next(one for one in result.series if one.name == f"{start}demand"),
        plain=True,
    )


EVER = 2500.0  # where "for ever" is drawn
REACH = Axis(
    "tokens for which a use counts",
    ticks=(10, 20, 50, 100, 200, 500, 1000, EVER),
    log=10,
    tick_labels=("10", "20", "50", "100", "200", "500", "1,000", "ever"),
)


def recall_by_reach(result: Result) -> list[Line]:
    """Study adaptive_real: recall of three budgets on BGL against how long a use counts."""
    found = rows("decay")(result)
    x = tuple(min(float(row.name.removeprefix("lasts_")), EVER) for row in found)
    kinds = (
        ("worst case", "paper", "o--", "Fixed budget, worst case"),
        ("fixed", "paper", "o-", "Fixed budget, matched"),
        ("adaptive", "cache", "o-", "Adaptive (ours)"),
    )
    return [
        Line(Series(name, label, x, tuple(row.measures[name].mean for row in found)), role, style)
        for name, role, style, label in kinds
        if found
    ]


def paper_reach(result: Result) -> list[tuple[float, float]]:
    """Where each budget on BGL has the paper's recall, which falls as a use counts for longer."""
    paper = {claim.row: claim.paper for claim in result.claims if claim.table == "bgl"}
    rings = []
    for line, row in zip(recall_by_reach(result), ("b45", "b18", "surprise"), strict=False):
        recall = next(c.paper for c in result.claims if c.id == f"adaptive_real.bgl.{row}.recall")
        rings.append((float(np.interp(-recall, -np.array(line.series.y), line.series.x)), recall))
    return rings if paper else []


def tables(result: Result) -> list[Line]:
    """Study process: means of the process as dots, its law as a line, α ln N dotted."""
    kinds = {"alpha": ("paper", "o", 0.0), "law": ("paper", "-", 1.2), "log": ("muted", ":", 1.2)}
    found = []
    for series in result.series:
        kind, _, alpha = series.name.partition("_")
        if kind in kinds:
            named = kind == "alpha" or (kind, alpha) == ("log", "20")
            label = series.label if named else ""
            found.append(Line(replace(series, label=label), *kinds[kind]))
    return found


def slots_by_tau(result: Result) -> list[Line]:
    """Study stress: a line for each noise; points are filled where nearly all is recalled."""
    series = {line.name: line for line in result.series}
    found = []
    for noise, role in (("0.5", "added"), ("0.1", "paper")):
        line, recall = series[f"taus.slots/item.{noise}"], series[f"taus.recall.{noise}"].y
        found.append(Line(replace(line, sd=()), role, "-"))
        for filled in (True, False):
            kept = [i for i, part in enumerate(recall) if (part >= 0.99) == filled]
            x, y = (tuple(numbers[i] for i in kept) for numbers in (line.x, line.y))
            if kept:
                found.append(Line(Series(noise, "", x, y), role, "o", filled=filled))
    return found


def recall_by_policy(result: Result) -> list[Row]:
    """Study stress: recall by value policy, when keys are bound again and when values err."""
    pairs = zip(rows("rebound")(result), rows("mislabelled")(result), strict=True)
    return [
        replace(
            new,
            role="paper",
            label=new.name.split(", ", 1)[1],
            measures={"rebound": new.measures["recall"], "mislabelled": wrong.measures["recall"]},
        )
        for new, wrong in pairs
    ]


# The figures, by name: study, then what is shown; the first of a study tells its story

PLOTS: Mapping[str, Lines | Dots] = {
    "recall-slots": Lines(
        recall_points,
        Axis("slots held", (8, 1024), (16, 32, 64, 128, 256, 512), log=2),
        Axis("recall", (0.6, 1.04)),
        rings=paper_points("table", "slots", "recall"),
    ),
    "recall-seeds": Dots(rows("table"), (Mark("recall", size=5),), Axis("recall"), seeds=True),
    "recall-bytes": Dots(
        rows("table"),
        (Mark("bytes"),),
        Axis("bytes held", (0, 52_000)),
        stem="zero",
        note=lambda row: f"{number(row.measures['bytes'].mean)}: {row.measures['recall'].mean:.3f}",
    ),
    "frontier-slots": Lines(
        lines(
            "{}.slots",
            "dp|subgen|redundancy|h2o|recency|sinks",
            "h2o_tuned|h2o_published|nec|tova|snapkv|keydiff|ceiling",
        ),
        SLOTS,
        RECALL,
        key=True,
        rings=paper_points("points", "slots", "recall"),
    ),
    "frontier-bytes": Lines(
        lines(
            "{}.bytes",
            "dp|subgen|h2o|ink:wide|ink:fourier|ink:kanerva",
            "recency|redundancy|ham|infformer|gated",
        ),
        Axis("bytes held", (900, 49_152), tuple(2.0**n for n in range(10, 16)), log=2),
        RECALL,
        key=True,
    ),
    "frontier-lead": Lines(
        lines(
            "{}.lead",
            "sinks|recency|h2o_published|h2o|h2o_tuned|redundancy",
            "nec|tova|snapkv|keydiff",
        ),
        replace(SLOTS, label="budget of the policy, and slots of the cache"),
        GAIN,
        key=True,
    ),
    "frontier-growing": Lines(
        lines("{}.lead", "subgen|ink:ham|ttl|ovq|kvm"), SLOTS, GAIN, key=True
    ),
    "real_frontier-slots": Lines(
        policies,
        Axis("slots held", (90, 45_000), (100, 300, 1000, 3000, 10_000, 30_000), log=10),
        RECALL,
        key=True,
        rings=paper_points("points", "slots", "recall"),
    ),
    "real_frontier-popular": Dots(
        rows("points"),
        (Mark("recall", spread=False), Mark("by rating", filled=False, spread=False)),
        ALONG,
        stem="joined",
    ),
    "domains-slots": Dots(
        streams,
        (
            Mark("slots", "o", "cache", label="slots of the cache", spread=False),
            Mark("distinct", "|", "ink", label="distinct items", size=16, spread=False),
            Mark("events", "o", "ink", filled=False, label="events", spread=False),
        ),
        Axis("count", log=10),
        stem="joined",
        rings=False,
        note=lambda row: (
            f"÷ {number(row.measures['redundancy'].mean)}, recall {row.measures['recall'].mean:.3f}"
        ),
    ),
    "domains-quarter": Dots(
        streams,
        (
            Mark("commonest class", "|", "ink", label="commonest class", size=14),
            Mark("last tokens", "v", "paper", label="last tokens"),
            Mark("least used leaves", "s", "added", label="cache with a budget"),
            Mark("recall", "o", "cache", label="the cache"),
        ),
        ALONG,
    ),
    "logs-ga": Dots(
        accuracy_by_system,
        (
            Mark("ours", "o", "cache", label="LogParser (ours)", size=8, spread=False),
            Mark("drain3_best", "D", "added", label="Drain3, at its best", spread=False),
            Mark("drain3_masked", "s", "added", label="Drain3, masked", spread=False),
            Mark("drain3", "s", "added", filled=False, label="Drain3", spread=False),
            Mark("bare_30", "^", "paper", filled=False, label="Bare rule, tau 0.3", spread=False),
        ),
        Axis("grouping accuracy", (-0.01, 1.02)),
    ),
    "logs-bare": Lines(
        bare_rule,
        Axis("tau", ticks=(0.3, 0.45, 0.55, 0.62, 0.69, 0.76)),
        Axis("grouping accuracy", (0.2, 1.04)),
        rings=paper_points("bare", lambda row: tail(row) / 100, "HDFS GA"),
        levels=level("systems", "HDFS", "GA", "LogParser (ours)"),
    ),
    "tau-noise": Lines(
        lines("noise.{}", "paper:movielens|added:mimic|ink:synpuf"),
        Axis("noise of the keys"),
        Axis("slots per distinct item", ticks=(1, 2, 4, 8), log=2),
        key=True,
        levels=lambda result: [("paper", 2.0, "ink")],
    ),
    "tau-recall": Lines(
        lines("recall.{}", "paper:movielens|added:mimic|ink:synpuf"),
        SIMILARITY,
        RECALL,
        key=True,
        band=(0.5, 0.8),
    ),
    "tau-slots": Lines(
        lines("slots.{}", "paper:movielens|added:mimic|ink:synpuf"),
        SIMILARITY,
        Axis("slots per distinct item", ticks=(0.03, 0.1, 0.3, 1, 3), log=10),
        key=True,
        band=(0.5, 0.8),
    ),
    "gates-recall": Dots(
        rows("gates", "recipe"),
        (Mark("before", "o", size=4, spread=False), Mark("recall", "o", size=8)),
        ALONG,
        stem="joined",
    ),
    "hybrid-recall": Dots(
        rows("models"),
        (
            Mark("recall", label="recall"),
            Mark("R²", "D", "ink", filled=False, label="R² of the count", size=5, spread=False),
        ),
        replace(ALONG, label="recall, R²"),
        stem="zero",
        note=spoken_bytes,
    ),
    "hybrid-controls": Dots(
        rows("controls"), (Mark("recall"),), Axis("recall", (0, 0.3)), stem="zero", rule=1 / 8
    ),
    "five_models-recall": Dots(
        rows("table"), (Mark("recall"),), ALONG, stem="zero", note=spoken_bytes
    ),
    "mqar-recall": Lines(
        trained_models,
        Axis(
            "bytes held by both blocks at the end of a sequence",
            ticks=tuple(2.0**n for n in range(13, 20)),
            tick_labels=tuple(f"{2**n} KiB" for n in range(3, 10)),
            log=2,
        ),
        RECALL,
        key=True,
    ),
    "kmeans-slots": Lines(
        lines("{}.slots", "dp|cache:dp_mean|spread_10|spread|random_10|random"),
        SLOTS,
        RECALL,
        key=True,
        rings=paper_points("points", lambda row: 64, "recall"),
    ),
    "cost-speedup": Lines(
        times(("speedup.speed-up", "cache", "batch"), ("speedup.speed-up alone", "added", "alone")),
        Axis("repeats of each item", ticks=(4, 16, 32, 64, 128, 256), log=2),
        Axis("times faster", log=10),
        rings=paper_points("speedup", tail, "speed-up"),
    ),
    "cost-read": Lines(
        times(("batch.attention", "paper", "attention"), ("batch.cache", "cache", "cache")),
        TOKENS,
        MICROSECONDS,
    ),
    "cost-build": Lines(
        times(("build.build", "cache", "cache"), ("build.append", "paper", "attention")),
        TOKENS,
        MICROSECONDS,
    ),
    "adaptive-trace": traces("", "surprise|ink:budget|b18|b30|ttl40|unbounded", top=44),
    "adaptive-cost": Lines(recall_by_cost, Axis("average slots"), Axis("recall"), key=True),
    "adaptive-gain": Dots(
        gains, (Mark("gain"),), Axis("recall gained by the adaptive budget"), rule=0
    ),
    "adaptive_real-decay": Lines(
        recall_by_reach,
        REACH,
        Axis("recall"),
        rings=paper_reach,
        levels=level("bgl", "ttl150", "recall"),
    ),
    "adaptive_real-gain": Dots(
        gains, (Mark("gain"),), Axis("recall gained by the adaptive budget"), rule=0
    ),
    "adaptive_real-bgl": traces("bgl_", "surprise|b18|ttl150"),
    "adaptive_real-movielens": traces("movielens_", "surprise|b813|ttl2600"),
    "process-tables": Lines(tables, TOKENS, Axis("tables")),
    "process-rule": Lines(
        lines("{}", "cache:types|paper:tables|isotropic"), TOKENS, Axis("slots", log=10), plain=True
    ),
    "stress-choice": Dots(
        rows("choice"),
        (
            Mark("plain recall", "o", "paper", label="plain", spread=False),
            Mark("safe recall", "s", "added", label="safe", spread=False),
            Mark("chosen recall", "D", "cache", label="chosen", spread=False),
        ),
        ALONG,
        staggered=True,
        note=lambda row: "   ".join(
            f"{row.measures[f'{name} slots'].mean:.2f}" for name in ("plain", "safe", "chosen")
        ),
    ),
    "stress-alike": Lines(
        lines("alike.recall.{}", "paper:plain|added:tau .1|cache:centred"),
        Axis("common cosine"),
        RECALL,
    ),
    "stress-taus": Lines(
        slots_by_tau,
        Axis("tau"),
        Axis("slots per item", ticks=(0.125, 0.25, 0.5, 1, 2, 4), log=2),
    ),
    "stress-drift": Lines(
        lines(
            "drift.slots/item.{}",
            "paper:plain|added:mean key|added:ema key, pace .1|cache:ema key, pace .3",
        ),
        Axis("degrees", ticks=(0, 75, 150)),
        Axis("slots per item"),
    ),
    "stress-values": Dots(
        recall_by_policy,
        (Mark("mislabelled", "o", spread=False), Mark("rebound", "o", filled=False, spread=False)),
        ALONG,
    ),
}


def pictures(result: Result) -> tuple[Picture, ...]:
    """The figures of a study whose data is there, the one that tells its story first."""
    return tuple(
        Picture(name, plot, result)
        for name, plot in PLOTS.items()
        if name.partition("-")[0] == result.study and result.rows and plot.has_data(result)
    )


def write_story(results: Sequence[Result], path: Path) -> bool:
    """The first figure of the first study that has one, as an SVG file; False if there is none."""
    drawn = [picture for result in results for picture in pictures(result)[:1]]
    if not drawn:
        return False
    snapshot.replace(path, drawn[0].standalone().encode())
    return True
