"""Four domains: does the cache hold as many slots as a real stream has distinct things?

Section "Real-data validation across four domains" of the paper. Movies, drugs and diagnosis codes
have random keys (``synthetic_keys``) and one threshold, tau .5. Log lines are compared by their
words with the bare rule, beside the log parser; study ``logs`` has more thresholds and all systems.

The paper leaves open what "a fixed-budget eviction cache at a quarter of the distinct count"
evicts: we show the last tokens (recency), and the cache under such a budget, whose least used slot
is evicted. Of drugs with several routes it does not say which route is asked for: table "labels"
has the policies for the value of a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple, cast

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration, Merge, ValuePolicy

from ..baselines import LFU, Attention, Recency
from ..data import Episode, Events, Ints, loghub, medical, movielens
from ..data.loghub import Log
from ..result import Measure, Result, Role, Row, Setting
from . import Progress
from .findings import paragraphs
from .log_parsers import PAPER_TAU, SIMILARITIES, parse, score
from .runner import FULL, Scale, finish, mark_unmeasured, missing_data, silent, sources
from .synthetic_keys import (
    NOISE,
    STREAMS,
    WIDTH,
    SyntheticKeys,
    correct_answers,
    most_common_label,
    used_seeds,
)

TITLE = "Four domains"
QUESTION = (
    "On streams of movies, log lines, drugs and diagnosis codes, does the cache open a slot for "
    "each distinct thing and no more, and does it answer as well as attention over every event?"
)
HEADINGS = {
    "counts": "Streams whose items have random keys",
    "reduction": "The least reduction of all domains",
    "keyed": "The cache on them: slots, and recall of an item's class",
    "quarter": "A quarter of the slots: what an eviction cache recalls",
    "logs": "Log lines: grouping accuracy (GA)",
    "labels": "MIMIC-IV demo, where a drug may have several routes: which one is recalled",
}
COLUMNS = {
    "counts": ("events", "distinct", "redundancy", "most frequent"),
    "keyed": ("slots", "slots / distinct", "recall", "attention"),
    "quarter": ("budget", "last tokens", "least used leaves", "commonest class", "above chance"),
}
TAU = 0.5
MAX_QUERIES = 256  # of attention, which is slow over every event


class Domain(NamedTuple):
    """A stream whose items get synthetic keys."""

    name: str
    label: str
    data: str  # as `python -m reproduction.data get` takes it
    load: Callable[[], Events]
    target: str  # the class to recall
    role: Role


DOMAINS = (
    Domain(
        "movielens",
        "MovieLens, movies",
        "movielens",
        STREAMS["movielens"],
        "first genre",
        "paper",
    ),
    Domain("mimic", "MIMIC-IV demo, drugs", "mimic", STREAMS["mimic"], "commonest route", "paper"),
    Domain(
        "synpuf",
        "DE-SynPUF, diagnosis codes",
        "synpuf",
        STREAMS["synpuf"],
        "ICD-9 chapter",
        "paper",
    ),
    Domain(
        "genres",
        "MovieLens, genres",
        "movielens",
        lambda: movielens.load().coarse(),
        "the genre itself",
        "added",
    ),
    Domain(
        "chapters",
        "MIMIC-IV demo, chapters",
        "mimic",
        lambda: medical.load_mimic().diagnoses.coarse(),
        "the chapter itself",
        "added",
    ),
)
SYSTEMS = ("HDFS", "BGL")
# Similarity, its label, tau. The paper's numbers appear at the first, which was chosen by looking
# at the truth; .5 is the tau of the other streams.
RULES: tuple[tuple[str, str, float], ...] = (
    ("numbers_alike", "equal words, digits alike", PAPER_TAU),
    ("numbers_alike", "equal words, digits alike", TAU),
    ("in_place", "equal words", TAU),
    ("bags", "bags of words", TAU),
)
PARSER = "one setting for all systems"
NEEDS = ("movielens", "mimic", "synpuf", *(f"loghub/{system}" for system in SYSTEMS))
LABEL_POLICIES: Mapping[str, tuple[str, str]] = {
    "first": ("Slots keep the first route", "Merge(value='first'), the paper's"),
    "last": ("Slots keep the last route", "Merge(value='last')"),
    "counts": ("Slots count routes", "Merge(value='counts'), the commonest answers"),
    "attention": ("Attention", "every event"),
}
ROUTES = ("first route", "last route", "commonest route")


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "data": sources(*NEEDS),
        "tau": TAU,
        "width": WIDTH,
        "noise": NOISE,
        "queries": f"every item once; attention is asked for {MAX_QUERIES} of them",
        "budget_of_a_quarter": "distinct items / 4, rounded down",
        "least_used": "tau .3, decay .98",
        "log_lines": "; ".join(f"{label}: tau {tau:g}" for _, label, tau in RULES),
        "log_parser": PARSER,
        "seeds_used": f"{scale.part:.0%}, at least 5",
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every stream that is here with keys of each seed; then the logs, which have no seed."""
    missing = missing_data(*NEEDS)
    if len(missing) == len(NEEDS):
        return mark_unmeasured("domains", settings(scale), seeds, missing)
    started = perf_counter()
    used = used_seeds(seeds, scale)
    rows: list[Row] = []
    for done, domain in enumerate(DOMAINS, start=1):
        rows += domain_rows(domain, missing, used)
        progress(done, len(DOMAINS) + 2)
    rows += log_rows(missing, len(used))
    rows += [reduction_row(rows)]
    progress(len(DOMAINS) + 1, len(DOMAINS) + 2)
    rows += label_rows(missing, used)
    result = Result(
        study="domains",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("domains", rows),
        rows=tuple(sorted(rows, key=lambda row: list(HEADINGS).index(row.table))),
        settings=settings(scale),
        seeds=tuple(seeds),
        headings=HEADINGS,
        missing=missing,
    )
    return finish(result, perf_counter() - started)


# Streams with synthetic keys


def domain_rows(domain: Domain, missing: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """A row in each table; without measures if the data is not here."""
    lacks = domain.data if domain.data in missing else ""
    found = {} if lacks else measure(domain.load(), seeds)
    for table, columns in COLUMNS.items():
        setting = f"{domain.target}, tau {TAU}" if table == "keyed" else ""
        measures = {} if lacks else {name: found[name] for name in columns}
        yield Row(domain.name, domain.label, measures, setting, domain.role, table, lacks)


def measure(events: Events, seeds: Sequence[int]) -> Mapping[str, Measure]:
    """All columns for a stream."""
    n_distinct, quarter = events.n_distinct, max(1, events.n_distinct // 4)
    counts = {
        "events": len(events),
        "distinct": n_distinct,
        "redundancy": len(events) / n_distinct,
        "most frequent": int(np.bincount(events.items).max()),
        "budget": quarter,
        "commonest class": np.bincount(most_common_label(events)).max() / n_distinct,
    }
    found: dict[str, list[float]] = {name: [number] * len(seeds) for name, number in counts.items()}
    for seed in seeds:
        episode = SyntheticKeys(events).draw(np.random.default_rng(seed))
        cache = Cache(Concentration.fixed(TAU))
        scores = {
            "recall": recall(cache, episode),
            "attention": recall(Attention(), some_queries(episode, seed)),
            "last tokens": recall(Recency(quarter), episode),
            "least used leaves": recall(LFU(quarter), episode),
            "slots": len(cache),
            "slots / distinct": len(cache) / n_distinct,
        }
        # Of the way from naming the commonest class to attention, what the last tokens recall.
        chance = counts["commonest class"]
        scores["above chance"] = (scores["last tokens"] - chance) / (scores["attention"] - chance)
        for name, number in scores.items():
            found.setdefault(name, []).append(number)
    return {name: Measure.of(numbers) for name, numbers in found.items()}


def recall(memory: Memory, episode: Episode) -> float:
    """The part of the queries that is answered correctly."""
    return float(correct_answers(memory, episode).mean())


def some_queries(episode: Episode, seed: int) -> Episode:
    """The episode with at most `MAX_QUERIES` of its queries."""
    order = np.random.default_rng(seed).permutation(len(episode.answers))[:MAX_QUERIES]
    return replace(episode, queries=episode.queries[order], answers=episode.answers[order])


# Log lines; nothing here depends on a seed


def log_rows(missing: Sequence[str], n_seeds: int) -> Iterator[Row]:
    """Each system by the bare rule and by the log parser."""
    for system in SYSTEMS:
        lacks = f"loghub/{system}" if f"loghub/{system}" in missing else ""
        log = None if lacks else loghub.load(system)
        for rule, words, tau in RULES:
            role: Role = "paper" if (system, tau) == ("HDFS", PAPER_TAU) else "added"
            measures = measure_log(log, SIMILARITIES[rule](log.lines, tau), n_seeds) if log else {}
            name = f"{system}_{rule}_{round(100 * tau)}"
            setting = f"tau {tau:g}, similarity {round(1 - tau, 2):g}"
            yield Row(name, f"{system}, {words}", measures, setting, role, "logs", lacks)
        measures = measure_log(log, parse(log.lines)[0], n_seeds) if log else {}
        label = f"{system}, LogParser (ours)"
        yield Row(f"{system}_parser", label, measures, PARSER, "cache", "logs", lacks)


def measure_log(log: Log, groups: Sequence[Hashable], n_seeds: int) -> Mapping[str, Measure]:
    """Grouping accuracy, and the number of groups."""
    found = score(groups, log.templates, log.event_ids, log.templates)
    numbers = {
        "lines": len(log),
        "distinct": found.true,
        "redundancy": len(log) / found.true,
        "templates": found.found,
        "GA": found.ga,
    }
    return {name: Measure(float(number), 0.0, n_seeds) for name, number in numbers.items()}


def reduction_row(rows: Sequence[Row]) -> Row:
    """The least redundancy of the paper's four domains."""
    named = [row for row in rows if row.table in ("counts", "logs") and row.role == "paper"]
    lacks = next((row.missing for row in named if row.missing), "")
    least = min((row.measures for row in named if row.measures), key=_redundancy, default={})
    measures = {} if lacks else {"redundancy": least["redundancy"]}
    return Row("least", "Of four domains", measures, "", "paper", "reduction", lacks)


def _redundancy(measures: Mapping[str, Measure]) -> float:
    return measures["redundancy"].mean


# Drugs with several routes: which one a slot answers with


def label_rows(missing: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """How often the answer of each policy is a drug's first, last and most common route."""
    lacks = "mimic" if "mimic" in missing else ""
    found: dict[str, list[list[float]]] = {policy: [] for policy in LABEL_POLICIES}
    if not lacks:
        events = medical.load_mimic().prescriptions
        for seed in seeds:
            episode = SyntheticKeys(events).draw(np.random.default_rng(seed))
            for policy in LABEL_POLICIES:
                answers = answer(events, episode, policy)
                truths = first_last_commonest(events)
                found[policy].append([float((answers == truth).mean()) for truth in truths])
    for policy, (label, setting) in LABEL_POLICIES.items():
        columns = zip(ROUTES, zip(*found[policy], strict=True), strict=not lacks)
        measures = {name: Measure.of(scores) for name, scores in columns}
        yield Row(policy, label, measures, setting, "added", "labels", lacks)


def answer(events: Events, episode: Episode, policy: str) -> Ints:
    """The route that a policy answers for each drug."""
    if policy == "attention":
        attention = Attention()
        attention.write(episode.keys, episode.values)
        found: Ints = attention.read(episode.queries).argmax(axis=1)
        return found
    cache = Cache(Concentration.fixed(TAU), merge=Merge(value=cast(ValuePolicy, policy)))
    cache.write(episode.keys, events.labels)
    return cache.read(episode.queries)


def first_last_commonest(events: Events) -> tuple[Ints, Ints, Ints]:
    """The first, the last and the most common label of each item.

    >>> items, labels = np.array([0, 0, 0]), np.array([2, 1, 1])
    >>> first_last_commonest(Events(items, labels, np.arange(3), ("sky",), tuple("abc"), ""))
    (array([2]), array([1]), array([1]))
    """
    first = np.unique(events.items, return_index=True)[1]
    last = len(events) - 1 - np.unique(events.items[::-1], return_index=True)[1]
    return events.labels[first], events.labels[last], most_common_label(events)
