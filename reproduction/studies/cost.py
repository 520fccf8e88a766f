"""The paper's section "Cost": time to read and to build, and bytes, as a stream of K items grows.

Attention and the cache are read by the same lines of NumPy (`timing.attend`), in float32 and from
contiguous arrays, over every token or over the slots. `Cache.read` does more, for it looks at the
queries first, and is timed beside them. BLAS keeps to one thread; a time is that of the best of
several rounds, in processor time. The paper gives neither K, D nor the size of a batch; we try two
sizes, in batches and alone.
"""

# K items, r repeats, N = r K tokens, D key size

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import log
from statistics import fmean
from time import perf_counter

from ..data import RecallTask
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude
from .study import FULL, Progress, Scale, silent
from .timing import Lap, Order, apart, blas, clock, processor

TITLE = "Cost as the stream grows"
QUESTION = (
    "The items stay the same and the stream repeats them more and more often. What does a query "
    "cost, what does it cost to take the stream in, and how much is held, for the cache and for "
    "attention over every token?"
)
SIZES = (RecallTask(n_items=64, width=32), RecallTask(n_items=256, width=64))
LENGTHS = (4, 16, 32, 64, 128, 256)  # repeats of an item; the paper ends at 128
ENDS = (4, 128)  # of the paper's redundancy
GROWN = (64, 256)  # between these the cost of starting no longer shows
BATCH = 64
ROUNDS = 15
TAU, THETA = 0.3, 0.05

Quantity = Callable[[Lap], float]
# table -> measure -> how it comes from what was timed on one stream
TABLES: Mapping[str, Mapping[str, Quantity]] = {
    "speedup": {
        "speed-up": lambda lap: lap["attention batch"] / lap["cache batch"],
        "speed-up alone": lambda lap: lap["attention single"] / lap["cache single"],
    },
    "batch": {
        "attention": lambda lap: lap["attention batch"] / BATCH,
        "cache": lambda lap: lap["cache batch"] / BATCH,
    },
    "single": {
        "attention": lambda lap: lap["attention single"],
        "cache": lambda lap: lap["cache single"],
        "Cache.read": lambda lap: lap["call"],
    },
    "build": {
        "build": lambda lap: lap["build"] / lap["tokens"],
        "append": lambda lap: lap["append"] / lap["tokens"],
        "slots": lambda lap: lap["slots"],
        "bytes": lambda lap: lap["bytes"],
        "attention bytes": lambda lap: lap["attention bytes"],
    },
}
HEADINGS = {
    "speedup": f"How many times faster the cache is read, by a batch of {BATCH} queries or alone; "
    "one seed is one stream, and the best of its rounds",
    "rise": f"The speed-up in a batch, as the redundancy grows from {ENDS[0]} to {ENDS[1]}",
    "batch": f"Microseconds a query, in a batch of {BATCH}",
    "single": "Microseconds a query, alone",
    "build": "Microseconds a token to build the cache, or to append to attention; slots; bytes",
    "growth": f"Growth: the power of N, from {GROWN[0]} repeats to {GROWN[1]}",
}
# row of the last table -> its label, and what grows
GROWTH: Mapping[str, tuple[str, Quantity]] = {
    "slots": ("Slots", TABLES["build"]["slots"]),
    "cache": ("Read of the cache", TABLES["batch"]["cache"]),
    "attention": ("Read of attention", TABLES["batch"]["attention"]),
    "build": ("Build of the cache", lambda lap: lap["build"]),
}
# size and repeats -> a lap for each seed
Laps = Mapping[tuple[RecallTask, int], Sequence[Lap]]


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart, and the machine."""
    return {
        "scale": scale.name,
        "rounds": scale.of(ROUNDS),
        "sizes": ", ".join(f"K={size.n_items} D={size.width}" for size in SIZES),
        "repeats": ", ".join(map(str, LENGTHS)),
        "n_classes": SIZES[0].n_classes,
        "noise": SIZES[0].noise,
        "tau": TAU,
        "read_theta": THETA,
        "batch": BATCH,
        "threads": 1,
        "clock": clock.__name__.replace("_", " "),
        "processor": processor(),
        "blas": blas(),
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Time every length of every size, each seed in a process of its own."""
    started = perf_counter()
    order = Order(SIZES, LENGTHS, BATCH, TAU, THETA, scale.of(ROUNDS))
    laps: dict[tuple[RecallTask, int], list[Lap]] = {
        (size, repeats): [] for size in SIZES for repeats in LENGTHS
    }
    for i, seed in enumerate(seeds):
        for place, lap in zip(laps, apart(order, seed), strict=True):
            laps[place].append(lap)
        progress(i + 1, len(seeds))
    rows = (*_rows(laps), *_rises(laps), *_growths(laps))
    result = Result(
        study="cost",
        title=TITLE,
        question=QUESTION,
        reading=reading(laps),
        rows=tuple(sorted(rows, key=lambda row: [*HEADINGS].index(row.table))),
        settings=settings(scale),
        seeds=tuple(seeds),
        series=_series(laps),
        headings=HEADINGS,
    )
    return conclude(result, perf_counter() - started)


def growth(quantity: Quantity, short: Lap, long: Lap) -> float:
    """The p for which a quantity grows as N to the power of p between two streams.

    >>> growth(lambda lap: lap["tokens"] ** 2, {"tokens": 10}, {"tokens": 1000})
    2.0
    """
    tokens = long["tokens"] / short["tokens"]
    return round(log(quantity(long) / quantity(short)) / log(tokens), 12)


def reading(laps: Laps) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""
    (small, large), longest = SIZES, LENGTHS[-1]
    mean = partial(_mean, laps)
    return (
        f"The slots stay at {mean('build', 'slots', small, longest):.1f} and "
        f"{mean('build', 'slots', large, longest):.1f} however long the stream, and a read of the "
        "cache costs the same at every length. This much is arithmetic: it is the same code over "
        "fewer rows.",
        _on_speedups(laps),
        "Both sides are bare arrays. `Cache.read` looks at its queries first: alone, one takes "
        f"{mean('single', 'Cache.read', small, 4):.0f} microseconds in place of "
        f"{mean('single', 'cache', small, 4):.0f}, so whoever asks one at a time gains less than "
        "the table says.",
        f"The build is the price: {mean('build', 'build', large, 128):.2f} microseconds a token; "
        f"to append it to attention takes {mean('build', 'append', large, 128):.2f} "
        f"({large.n_items} items, 128 repeats; both include scaling the key). "
        f"{_break_even(laps[large, 128])} It is linear in N with a start on top, for the first "
        f"tokens are all news: at 4 repeats a token costs {mean('build', 'build', large, 4):.2f}. "
        f"The start still shows at {GROWN[0]} repeats, so the power is a little below 1.",
        f"In bytes, the cache holds {mean('build', 'bytes', large, 128):,.0f} and attention "
        f"{mean('build', 'attention bytes', large, 128):,.0f} at 128 repeats, "
        f"{mean('build', 'bytes', large, 4):,.0f} and "
        f"{mean('build', 'attention bytes', large, 4):,.0f} at 4: a slot also has counters, and "
        "room to grow.",
        f"Times are this machine's ({processor()}, one thread, {blas()}). What is judged is the "
        "shape: rising, flat or linear, to a quarter in the power of N.",
    )


def _mean(laps: Laps, table: str, measure: str, size: RecallTask, repeats: int) -> float:
    return fmean(map(TABLES[table][measure], laps[size, repeats]))


def _on_speedups(laps: Laps) -> str:
    """The paper's two numbers among ours."""
    lines = {
        (how, size): [_mean(laps, "speedup", how, size, repeats) for repeats in LENGTHS]
        for how in TABLES["speedup"]
        for size in SIZES
    }
    first, last = map(LENGTHS.index, ENDS)
    batch, alone = (
        " and ".join(f"{lines[how, s][first]:.1f} to {lines[how, s][last]:.0f}" for s in SIZES)
        for how in TABLES["speedup"]
    )
    among = all(
        min(line[place] for line in lines.values())
        <= paper
        <= max(y[place] for y in lines.values())
        for paper, place in ((3, first), (37, last))
    )
    rises = all(few < more for line in lines.values() for few, more in pairwise(line))
    return (
        f"From 4 repeats to 128 the speed-up goes from {batch} in batches of {BATCH} queries, and "
        f"from {alone} for a query alone ({' and '.join(str(s.n_items) for s in SIZES)} items). "
        "The paper has about 3 to 37 and gives neither size, batch nor machine; its numbers "
        f"{'lie among' if among else 'differ from'} ours. How large a speed-up is, these three "
        "decide; that it grows with the redundancy "
        f"{'holds for all' if rises else 'does not hold at every step here'}. Calls cost more than "
        "sums as long as the memory is small, so a query alone gains little there."
    )


def _break_even(laps: Sequence[Lap]) -> str:
    """After how many queries the dearer build is paid back by cheaper reads."""
    extra = fmean(lap["build"] - lap["append"] for lap in laps)
    saved = fmean(lap["attention batch"] - lap["cache batch"] for lap in laps) / BATCH
    if saved <= 0:
        return "Reads do not pay it back here."
    if extra <= 0:
        return "It is paid back at once."
    return f"It is paid back after {extra / saved:,.0f} queries, read in batches."


def _rows(laps: Laps) -> tuple[Row, ...]:
    return tuple(
        Row(
            f"k{size.n_items}_r{repeats}",
            f"{size.n_items} items × {repeats}",
            {name: Measure.of([*map(take, laps[size, repeats])]) for name, take in columns.items()},
            f"N = {size.n_items * repeats:,}, D = {size.width}" if table == "speedup" else "",
            "paper" if size is SIZES[0] and repeats <= ENDS[1] else "added",
            table,
        )
        for table, columns in TABLES.items()
        for size, repeats in laps
    )


def _rises(laps: Laps) -> tuple[Row, ...]:
    """Of each size: how many times the speed-up grows, and in what part of the steps it does."""
    lengths = [repeats for repeats in LENGTHS if repeats <= ENDS[1]]
    take = TABLES["speedup"]["speed-up"]
    rows = []
    for size in SIZES:
        lines = [[*map(take, seed)] for seed in zip(*(laps[size, r] for r in lengths), strict=True)]
        rises = [fmean(few < more for few, more in pairwise(line)) for line in lines]
        measures = {
            f"{ENDS[1]} over {ENDS[0]}": Measure.of([line[-1] / line[0] for line in lines]),
            "steps that rise": Measure.of(rises),
        }
        name, label = f"k{size.n_items}", f"{size.n_items} items"
        role: Role = "paper" if size is SIZES[0] else "added"
        setting = f"{len(lengths) - 1} steps, D = {size.width}"
        rows.append(Row(name, label, measures, setting, role, "rise"))
    return tuple(rows)


def _growths(laps: Laps) -> tuple[Row, ...]:
    """A row for each quantity, a measure for each size."""

    def of(quantity: Quantity, size: RecallTask) -> Measure:
        ends = (laps[size, repeats] for repeats in GROWN)
        return Measure.of([growth(quantity, *pair) for pair in zip(*ends, strict=True)])

    rows = []
    for name, (label, quantity) in GROWTH.items():
        measures = {f"K={size.n_items}": of(quantity, size) for size in SIZES}
        rows.append(Row(name, label, measures, "0 is flat, 1 linear", "paper", "growth"))
    return tuple(rows)


def _series(laps: Laps) -> tuple[Series, ...]:
    """Means over seeds, against the repeats for a speed-up, against the tokens otherwise."""
    lines = {f"{table}.{name}": take for table in TABLES for name, take in TABLES[table].items()}
    return tuple(
        Series(
            f"k{size.n_items}.{name}",
            f"{size.n_items} items",
            tuple(float(r if name.startswith("speedup") else r * size.n_items) for r in LENGTHS),
            tuple(fmean(map(take, laps[size, repeats])) for repeats in LENGTHS),
        )
        for size in SIZES
        for name, take in lines.items()
    )
