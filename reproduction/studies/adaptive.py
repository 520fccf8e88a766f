"""The paper's table for its adaptive cache: recall and average slots while demand swings.

A stream alternates between phases of 6 and 30 items, new ones in every phase; when a phase ends
each of its items is asked for once. Recall is the mean over phases. The paper averages slots over
the ends of phases; we also average over tokens, and add two streams. Methods are compared at equal
cost: on every stream a baseline is run at several sizes, and its recall is interpolated to the
slots per token that the adaptive cache holds there.

The paper gives no setting but the budgets. The length of the phases follows from its averages. Tau
(.44) and the four numbers of the adaptive budget were chosen so that its numbers come out. The
decay of the state (.995) was chosen for recall, on other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration
from distinctkv.rule import Floats, Keys, Rule, novelty, read, unit

from ..baselines import TTL, Attention, DecayedSuperposition, Superposition
from ..data import Episode, Ints, PhasedTask, RecallTask
from ..result import Measure, Result, Role, Row, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent
from .sweep import Method

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
    "signal": "The paper's stream: what drives the temperature",
}
HEADINGS = {name: f"{text}; a seed is the mean of its streams" for name, text in HEADINGS.items()}
REPEATS, MIN_REPEATS = 5, 3  # streams of each kind per seed; in a quick run

EASY, HARD = RecallTask(n_items=6, repeats=6), RecallTask(n_items=30, repeats=6)
STREAMS = {
    "alternating": PhasedTask((EASY, HARD) * 4),
    "equal": PhasedTask((RecallTask(n_items=6, repeats=30), HARD) * 4),
    "steady": PhasedTask((RecallTask(n_items=18, repeats=6),) * 8),
}
STREAM_LABELS = {
    "alternating": "paper's stream",
    "equal": "equal phases",
    "steady": "steady demand",
}
GAINS: Mapping[str, tuple[str, Role]] = {
    "alternating": ("Gain on 18, at phase ends", "paper"),
    "equal": ("Gain on 18, equal phases", "added"),
    "steady": ("Gain on 18, steady demand", "paper"),
}
TAU = 0.44
# Fixed budgets on each stream: those of the paper, and some of about the size of the adaptive one.
BUDGETS = {"alternating": (30, 24, 22, 18), "equal": (20, 18, 16), "steady": (22, 20, 18)}
IDLES = (30, 40, 50)
STATE_DECAY = 0.995
READ_THETA = 0.05
POLICY = Concentration.surprise(tau=TAU)
# Driven by raw novelty, which is less than 1 for a new item: a gain at which it holds as much.
RAW_POLICY = replace(POLICY, gain=58.0)
FAMILIES = {"fixed": "b", "expiry": "ttl"}  # baselines that come in sizes, and their names' prefix


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "streams_per_seed": n_streams(scale),
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
        "read_theta": READ_THETA,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every method on the same streams."""
    started = perf_counter()
    traces = compare(seeds, n_streams(scale), progress)
    rows = [
        row
        for kind in (stream_rows, swing_rows, gain_rows, level_rows)
        for row in kind(traces, len(seeds))
    ]
    rows += signal_rows(traces, seeds, n_streams(scale))
    easy, hard = STREAMS["alternating"].lengths[:2]
    result = Result(
        study="adaptive",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("adaptive", rows, easy=easy, hard=hard, state_decay=STATE_DECAY),
        rows=tuple(sorted(rows, key=lambda row: [*HEADINGS].index(row.table))),
        settings=settings(scale),
        seeds=tuple(seeds),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


def n_streams(scale: Scale) -> int:
    """Streams of each kind per seed."""
    return max(MIN_REPEATS, scale.of(REPEATS))


def methods(stream: str) -> tuple[Method, ...]:
    """The methods that run on a stream."""
    unbounded = Method(
        "unbounded",
        "No budget",
        f"tau {TAU}",
        lambda: Cache(Concentration.fixed(TAU)),
        role="paper",
    )
    return (
        Method(
            "superposition",
            "Fixed state (SSM)",
            "sum of k vᵀ, no decay",
            Superposition,
            role="paper",
        ),
        Method(
            "decay",
            "State that forgets",
            f"sum of k vᵀ, decay {STATE_DECAY}",
            lambda: DecayedSuperposition(STATE_DECAY),
        ),
        Method("attention", "Full attention", "keeps every token", Attention, role="paper"),
        *([unbounded] if stream == "alternating" else []),
        *map(_fixed, BUDGETS[stream]),
        *map(_expiring, IDLES),
        Method(
            "surprise",
            "Adaptive (ours)",
            f"tau {TAU}, budget {POLICY.base:g} + {POLICY.gain:g} T, rate {POLICY.rate:g}",
            lambda: Cache(POLICY),
            role="cache",
        ),
    )


def _fixed(budget: int) -> Method:
    return Method(
        f"b{budget}",
        f"Fixed budget {budget}",
        f"tau {TAU}, B={budget}" + ", the worst case" * (budget == 30),
        lambda: Cache(Concentration.fixed(TAU, budget)),
        role="paper" if budget in (18, 30) else "added",
    )


def _expiring(idle: int) -> Method:
    return Method(
        f"ttl{idle}",
        f"Slots expire, {idle} idle",
        f"tau {TAU}, dropped after {idle} idle tokens",
        lambda: TTL(idle=idle, tau=TAU),
    )


# A memory along a stream


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One memory on one stream; ``ends`` are the last tokens of the phases."""

    recall: Floats  # (phases,)
    ends: tuple[int, ...]
    slots: Floats  # (L,)
    bytes: Floats  # (L,)
    budget: Floats  # (L,), of a cache

    def at_ends(self, numbers: Floats) -> Floats:
        """The numbers of the last token in each phase."""
        found: Floats = numbers[list(self.ends)]
        return found


MEASURES: Mapping[str, Callable[[Trace], float]] = {
    "recall": lambda trace: float(trace.recall.mean()),
    "phase end": lambda trace: float(trace.at_ends(trace.slots).mean()),
    "per token": lambda trace: float(trace.slots.mean()),
    "peak": lambda trace: float(trace.slots.max()),
    "bytes": lambda trace: float(trace.bytes.mean()),
}
# Differences between two memories: measure of the difference -> measure of each.
DIFFERENCES = {"gain": "recall", "extra at ends": "phase end", "extra per token": "per token"}
Traces = Mapping[tuple[str, str], list[Trace]]  # by stream and method, seed after seed


def evaluate(memory: Memory, phases: Sequence[Episode]) -> Trace:
    """Write a stream phase by phase; when a phase ends, ask for all that was in it.

    The slots after each token follow from the ids (`slots_held`); a slot is as large on average as
    it is at the end.

    >>> task = PhasedTask((RecallTask(n_items=2, repeats=3), RecallTask(n_items=4, repeats=3)))
    >>> trace = evaluate(Cache(), task.draw(np.random.default_rng(0)))
    >>> trace.recall, trace.slots[::3]
    (array([1., 1.]), array([1., 2., 3., 5., 5., 6.]))
    """
    recall, ids = [], []
    for phase in phases:
        ids.append(memory.write(phase.keys, phase.values))
        answers = np.asarray(memory.read(phase.queries)).argmax(axis=1)
        recall.append((answers == phase.answers).mean())
    ends = np.cumsum([len(phase.keys) for phase in phases]) - 1
    slots, budget = slots_held(memory, np.concatenate(ids))
    if slots[-1] != len(memory):
        raise RuntimeError(f"{len(memory)} slots are held, {slots[-1]} follow from the ids")
    size = memory.nbytes / len(memory)
    return Trace(np.array(recall), tuple(ends.tolist()), slots, size * slots, budget)


def slots_held(memory: Memory, ids: Ints) -> tuple[Floats, Floats]:
    """Slots held and slots granted after each token, (L,), from the ids of all tokens.

    >>> cache, keys = Cache(Concentration.fixed(0.5, budget=2)), np.eye(4)[[0, 1, 0, 2, 3, 3]]
    >>> slots_held(cache, cache.write(keys))[0]
    array([1., 2., 2., 2., 2., 2.])
    """
    time = np.arange(len(ids))
    opened = np.diff(np.maximum.accumulate(ids), prepend=-1) > 0  # ids are numbered as they open
    unlimited = np.full(len(ids), inf)
    if isinstance(memory, Cache):
        budget = granted(memory.concentration, opened)
        held = np.cumsum(opened, dtype=np.float64)
        if memory.concentration.bounded:
            n = 0
            for t, (new, most) in enumerate(zip(opened.tolist(), budget.tolist(), strict=True)):
                held[t] = n = min(n + new, int(most))
        return held, budget
    if isinstance(memory, TTL):
        # A use keeps its slot until the next use of it, or until it has been idle for too long.
        order = np.argsort(ids, kind="stable")
        again = np.full(len(ids), len(ids))
        same = ids[order[1:]] == ids[order[:-1]]
        again[order[:-1][same]] = order[1:][same]
        until = np.minimum(np.minimum(again, time + memory.idle + 1), len(ids))
        return np.cumsum(1.0 - np.bincount(until, minlength=len(ids) + 1)[:-1]), unlimited
    if isinstance(memory, Attention):
        return np.arange(1.0, len(ids) + 1), unlimited
    return np.full(len(ids), float(len(memory))), unlimited


def granted(policy: Concentration, opened: NDArray[np.bool_]) -> Floats:
    """The budget after each token, ``base + gain T`` (paper, eqs. 4 and 5), (L,)."""
    temperature, found = 0.0, np.empty(len(opened))
    for t, new in enumerate(opened.tolist()):
        temperature = (1 - policy.rate) * temperature + policy.rate * new
        found[t] = temperature
    return policy.base + policy.gain * found


def recall_at_cost(sizes: Sequence[Trace], ours: Trace) -> float:
    """Recall of a baseline at our slots per token, interpolated between its sizes on the stream."""
    points = sorted((MEASURES["per token"](t), MEASURES["recall"](t)) for t in sizes)
    costs, recalls = zip(*points, strict=True)
    return float(np.interp(MEASURES["per token"](ours), costs, recalls))


def compare(seeds: Sequence[int], repeats: int, progress: Progress) -> Traces:
    """A trace for every method, stream and seed."""
    runs = list(product(seeds, range(repeats), STREAMS))
    traces: dict[tuple[str, str], list[Trace]] = {}
    for done, (seed, repeat, stream) in enumerate(runs, start=1):
        phases = STREAMS[stream].draw(np.random.default_rng((seed, repeat)))
        for method in methods(stream):
            traces.setdefault((stream, method.name), []).append(evaluate(method.make(), phases))
        progress(done, len(runs))
    return traces


# Tables


def stream_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """A table per stream, a row per method in it."""

    def measures(found: Sequence[Trace]) -> Mapping[str, Measure]:
        return {name: measure(map(of, found), n_seeds) for name, of in MEASURES.items()}

    return tuple(
        Row(one.name, one.label, measures(traces[stream, one.name]), one.setting, one.role, stream)
        for stream in STREAMS
        for one in methods(stream)
    )


def swing_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """The adaptive budget at the ends of easy and of hard phases."""
    ours = traces["alternating", "surprise"]
    rows = []
    for name, first, task in (("easy", 0, EASY), ("hard", 1, HARD)):
        measures = {
            "budget": measure((t.at_ends(t.budget)[first::2].mean() for t in ours), n_seeds),
            "slots": measure((t.at_ends(t.slots)[first::2].mean() for t in ours), n_seeds),
        }
        label, setting = f"Budget after {task.n_items} items", f"{len(ours[0].ends) // 2} phases"
        rows.append(Row(name, label, measures, setting, "cache", "swing"))
    return tuple(rows)


def gain_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """Recall and slots of the adaptive budget less those of a fixed one, on the same streams."""
    rows = []
    for stream, (label, role) in GAINS.items():
        pairs = list(zip(traces[stream, "surprise"], traces[stream, "b18"], strict=True))
        measures = {
            name: measure(
                (MEASURES[of](ours) - MEASURES[of](theirs) for ours, theirs in pairs), n_seeds
            )
            for name, of in DIFFERENCES.items()
        }
        rows.append(Row(f"{stream}_b18", label, measures, f"tau {TAU}, B=18", role, "gain"))
    return tuple(rows)


def level_rows(traces: Traces, n_seeds: int) -> tuple[Row, ...]:
    """The gain on each family of baselines at the adaptive budget's own slots per token."""
    rows = []
    for stream, (family, prefix) in product(STREAMS, FAMILIES.items()):
        ours = traces[stream, "surprise"]
        sizes = family_sizes(stream, prefix)
        baselines = zip(*(traces[stream, f"{prefix}{size}"] for size in sizes), strict=True)
        theirs = [recall_at_cost(size, our) for size, our in zip(baselines, ours, strict=True)]
        recalls, slots = ([MEASURES[name](t) for t in ours] for name in ("recall", "per token"))
        measures = {
            "gain": measure(np.subtract(recalls, theirs), n_seeds),
            "adaptive": measure(recalls, n_seeds),
            "rival": measure(theirs, n_seeds),
            "per token": measure(slots, n_seeds),
        }
        label = f"Gain on {family}, {STREAM_LABELS[stream]}"
        setting = f"between {', '.join(map(str, sizes))}"
        rows.append(Row(f"{stream}_{family}", label, measures, setting, "added", "level"))
    return tuple(rows)


class RawNovelty(Rule):
    """The rule with the novelty of a token in place of whether it opened a slot, in eq. 4."""

    def write(self, key: Keys, value: object = None) -> int:
        """One token. The rule adds its own signal at the same rate; it is taken off beforehand."""
        found = min(novelty(key, self.keys)[0], 1.0)
        rate = self.concentration.rate
        self.temperature += rate / (1 - rate) * (found - (found > self.concentration.tau))
        return super().write(key, value)


def signal_rows(traces: Traces, seeds: Sequence[int], repeats: int) -> tuple[Row, ...]:
    """The adaptive budget by allocations, as in the paper, and by raw novelty, on its stream."""
    raw = []
    for seed, repeat in product(seeds, range(repeats)):
        phases = STREAMS["alternating"].draw(np.random.default_rng((seed, repeat)))
        raw.append(recall_of_rule(RawNovelty(RAW_POLICY), phases))
    ours = [
        (MEASURES["recall"](t), MEASURES["phase end"](t)) for t in traces["alternating", "surprise"]
    ]
    signals = {
        "allocations": ("Whether a slot opened", ours),
        "novelty": ("Raw novelty", raw),
        "gain": ("Allocations, not raw novelty", np.subtract(ours, raw)),
    }
    return tuple(
        Row(
            name,
            label,
            {
                measured: measure(numbers, len(seeds))
                for measured, numbers in zip(
                    ("recall", "phase end"), np.transpose(found), strict=True
                )
            },
            "",
            "paper" if name == "gain" else "added",
            "signal",
        )
        for name, (label, found) in signals.items()
    )


def recall_of_rule(rule: Rule, phases: Sequence[Episode]) -> tuple[float, float]:
    """Recall and slots at the ends of phases, of the reference written token by token."""
    found = []
    for phase in phases:
        for key, value in zip(unit(phase.keys).astype(np.float32), phase.values, strict=True):
            rule.write(key, value)
        keys, values = rule.keys, np.stack([slot.value for slot in rule.slots])
        answers = [
            read(query, keys, values, READ_THETA).argmax()
            for query in unit(phase.queries).astype(np.float32)
        ]
        found.append((float(np.mean(answers == phase.answers)), float(len(rule.slots))))
    recall, slots = np.mean(found, axis=0).tolist()
    return recall, slots


def family_sizes(stream: str, prefix: str) -> tuple[int, ...]:
    """The sizes of a family of baselines that run on a stream."""
    return {"b": BUDGETS[stream], "ttl": IDLES}[prefix]


def measure(numbers: Iterable[float], n_seeds: int) -> Measure:
    """A number per stream, seed after seed, as a mean and its spread over seeds.

    >>> measure([1.0, 2.0, 3.0, 4.0], n_seeds=2)
    Measure(mean=2.5, sd=1.41421356237, n=2)
    """
    return Measure.of(np.reshape([*numbers], (n_seeds, -1)).mean(axis=1).tolist())
