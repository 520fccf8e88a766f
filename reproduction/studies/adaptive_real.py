"""The paper's adaptive cache on two real streams, MovieLens and the BGL log, in time windows.

When each of 25 windows of equal time ends, every item in it is asked for once: a movie's genre, a
line's template. Recall is the mean over windows. The paper averages slots over the ends of windows;
we also average over tokens, and compare at equal slots per token, as in study ``adaptive``.

The paper gives the two matched budgets and nothing else. Keys are those of its other studies, 32
wide with noise .1; at tau .4 its MovieLens number for the fixed budget comes out. The adaptive
budgets were chosen to hold its 813 and 18 slots, and the decay of usage is that of study
``adaptive``. All 2,000 lines of BGL are used: they have the 2 to 45 templates in a window that the
paper gives; its alerts alone do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import Floats, unit

from ..baselines import TTL
from ..data import Episode, Events, loghub, movielens, occurrences, windows
from ..result import Measure, Result, Role, Row, Series, Setting
from . import Progress
from .adaptive import DIFFERENCES, FAMILIES, MEASURES, Trace, evaluate, recall_at_cost
from .findings import paragraphs
from .runner import FULL, Scale, finish, mark_unmeasured, missing_data, silent, sources
from .sweep import Method

TITLE = "A budget that follows surprise, on real streams"
QUESTION = (
    "MovieLens needs about as many slots in every window of time, and the BGL log between 2 and "
    "45. Does a budget that follows surprise tie with a fixed one on the first, and beat it on the "
    "second?"
)
N_WINDOWS = 25
WIDTH, NOISE, TAU, DECAY = 32, 0.1, 0.4, 0.98
WIDE = 64  # a key width at which no two movies share a slot
MIN_SEEDS = 5  # on MovieLens in a quick run
POINTS = 250  # of a series, about


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """A real stream, and the sizes of the methods that run on it."""

    name: str
    label: str
    data: str
    load: Callable[[], Events]
    policy: Concentration
    matched: int  # the paper's fixed budget
    worst: int  # items in the fullest window
    budgets: tuple[int, ...]  # around what the adaptive budget holds on average
    idles: tuple[int, ...]

    @property
    def policy_text(self) -> str:
        """The settings of the adaptive budget."""
        return f"budget {self.policy.base:g} + {self.policy.gain:g} T, rate {self.policy.rate:g}"

    @property
    def plotted(self) -> tuple[str, ...]:
        """The methods that have a series."""
        return f"b{self.matched}", f"ttl{self.idles[-1]}", "surprise"

    def methods(self) -> tuple[Method, ...]:
        """The methods that run on this stream."""
        sizes = sorted({*self.budgets, self.matched, self.worst}, reverse=True)
        return (
            Method(
                "unbounded", "No budget", "", lambda: Cache(Concentration.fixed(TAU)), role="paper"
            ),
            *map(self._fixed, sizes),
            *map(_expiring, self.idles),
            Method(
                "surprise",
                "Adaptive (ours)",
                self.policy_text,
                lambda: Cache(self.policy),
                role="cache",
            ),
        )

    def family_sizes(self, prefix: str) -> tuple[int, ...]:
        """The sizes of a family of baselines, without the worst case."""
        return {"b": self.budgets, "ttl": self.idles}[prefix]

    def row(
        self,
        table: str,
        name: str,
        label: str,
        numbers: Numbers,
        setting: str,
        role: Role,
    ) -> Row:
        """A row of a table; without numbers, one whose stream is missing."""
        measures = {name: Measure.of([*map(float, found)]) for name, found in numbers.items()}
        return Row(name, label, measures, setting, role, table, "" if measures else self.data)

    def _fixed(self, budget: int) -> Method:
        note = {self.matched: ", matched", self.worst: ", the worst case"}.get(budget, "")
        return Method(
            f"b{budget}",
            f"Fixed budget {budget:,}",
            f"B={budget:,}{note}",
            lambda: Cache(Concentration.fixed(TAU, budget, decay=DECAY)),
            role="paper" if note else "added",
        )


def _expiring(idle: int) -> Method:
    return Method(
        f"ttl{idle}",
        f"Slots expire, {idle:,} idle",
        f"dropped after {idle:,} idle tokens",
        lambda: TTL(idle=idle, tau=TAU),
    )


MOVIELENS = Stream(
    "movielens",
    "MovieLens",
    "movielens",
    lambda: movielens.load(),
    Concentration.surprise(TAU, base=774, gain=600, rate=0.02, decay=DECAY),
    matched=813,
    worst=1241,
    budgets=(780, 813, 850),
    idles=(2400, 2600),
)
BGL = Stream(
    "bgl",
    "BGL",
    "loghub/BGL",
    lambda: loghub.load("BGL").events(),
    Concentration.surprise(TAU, base=12, gain=60, rate=0.05, decay=DECAY),
    matched=18,
    worst=45,
    budgets=(14, 16, 18, 20),
    idles=(125, 150),
)
STREAMS = (MOVIELENS, BGL)
# Usage horizons, 1 / (1 - decay) in tokens; the budgets of BGL that are run at each; the paper's
# recall of these.
HORIZONS = (10, 20, 50, 100, 150, 200, 300, 500, 1000, inf)
POLICIES = {
    "fixed": Concentration.fixed(TAU, BGL.matched),
    "adaptive": BGL.policy,
    "worst case": Concentration.fixed(TAU, BGL.worst),
}
PAPER = {"fixed": 0.75, "adaptive": 0.94, "worst case": 0.95}
AT_WIDE_KEYS = ("unbounded", f"b{MOVIELENS.matched}", "surprise")
HEADINGS = {
    "demand": "Distinct items in a window",
    **{one.name: f"{one.label}, {N_WINDOWS} windows; a seed draws the keys" for one in STREAMS},
    "gain": "The adaptive budget less the matched fixed one, on the same keys",
    "level": "Recall that the adaptive budget gains at equal slots per token",
    "decay": "BGL: recall by the tokens for which a use of a slot counts",
    "fewer": "BGL: average slots of the worst case's budget over those of the adaptive one",
    "closest": "BGL: how near one decay comes to all three of the paper's recalls",
    "wide": f"MovieLens under keys {WIDE} wide, where no movie is taken for another",
}
SHOWN = ("recall", "phase end", "per token", "peak")
Numbers = Mapping[str, Iterable[float]]  # by measure, a number per seed
Runs = Mapping[tuple[str, str], Sequence[Trace]]  # by table and row, a trace per seed
Demand = Sequence[tuple[int, int]]  # tokens and distinct items of each window


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "data": sources(*(stream.data for stream in STREAMS)),
        "windows": N_WINDOWS,
        "width": f"{WIDTH}, {WIDE}",
        "noise": NOISE,
        "tau": TAU,
        "decay": DECAY,
        "a_use_counts_for": ", ".join(f"{horizon:g}" for horizon in HORIZONS),
        "budgets": "; ".join(", ".join(map(str, stream.budgets)) for stream in STREAMS),
        "adaptive": "; ".join(stream.policy_text for stream in STREAMS),
        "idle": "; ".join(", ".join(map(str, stream.idles)) for stream in STREAMS),
        "read_theta": 0.05,
        "part_of_the_seeds_on_movielens": scale.part,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every method on the streams that are on this machine."""
    started = perf_counter()
    missing = missing_data(*(stream.data for stream in STREAMS))
    events = {stream.name: stream.load() for stream in STREAMS if stream.data not in missing}
    if not events:
        return mark_unmeasured("adaptive_real", settings(scale), seeds, missing)
    runs = compare(events, seeds, scale, progress)
    demands = {name: demand(found) for name, found in events.items()}
    rows = tables(runs, demands)
    result = Result(
        study="adaptive_real",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs(
            "adaptive_real", rows, width=WIDTH, wide=WIDE, decay=DECAY, **best_of_decays(rows)
        ),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(
            line
            for stream in STREAMS
            if stream.name in events
            for line in series(stream, runs, demands[stream.name])
        ),
        headings=HEADINGS,
        missing=missing,
    )
    return finish(result, perf_counter() - started)


# Time windows


def draw(events: Events, seed: int, width: int, noise: float) -> tuple[Episode, ...]:
    """The stream window by window, with random keys; a window asks for each of its items once.

    An item has one random direction in all windows, and every occurrence its own noise. Windows
    without events are left out.
    """
    rng = np.random.default_rng(seed)
    prototypes = unit(rng.standard_normal((len(events.names), width)))
    place, classes = windows(events.times, N_WINDOWS), np.eye(len(events.classes))
    phases = []
    for window in np.unique(place):
        items, labels = events.items[place == window], events.labels[place == window]
        queried, first = np.unique(items, return_index=True)
        phases.append(
            Episode(
                keys=occurrences(rng, prototypes[items], noise),
                values=classes[labels],
                items=items,
                queries=occurrences(rng, prototypes[queried], noise),
                answers=labels[first],
            )
        )
    return tuple(phases)


def demand(events: Events) -> tuple[tuple[int, int], ...]:
    """Tokens and distinct items in each window."""
    place = windows(events.times, N_WINDOWS)
    each = (events.items[place == window] for window in np.unique(place))
    return tuple((len(items), len(np.unique(items))) for items in each)


# Runs


def compare(
    events: Mapping[str, Events], seeds: Sequence[int], scale: Scale, progress: Progress
) -> Runs:
    """A trace for every row and seed."""
    steps = [
        (stream, seed)
        for stream in STREAMS
        if stream.name in events
        for seed in seeds_of(stream, seeds, scale)
    ]
    runs: dict[tuple[str, str], list[Trace]] = {}
    for done, (stream, seed) in enumerate(steps, start=1):
        for place, trace in traces(stream, events[stream.name], seed):
            runs.setdefault(place, []).append(trace)
        progress(done, len(steps))
    return runs


def seeds_of(stream: Stream, seeds: Sequence[int], scale: Scale) -> Sequence[int]:
    """The seeds that run on a stream; a short run has fewer on MovieLens, which is long."""
    few = max(min(MIN_SEEDS, len(seeds)), scale.of(len(seeds)), scale.seeds)
    return seeds if stream is BGL else seeds[:few]


def traces(stream: Stream, events: Events, seed: int) -> Iterator[tuple[tuple[str, str], Trace]]:
    """All runs on a stream with the keys of a seed, by table and row."""
    phases = draw(events, seed, WIDTH, NOISE)
    for method in stream.methods():
        yield (stream.name, method.name), evaluate(method.make(), phases)
    if stream is BGL:
        for horizon, (name, policy) in product(HORIZONS, POLICIES.items()):
            memory = Cache(replace(policy, decay=1 - 1 / horizon))
            yield (name, f"lasts_{horizon:g}"), evaluate(memory, phases)
    else:
        phases = draw(events, seed, WIDE, NOISE)
        for method in stream.methods():
            if method.name in AT_WIDE_KEYS:
                yield ("wide", method.name), evaluate(method.make(), phases)


# Tables: without data there are no runs, and a row names the stream that is missing.


def tables(runs: Runs, demands: Mapping[str, Demand]) -> tuple[Row, ...]:
    """All rows; those of an missing stream have no measures."""
    rows: list[Row] = []
    for stream in STREAMS:
        rows += [demand_row(stream, demands.get(stream.name, ()), runs)]
        rows += [*stream_rows(stream, runs), gain_row(stream, runs), *level_rows(stream, runs)]
        if stream is BGL:
            rows += [*decay_rows(runs), fewer_row(runs), closest_row(runs)]
        else:
            rows += wide_rows(stream, runs)
    return tuple(sorted(rows, key=lambda row: [*HEADINGS].index(row.table)))


def numbers_of(runs: Runs, table: str, name: str) -> dict[str, list[float]]:
    """The numbers of a run; none without data."""
    found = runs.get((table, name), ())
    return {measure: [MEASURES[measure](one) for one in found] for measure in SHOWN if found}


def demand_row(stream: Stream, demand: Demand, runs: Runs) -> Row:
    """Distinct items by window; there is one stream, so they are the same for all seeds."""
    n_seeds = len(runs.get((stream.name, "surprise"), ()))
    items = [n_items for _, n_items in demand]
    exact = (min(items), max(items), max(items) / min(items)) if items else ()
    names = ("fewest", "most", "most / fewest")
    numbers = {name: [float(n)] * n_seeds for name, n in zip(names, exact, strict=False)}
    setting = f"{N_WINDOWS} windows of equal time"
    return stream.row("demand", stream.name, stream.label, numbers, setting, "paper")


def stream_rows(stream: Stream, runs: Runs) -> Iterator[Row]:
    """A row per method."""
    for one in stream.methods():
        numbers = numbers_of(runs, stream.name, one.name)
        yield stream.row(stream.name, one.name, one.label, numbers, one.setting, one.role)


def gain_row(stream: Stream, runs: Runs) -> Row:
    """Recall and slots of the adaptive budget less those of the matched fixed one."""
    ours, theirs = (
        numbers_of(runs, stream.name, name) for name in ("surprise", f"b{stream.matched}")
    )
    numbers = {name: np.subtract(ours[of], theirs[of]) for name, of in DIFFERENCES.items() if ours}
    label = f"Gain on {stream.matched}, {stream.label}"
    return stream.row("gain", stream.name, label, numbers, f"B={stream.matched}", "paper")


def level_rows(stream: Stream, runs: Runs) -> Iterator[Row]:
    """The gain on each family of baselines at the adaptive budget's own slots per token."""
    for family, prefix in FAMILIES.items():
        sizes = stream.family_sizes(prefix)
        ours = runs.get((stream.name, "surprise"), ())
        found = zip(*(runs.get((stream.name, f"{prefix}{n}"), ()) for n in sizes), strict=True)
        theirs = [recall_at_cost(size, our) for size, our in zip(found, ours, strict=True)]
        own = numbers_of(runs, stream.name, "surprise")
        numbers: Numbers = {}
        if own:
            numbers = {
                "gain": np.subtract(own["recall"], theirs),
                "adaptive": own["recall"],
                "rival": theirs,
                "per token": own["per token"],
            }
        label = f"Gain on {family}, {stream.label}"
        setting = f"between {', '.join(map(str, sizes))}"
        yield stream.row("level", f"{stream.name}_{family}", label, numbers, setting, "added")


def decay_rows(runs: Runs) -> Iterator[Row]:
    """Recall of each budget, and the adaptive one's slots, by usage horizon."""
    for horizon in HORIZONS:
        name = f"lasts_{horizon:g}"
        recalls = recalls_at(runs, horizon)
        numbers: Numbers = {}
        if recalls:
            numbers = {
                **recalls,
                "gain": np.subtract(recalls["adaptive"], recalls["fixed"]),
                "adaptive slots": numbers_of(runs, "adaptive", name)["phase end"],
            }
        label = "For ever" if horizon == inf else f"For {horizon:,} tokens"
        setting = f"decay {1 - 1 / horizon:.4g}"
        yield BGL.row("decay", name, label, numbers, setting, "added")


def best_of_decays(rows: Iterable[Row]) -> dict[str, float | None]:
    """The largest mean over decays of each measure of table "decay"; None without data."""
    found = [row.measures for row in rows if row.table == "decay" and row.measures]
    return {
        f"best_{name}": max((one[name].mean for one in found), default=None)
        for name in ("fixed", "adaptive", "gain")
    }


def recalls_at(runs: Runs, horizon: float) -> dict[str, list[float]]:
    """Recall of each budget at a usage horizon."""
    found = {name: numbers_of(runs, name, f"lasts_{horizon:g}") for name in POLICIES}
    return {name: one["recall"] for name, one in found.items() if one}


def closest_row(runs: Runs) -> Row:
    """Of all decays the one whose largest miss of the paper's three recalls is smallest."""
    misses = {
        horizon: np.max([np.abs(np.subtract(found[name], PAPER[name])) for name in PAPER], axis=0)
        for horizon in HORIZONS
        if (found := recalls_at(runs, horizon))
    }
    best = min(misses, key=lambda horizon: misses[horizon].mean(), default=inf)
    numbers = {"furthest miss": misses[best]} if misses else {}
    setting = f"decay {1 - 1 / best:.4g}, the best of {len(HORIZONS)}"
    return BGL.row("closest", "together", "All three at one decay", numbers, setting, "paper")


def fewer_row(runs: Runs) -> Row:
    """How many times fewer slots than the worst case's budget the adaptive one holds on average."""
    ours, worst = (numbers_of(runs, "bgl", name) for name in ("surprise", f"b{BGL.worst}"))
    numbers = {name: np.divide(worst[name], ours[name]) for name in ours if name != "recall"}
    return BGL.row("fewer", "bgl", "BGL", numbers, f"B={BGL.worst}", "paper")


def wide_rows(stream: Stream, runs: Runs) -> Iterator[Row]:
    """The same stream with wide keys, which do not collide."""
    for one in stream.methods():
        if one.name in AT_WIDE_KEYS:
            found = numbers_of(runs, "wide", one.name)
            numbers = {name: found[name] for name in ("recall", "phase end") if found}
            yield stream.row("wide", one.name, one.label, numbers, one.setting, "added")


def series(stream: Stream, runs: Runs, demand: Demand) -> Iterator[Series]:
    """Demand and slots along a stream, the mean over seeds."""
    items = np.repeat([n_items for _, n_items in demand], [n_tokens for n_tokens, _ in demand])
    sampled = slice(None, None, max(1, len(items) // POINTS))
    tokens = tuple(map(float, np.arange(1, len(items) + 1)[sampled]))

    def line(name: str, label: str, numbers: Floats) -> Series:
        y = tuple(round(float(number), 2) for number in numbers[sampled])
        return Series(f"{stream.name}_{name}", label, tokens, y)

    yield line("demand", "Items in the window", items.astype(np.float64))
    for one in stream.methods():
        if one.name in stream.plotted:
            found = runs[stream.name, one.name]
            yield line(one.name, one.label, np.mean([trace.slots for trace in found], axis=0))
