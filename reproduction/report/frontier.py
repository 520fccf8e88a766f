"""The figures of study ``frontier``."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..result import Result, Series
from . import svg
from .curves import Stroke, draw, draw_faintly, key, name_ends
from .picture import Picture, ring
from .words import claim_on, spread

# How each line is drawn; in the key from the last to the first.
STROKES: Mapping[str, Stroke] = {
    "wide": Stroke("ink", "x:"),
    "gated": Stroke("ink", "*"),
    "infformer": Stroke("ink", "v:"),
    "kanerva": Stroke("ink", "D--"),
    "fourier": Stroke("ink", "s-"),
    "sinks": Stroke("paper", "x:"),
    "recency": Stroke("paper", "v-"),
    "h2o_published": Stroke("added", "v--"),
    "h2o": Stroke("paper", "o-", width=1.6),
    "h2o_tuned": Stroke("added", "^-"),
    "redundancy": Stroke("added", "s:"),
    "kvm": Stroke("added", "^--"),
    "ovq": Stroke("added", "v--"),
    "ttl": Stroke("added", "o:"),
    "ham": Stroke("ink", "x-"),
    "subgen": Stroke("added", "D-", width=1.6),
    "dp": Stroke("cache", "o-", width=2.6, mark=7),
}
POLICIES = ("sinks", "recency", "h2o_published", "h2o", "h2o_tuned", "redundancy")
WEAK = ("nec", "tova", "snapkv", "keydiff")
GROWING = ("kvm", "ovq", "ttl", "ham", "subgen")
STATES = ("wide", "gated", "infformer", "kanerva", "fourier")
WEIGHED = (*STATES, "recency", "h2o", "redundancy", "ham", "subgen", "dp")
Lines = Mapping[str, Series]


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall against slots, and against bytes; and what the cache gains by budget."""
    lines = {line.name: line for line in result.series}

    def told(table: str, *measures: str) -> str:
        return "; ".join(
            f"{row.label}: " + ", ".join(f"{m} {spread(row.measures[m])}" for m in measures)
            for row in result.tables[table]
        )

    return (
        Picture(
            "frontier-slots",
            "Recall against slots held: the cache by its threshold, policies by budget, with the "
            "spread over seeds. SubGen is the published rule of the same kind. Rings: the paper's "
            "numbers. LRU and LFU over slots, and what holds every token, are not drawn.",
            f"Recall against slots. At a budget of 64: {told('points', 'recall')}.",
            lambda axes: recall_against_slots(axes, lines, result),
            (7.6, 4.6),
            title="Recall against slots",
        ),
        Picture(
            "frontier-bytes",
            "Recall against bytes held; the cache has counters and room to grow. Random "
            "projections count. In the colour of the axes' numbers: states, and HAM, a state that "
            "keeps tokens beside. The sum grows by wider keys, on streams of their own.",
            "Recall against bytes, bytes on a log scale. "
            f"{told('bytes', *result.tables['bytes'][0].measures)}.",
            lambda axes: recall_against_bytes(axes, lines),
            (7.6, 4.4),
            title="Recall against bytes",
        ),
        Picture(
            "frontier-lead",
            "Recall of the cache less that of a policy with as many slots, with the spread over "
            "seeds.",
            "Lead of the cache against the budget. "
            f"{told('lead', *result.tables['lead'][0].measures)}.",
            lambda axes: lead_by_budget(axes, lines),
            (5.6, 4.2),
            title="Lead over policies with as many slots",
        ),
        Picture(
            "frontier-growing",
            "Recall of the cache less that of a memory that grows by another rule, with as many "
            "slots; below zero the cache trails.",
            f"Lead of the cache against slots. At best: {told('growing', 'recall', 'slots')}.",
            lambda axes: lead_over_growing(axes, lines),
            (5.6, 4.2),
            title="Lead over other memories that grow",
        ),
    )


def recall_against_slots(axes: Axes, lines: Lines, result: Result) -> None:
    """Weak policies in grey, named at their ends; the others in the key."""
    ceiling, weak = lines["ceiling"], [lines[f"{name}.slots"] for name in WEAK]
    muted = svg.COLOURS["muted"]
    axes.plot(ceiling.x, ceiling.y, ":", color=muted, linewidth=1, label=ceiling.label)
    draw_faintly(axes, weak)
    draw(axes, ((lines[f"{name}.slots"], STROKES[name]) for name in (*POLICIES, "subgen", "dp")))
    for row in result.tables["points"]:
        claim = claim_on(result, row, "recall")
        if claim:
            ring(axes, row.measures["slots"].mean, claim.paper, 14 if row.role == "cache" else 10)
    name_ends(axes, weak, 0.045)
    axes.set_xlim(0, 146)
    axes.set_xticks(range(0, 129, 16))
    _rule_recall(axes)
    axes.set_xlabel("slots held")
    key(axes, (0.62, 0.03))


def recall_against_bytes(axes: Axes, lines: Lines) -> None:
    """Slots and states on one scale."""
    draw(axes, ((lines[f"{name}.bytes"], STROKES[name]) for name in WEIGHED))
    axes.set_xscale("log", base=2)
    axes.set_xlim(900, 2.0**17.5)  # room for the key
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in range(10, 16)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _rule_recall(axes)
    axes.set_xlabel("bytes held (log scale)")
    key(axes, (0.74, 0.03))


def lead_by_budget(axes: Axes, lines: Lines) -> None:
    """A line for each policy around zero."""
    axes.axhline(0, color=svg.COLOURS["muted"], linewidth=1)
    weak = [lines[f"{name}.lead"] for name in WEAK]
    draw_faintly(axes, weak, "other policies")
    draw(axes, ((lines[f"{name}.lead"], STROKES[name]) for name in POLICIES))
    axes.set_xticks(range(16, 129, 16))
    axes.set_ylim(-0.03, 0.5)
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("budget of the policy, and slots of the cache")
    axes.set_ylabel("recall gained by the cache")
    key(axes, (0.02, 0.66))


def lead_over_growing(axes: Axes, lines: Lines) -> None:
    """A line for each memory around zero, as far down as it is small."""
    axes.axhline(0, color=svg.COLOURS["muted"], linewidth=1)
    draw(axes, ((lines[f"{name}.lead"], STROKES[name]) for name in GROWING))
    axes.set_xticks(range(16, 129, 16))
    axes.grid(visible=True, axis="y")
    axes.set_xlabel("slots")
    axes.set_ylabel("recall gained by the cache")
    key(axes, (0.68, 0.03))


def _rule_recall(axes: Axes) -> None:
    axes.set_ylim(0, 1.06)
    axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.grid(visible=True, axis="y")
    axes.set_ylabel("recall")
