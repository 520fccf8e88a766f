"""Draw the figures of the documentation: `python docs/figures.py [NAME...]`, all if none is named.

Each is measured here within seconds, or drawn from JSON in `results/` whose page names the command.
Colours are of middle lightness, so that a figure is readable on white and on black.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from distinctkv import Cache, Concentration

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "figures"
OURS, OTHER, INK, FAINT = "#d9601f", "#4a86c5", "#808890", "#9aa0a8"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "distinctkv",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "figure.constrained_layout.use": True,
}


def canvas(columns: int = 1, width: float = 5.0, height: float = 3.0) -> tuple[Figure, Any]:
    """A figure and its axes, in the style of all."""
    return plt.subplots(1, columns, figsize=(width, height))


def grouped(axis: Axis) -> None:
    """Ticks with commas between thousands."""
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def stream(n_items: int, n_tokens: int, dim: int, noise: float, seed: int = 0) -> np.ndarray:
    """Noisy mentions of random items."""
    rng = np.random.default_rng(seed)
    items = rng.standard_normal((n_items, dim))
    return items[rng.integers(0, n_items, n_tokens)] + noise * rng.standard_normal((n_tokens, dim))


def growth() -> Figure:
    """Slots against tokens, for streams of 100, 300 and 1,000 different items."""
    figure, axes = canvas()
    for n_items in (100, 300, 1000):
        cache, keys, course = Cache(Concentration.fixed(0.3)), stream(n_items, 10_000, 64, 0.2), [0]
        for part in np.split(keys, 100):
            cache.write(part)
            course.append(len(cache))
        axes.plot(np.linspace(0, 10_000, 101), course, color=OURS)
        axes.annotate(f"{n_items:,} different items", (10_000, course[-1] + 25), ha="right")
    axes.plot([0, 1250], [0, 1250], color=FAINT, linestyle="--")
    axes.annotate("every token appended", (1300, 1180), color=INK)
    axes.set(xlabel="tokens read", ylabel="slots held", ylim=(0, 1250), xlim=(0, 10_100))
    grouped(axes.xaxis)
    grouped(axes.yaxis)
    return figure


def rule() -> Figure:
    """A stream in the plane: what opens a slot, and what merges."""
    figure, axes = canvas(width=4.6, height=3.8)
    rng = np.random.default_rng(5)
    centres = np.array([[0, 0], [2.2, 0.4], [1.0, 1.8], [3.3, 1.9], [0.1, 3.0]])
    keys = centres[rng.integers(0, 5, 60)] + 0.24 * rng.standard_normal((60, 2))
    cache = Cache(Concentration.fixed(0.8), metric="euclidean")
    cache.write(keys)
    slots, reach = cache.slots, 0.8**0.5
    axes.scatter(*keys.T, s=16, color=FAINT)
    axes.scatter(*slots.keys.T, s=46, color=OURS)
    for key, count in zip(slots.keys, slots.count, strict=True):
        axes.add_patch(plt.Circle(key, reach, fill=False, color=OURS, linewidth=1.2))
        axes.annotate(f"{count} tokens", key + np.array([0, reach + 0.06]), ha="center")
    axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-1.3, 4.7), ylim=(-1.2, 4.4))
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def threshold() -> Figure:
    """Cosines of pairs in a sample, and the valley between two populations."""
    figure, axes = canvas()
    keys = stream(50, 1000, 32, 0.3)
    units = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    cosines = (units @ units.T)[np.triu_indices(1000, 1)]
    axes.hist(cosines, bins=100, range=(-1, 1), color=OTHER, histtype="stepfilled")
    axes.axvspan(0.6, 0.8, color=OURS, alpha=0.25, linewidth=0)
    axes.set(yscale="log", xlabel="cosine of a pair", ylabel="pairs", ylim=(1, 90_000))
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.annotate("different items", (0, 28_000), ha="center")
    axes.annotate("similarity .7\ntau = .3", (0.7, 12_000), ha="center", color=OURS)
    axes.annotate("same item", (0.93, 4_500), ha="center")
    return figure


def budget() -> Figure:
    """A surprise budget on a stream whose items change twice."""
    figure, axes = canvas()
    cache = Cache(Concentration.surprise(tau=0.3, base=30, gain=300, rate=0.02))
    place, budgets, held = 0, [], []
    for phase in range(3):
        for part in np.split(stream(25, 3000, 64, 0.1, seed=phase), 150):
            cache.write(part)
            place += 20
            budgets.append((place, cache.budget))
            held.append((place, len(cache)))
    axes.plot(*zip(*budgets, strict=True), color=FAINT)
    axes.plot(*zip(*held, strict=True), color=OURS)
    axes.annotate("budget", (budgets[3][0] + 250, budgets[3][1]), color=INK, va="center")
    axes.annotate("slots", (2900, held[140][1] - 6), color=OURS, ha="right")
    axes.set(xlabel="tokens read", ylabel="slots", ylim=(0, None))
    grouped(axes.xaxis)
    return figure


def results(name: str) -> Any:  # noqa: ANN401 - JSON
    """What a command has measured before."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def kept() -> Figure:
    """Which part of different texts a language model's cache keeps at one threshold."""
    rows = sorted(results("kept"), key=lambda row: row["kept"], reverse=True)
    figure, axes = canvas(height=0.55 + 0.42 * len(rows))
    names = [row["file"] for row in rows]
    axes.barh(names, [100] * len(rows), color=FAINT, alpha=0.25, height=0.6)
    axes.barh(names, [100 * row["kept"] for row in rows], color=OURS, height=0.6)
    for place, row in enumerate(rows):
        axes.annotate(f"{row['kept']:.0%}", (100 * row["kept"] + 1.5, place), va="center")
    axes.set(xlabel="tokens kept, %", xlim=(0, 100))
    axes.spines["left"].set_visible(False)
    axes.tick_params(left=False)
    return figure


def training() -> Figure:
    """Recall and slots over the steps of a training."""
    steps, _, recalls, slots = zip(*results("layer")["course"], strict=True)
    figure, (left, right) = canvas(2, width=5.8, height=2.6)
    left.plot(steps, recalls, color=OURS, marker="o", markersize=4)
    left.set(xlabel="step", ylabel="recall", ylim=(0, 1.05))
    right.plot(steps, slots, color=OURS, marker="o", markersize=4)
    right.axhline(96, color=FAINT, linestyle="--")
    right.annotate("full attention: 96", (400, 98), ha="right", va="bottom")
    right.set(xlabel="step", ylabel="slots held", ylim=(0, 108))
    return figure


SHIFTS = {0.0: (-6, 8), 0.05: (-6, 8), 0.15: (-46, 6), 1.0: (-4, -16)}  # labels, in points


def sweep() -> Figure:
    """Recall of one checkpoint against its slots, one point for each threshold."""
    taus, recalls, slots = zip(*results("layer")["sweep"], strict=True)
    figure, axes = canvas()
    axes.plot(slots, recalls, color=OURS, marker="o", markersize=5)
    for tau, recall, held in zip(taus, recalls, slots, strict=True):
        shift = SHIFTS.get(tau, (8, -4))
        axes.annotate(f"tau {tau:g}", (held, recall), shift, textcoords="offset points")
    axes.axvline(12, color=FAINT, linestyle="--")
    axes.annotate("12 items", (12.8, 0.04))
    axes.set(xlabel="slots held, of 96 tokens", ylabel="recall", ylim=(0, 1.16), xlim=(0, 108))
    return figure


def table(name: str, title: str) -> list[dict[str, str]]:
    """The rows of a table in a file of results, by column."""
    found = next(one for one in results(name)["tables"] if one["title"].startswith(title))
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def recall_kept() -> Figure:
    """Recall of a language model against the part of its cache that is kept."""
    figure, panels = canvas(2, width=6.0, height=3.4)
    rows = table("language_model", "Recall on all twelve tasks")
    sizes = [1 / 2, 1 / 4, 1 / 8, 1 / 16]
    shown = {
        "ours": (OURS, "-", "ours"),
        "ours, FAST": (OURS, ":", "ours, FAST"),
        "KVzip, two passes": (OTHER, "-", "KVzip, two passes"),
        "Cap": (INK, "-", "Cap"),
        "H2O": (INK, "--", "H2O"),
    }
    for axes, length in zip(panels, ("1k", "7.4k"), strict=True):
        for row in rows:
            name, *lengths = row
            values = [
                float(one) for one in row[next(x for x in lengths if x[0] == length[0])].split()
            ]
            if row[name] == "full cache":
                axes.axhline(values[0], color=FAINT, linestyle="--", linewidth=1.2)
                axes.annotate("full cache", (0.5, values[0] + 0.012), ha="right")
            elif row[name] in shown:
                colour, dashes, label = shown[row[name]]
                axes.plot(
                    sizes, values, dashes, color=colour, label=label, marker="o", markersize=4
                )
        axes.set(title=f"{length} tokens", xlabel="kept", ylim=(0, 0.8), xscale="log")
        axes.set_xticks(sizes, ["1/2", "1/4", "1/8", "1/16"])
        axes.minorticks_off()
    panels[0].set_ylabel("recall")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=9)
    return figure


def speed() -> Figure:
    """Tokens per second of the cache and of what finds the same slots otherwise."""
    _, header, *rows = next(
        one["text"] for one in results("speed")["tables"] if one["title"] == "Vector streams"
    )
    columns = header.split()
    cells = [
        dict(zip(columns, row.split(), strict=False))
        for row in rows
        if row.split()[2:3] == ["100k"]
    ]
    figure, axes = canvas(height=3.2)
    for place, row in enumerate(reversed(cells)):
        best = max(rate(row[name]) for name in INDEXES)
        points = [
            ("a loop", rate(row["naive"]), FAINT, "o"),
            ("the best index library", best, OTHER, "s"),
            ("ours", rate(row["ours"]), OURS, "D"),
        ]
        axes.plot([points[0][1], points[2][1]], [place] * 2, color=FAINT, linewidth=1)
        for name, value, colour, marker in points:
            axes.plot(value, place, marker, color=colour, label=None if place else name)
    names = [f"{row['slots']} slots of {row['D']}" for row in reversed(cells)]
    axes.set_yticks(range(len(cells)), names)
    axes.set(xscale="log", xlabel="tokens a second, one thread")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


INDEXES = "faiss-flat", "faiss-HNSW", "hnswlib", "usearch"


def rate(text: str) -> float:
    """A rate as the benchmarks print it: 46.1k, ~1.48k, 1.17M."""
    number = text.strip("~>")
    return float(number.rstrip("kM")) * {"k": 1e3, "M": 1e6}.get(number[-1], 1.0)


READS = {
    "both": ("slots and a window", OURS, "-"),
    "cache": ("slots", OURS, "--"),
    "window": ("window", OTHER, "-"),
    "random": ("random slots", INK, ":"),
    "kvm": ("KVM-like", "#3a9a7a", "-."),
    "ovq": ("OVQ-like", "#a05aa0", "-."),
}


def companion() -> Any:  # noqa: ANN401 - a module
    """The study whose results are drawn; it lies beside this folder, and is not installed."""
    sys.path.insert(0, str(ROOT))
    from reproduction.studies import companion

    return companion


def companion_kept() -> Figure:
    """The part of attention's lead that reads of one checkpoint keep, against their bytes."""
    study = companion()
    found = {one.name: one for one in study.series_of(study.shipped_rows())}
    figure, panels = canvas(2, width=7.2, height=3.3)
    shown = (("all", "of all bytes"), ("rare", "of rare 8-grams met before"))
    for axes, (short, title) in zip(panels, shown, strict=True):
        for name, (label, colour, style) in READS.items():
            line = found[f"{name}.{short}"]
            x, y = (100 * np.array(part) for part in (line.x, line.y))
            axes.errorbar(
                x, y, 100 * np.array(line.sd), color=colour, linestyle=style, marker="o",
                markersize=4, label=label if short == "all" else None,
            )  # fmt: skip
        axes.axhline(100, color=FAINT, linewidth=1)
        axes.set(title=title, xlabel="% of the bytes, counted", ylim=(0, 108))
        axes.set(xscale="log", xlim=(4, 50))
        axes.minorticks_off()
        axes.set_xticks([5, 10, 20, 40], ["5", "10", "20", "40"])
    panels[0].set_ylabel("% of the lead kept")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def companion_slots() -> Figure:
    """Slots of a head against bytes read, in both attention layers, at three thresholds."""
    figure, panels = canvas(2, width=7.2, height=2.9)
    study = companion()
    runs = study.read(study.SHIPPED)["growth"].values()
    for axes, layer, title in zip(
        panels, ("layer 0", "layer 1"), ("block 4", "block 7"), strict=True
    ):
        for place, part in enumerate(study.GROWN):
            lines = [list(run["growth"].values())[place] for run in runs]
            tokens, slots = lines[0]["tokens"], np.mean([line[layer] for line in lines], 0)
            axes.plot(tokens, slots, color=OURS, marker="o", markersize=3)
            axes.annotate(f" {part}", (tokens[-1], slots[-1]), va="center")
        axes.plot(tokens, tokens, color=FAINT, linestyle="--")
        axes.annotate("every token", (2048, 2700), ha="right", color=INK)
        axes.set(xscale="log", yscale="log", xlabel="bytes read", title=title, ylim=(20, 20_000))
        axes.set_xlim(tokens[0], 2.2 * tokens[-1])
        axes.minorticks_off()
        axes.set_xticks([256, 1024, 4096, 16384])
        for axis in (axes.xaxis, axes.yaxis):
            grouped(axis)
    panels[0].set_ylabel("slots of a head")
    return figure


def companion_needles() -> Figure:
    """Part of the planted strings found by small models, by depth and length."""
    study = companion()
    rows = {row.name: row for row in study.small_rows() if row.table == "small depths"}
    reads = ("full", "cache_20_trained", "cache_20", "h2o_20", "window_20")
    titles = ("full attention", "slots, trained", "slots", "H2O", "window")
    lengths, depths = ("512", "1k", "2k", "4k"), ("0%", "25%", "50%", "75%", "100%")
    shades = LinearSegmentedColormap.from_list("ours", [OURS + "00", OURS])
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
    figure, panels = canvas(len(reads), width=9.0, height=2.5)
    for axes, read, title in zip(panels, reads, titles, strict=True):
        found = [[rows[f"{n}_{read}"].measures[d].mean for n in lengths] for d in depths]
        axes.pcolormesh(found, vmin=0, vmax=1, cmap=shades)
        for y, line in enumerate(found):
            for x, part in enumerate(line):
                colour = "white" if part > 0.35 else INK
                axes.text(x + 0.5, y + 0.5, f"{100 * part:.0f}", color=colour, **middle)
        axes.set(title=title, xlabel="bytes", xticks=np.arange(4) + 0.5, xticklabels=lengths)
        axes.set(yticks=np.arange(5) + 0.5, yticklabels=depths if axes is panels[0] else [])
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0].set_ylabel("depth of the string")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    made.__name__: made
    for made in (
        *(growth, rule, threshold, budget, kept, training, sweep, recall_kept, speed),
        *(companion_kept, companion_slots, companion_needles),
    )
}


def main(names: Sequence[str]) -> None:
    """Write the named figures as SVG; with `--png FOLDER` last, also as PNG to look at."""
    *names, folder = names if "--png" in names else (*names, "")
    with mpl.rc_context(STYLE):
        for name in [one for one in names if one != "--png"] or FIGURES:
            figure = FIGURES[name]()
            saved = {"metadata": {"Date": None}, "transparent": True}
            figure.savefig(FOLDER / f"{name}.svg", **saved)
            if folder:
                figure.savefig(Path(folder) / f"{name}.png", dpi=110, facecolor="#ffffff")
            plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
