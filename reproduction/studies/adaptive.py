"""The paper's table for its adaptive cache: recall and average slots while demand swings.

A stream alternates between 6 and 30 items, new ones in every phase; at the end of a phase each of
its items is asked for once. Recall is the mean over phases. The paper averages slots over the ends
of phases; we also average over tokens, and ask the same of two streams that it does not have. What
the adaptive budget gains is judged at equal cost: on every stream a rival is run at several sizes,
and its recall is interpolated to the slots per token that the adaptive cache held there.

It gives no setting but the budgets. The length of its phases follows from its averages; tau (.44)
and the four numbers of the adaptive budget are values at which its numbers appear, and were chosen
for that. So was, on other seeds, the decay of the state (.995), for recall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from time import perf_counter

import numpy as np

from distinctkv.rule import Floats

from .adaptive_words import reading
from .contenders import (
    BUDGETS,
    CONTENDERS,
    EASY,
    FAMILIES,
    HARD,
    IDLES,
    POLICY,
    STATE_DECAY,
    STREAMS,
    TAU,
    ladder,
)
from .following import EXTRA, MEASURES, Trace, at_cost, follow
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude
from .study import FULL, Progress, Scale, silent

TITLE = "A budget that follows surprise"
QUESTION = (
    "A stream alternates between 6 and 30 items, new ones in each phase, so a fixed budget is too "
    "large for the one or too small for the other. Does a budget that follows the rate of new "
    "slots recall more at the same average cost?"
)
HEADINGS = {
    "alternating": "The paper's stream: 6 or 30 items, phases of 36 or 180 tokens",
    "swing": "Where the adaptive budget stands when a phase ends",
    "equal": "Phases of equal length: 6 or 30 items, 180 tokens each",
    "steady": "Demand that does not change: 18 items in every phase, 108 tokens each",
    "gain": "The adaptive budget less a fixed budget of 18, on the same streams",
    "level": "Recall that the adaptive budget gains at equal slots per token",
}
HEADINGS = {name: f"{words}; a seed is the mean of its streams" for name, words in HEADINGS.items()}
REPEATS = 5  # streams of each kind per seed
IDLE = 40  # the one in the figures
SHOWN = 3  # tokens between two points of a figure; it divides the phases
GAINS: Mapping[str, tuple[str, Role]] = {
    "alternating": ("Gain on 18, at phase ends", "paper"),
    "equal": ("Gain on 18, equal phases", "added"),
    "steady": ("Gain on 18, steady demand", "paper"),
}
DEMANDS = {"alternating": "paper's stream", "equal": "equal phases", "steady": "steady demand"}
Traces = Mapping[tuple[str, str], list[Trace]]  # by stream and contender, seed after seed


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "streams_per_seed": scale.of(REPEATS),
        "phases": len(STREAMS["alternating"].phases),
        "items": f"{EASY.n_items} and {HARD.n_items}",
        "repeats": HARD.repeats,
        "n_classes": HARD.n_classes,
        "width": HARD.width,
        "noise": HARD.noise,
        **asdict(POLICY),
        "fixed_budgets": "; ".join(", ".join(map(str, budgets)) for budgets in BUDGETS.values()),
        "idle": ", ".join(map(str, IDLES)),
        "state_decay": STATE_DECAY,
        "counted_every": 1,
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every contender on the same streams."""
    started = perf_counter()
    traces = race(seeds, scale.of(REPEATS), progress)
    rows = [
        row
        for kind in (stream_rows, swing_rows, gain_rows, level_rows)
        for row in kind(traces, len(seeds))
    ]
    result = Result(
        study="adaptive",
        title=TITLE,
        question=QUESTION,
        reading=reading({(row.table, row.name): row.measures for row in rows}),
        rows=tuple(sorted(rows, key=lambda row: [*HEADINGS].index(row.table))),
        settings=settings(scale),
        seeds=tuple(seeds),
        series=lines(traces),
        headings=HEADINGS,
    )
    return conclude(result, perf_counter() - started)


def race(seeds: Sequence[int], repeats: int, progress: Progress) -> Traces:
    """A trace for every contender, stream and seed."""
    runs = list(product(seeds, range(repeats), STREAMS))
    traces: dict[tuple[str, str], list[Trace]] = {}
    for done, (seed, repeat, stream) in enumerate(runs, start=1):
        phases = STREAMS[stream].draw(np.random.default_rng((seed, repeat)))
        for contender in CONTENDERS:
            if stream in contender.streams:
                trace = follow(contender.make(), phases)
                traces.setdefault((stream, contender.name), []).append(trace)
        progress(done, len(runs))
    return traces


def stream_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """A table per stream, a row per contender in it."""

    def measures(found: Sequence[Trace]) -> Mapping[str, Measure]:
        return {name: measure(map(of, found), n_seeds) for name, of in MEASURES.items()}

    return tuple(
        Row(one.name, one.label, measures(traces[stream, one.name]), one.setting, one.role, stream)
        for stream, one in product(STREAMS, CONTENDERS)
        if (stream, one.name) in traces
    )


def swing_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """The adaptive budget at the ends of easy and of hard phases."""
    ours = traces["alternating", "surprise"]
    rows = []
    for name, first, task in (("easy", 0, EASY), ("hard", 1, HARD)):
        found = {
            "budget": measure((t.at_ends(t.budget)[first::2].mean() for t in ours), n_seeds),
            "slots": measure((t.at_ends(t.slots)[first::2].mean() for t in ours), n_seeds),
        }
        label, setting = f"Budget after {task.n_items} items", f"{len(ours[0].ends) // 2} phases"
        rows.append(Row(name, label, found, setting, "cache", "swing"))
    return tuple(rows)


def gain_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """What the adaptive budget recalls and holds beyond a fixed one, on the same streams."""
    rows = []
    for stream, (label, role) in GAINS.items():
        pairs = list(zip(traces[stream, "surprise"], traces[stream, "b18"], strict=True))
        found = {
            name: measure(
                (MEASURES[of](ours) - MEASURES[of](theirs) for ours, theirs in pairs), n_seeds
            )
            for name, of in EXTRA.items()
        }
        rows.append(Row(f"{stream}_b18", label, found, f"tau {TAU}, B=18", role, "gain"))
    return tuple(rows)


def level_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """What the adaptive budget recalls beyond each family of rivals, at its own slots per token."""
    rows = []
    for stream, (family, prefix) in product(STREAMS, FAMILIES.items()):
        ours = traces[stream, "surprise"]
        rivals = ladder(stream, prefix)
        sizes = zip(*(traces[stream, one.name] for one in rivals), strict=True)
        theirs = [at_cost(size, our) for size, our in zip(sizes, ours, strict=True)]
        recalls, slots = ([MEASURES[name](t) for t in ours] for name in ("recall", "per token"))
        found = {
            "gain": measure(np.subtract(recalls, theirs), n_seeds),
            "adaptive": measure(recalls, n_seeds),
            "rival": measure(theirs, n_seeds),
            "per token": measure(slots, n_seeds),
        }
        label = f"Gain on {family}, {DEMANDS[stream]}"
        setting = f"between {', '.join(one.name.removeprefix(prefix) for one in rivals)}"
        rows.append(Row(f"{stream}_{family}", label, found, setting, "added", "level"))
    return tuple(rows)


def measure(numbers: Iterable[float], n_seeds: int) -> Measure:
    """A number per stream, seed after seed, as a mean and its spread over seeds.

    >>> measure([1.0, 2.0, 3.0, 4.0], n_seeds=2)
    Measure(mean=2.5, sd=1.41421356237, n=2)
    """
    return Measure.of(np.reshape([*numbers], (n_seeds, -1)).mean(axis=1).tolist())


def lines(traces: Traces) -> tuple[Series, ...]:
    """Slots and budget along the paper's stream, the mean over streams."""
    shown = slice(SHOWN - 1, None, SHOWN)
    mean = {
        name: np.mean([trace.slots[shown] for trace in traces["alternating", name]], axis=0)
        for name in ("surprise", "b18", "b30", "unbounded", f"ttl{IDLE}")
    }
    budgets = [trace.budget[shown] for trace in traces["alternating", "surprise"]]
    labels = {one.name: one.label for one in CONTENDERS}
    tokens = tuple(float(SHOWN * step) for step in range(1, len(mean["b18"]) + 1))
    demand = [p.n_items for p in STREAMS["alternating"].phases for _ in range(0, p.n_tokens, SHOWN)]
    return (
        Series("demand", "Items in the phase", tokens, tuple(map(float, demand))),
        Series("budget", "Its budget", tokens, _rounded(np.mean(budgets, axis=0))),
        *(Series(name, labels[name], tokens, _rounded(slots)) for name, slots in mean.items()),
    )


def _rounded(numbers: Floats) -> tuple[float, ...]:
    return tuple(round(float(number), 3) for number in numbers)
