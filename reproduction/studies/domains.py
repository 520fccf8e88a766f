"""Four domains: does the cache hold as many slots as a real stream has distinct things?

Section "Real-data validation across four domains" of the paper. Movies, drugs and diagnosis codes
have random keys (``keyed``) and one threshold, tau .5; log lines are compared by their words
(``loglines``). The paper leaves open what "a fixed-budget eviction cache at a quarter of the
distinct count" evicts: we show the last tokens (recency), and the cache under such a budget, whose
least used slot leaves. Of drugs with several routes it does not say which one is asked for: table
"labels".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache, Memory
from distinctkv.policy import Concentration

from ..baselines import LFU, Attention, Recency
from ..data import Episode, Events, medical, movielens
from ..result import Measure, Result, Role, Row, Setting
from . import Progress
from .loglines import PARSER, RULES, SYSTEMS, log_rows
from .routes import ROUTES, label_rows
from .runner import FULL, Scale, absent, finish, mark_unmeasured, silent, sources
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
    "keyed": "The cache on them: slots, and recall of an item's class",
    "quarter": "A quarter of the slots: what an eviction cache recalls",
    "logs": "Log lines: grouping accuracy (GA)",
    "labels": "MIMIC-IV demo, where a drug may have several routes: which one is recalled",
}
COLUMNS = {
    "counts": ("events", "distinct", "redundancy"),
    "keyed": ("slots", "recall", "attention"),
    "quarter": ("budget", "last tokens", "least used leaves", "commonest class"),
}
TAU = 0.5
PAPER_RECALL = 0.99  # of drugs, in the paper's table
ASKED = 256  # items that attention is asked for, at most: it is slow over every event
# Row, label, set, stream, the class to recall, role.
DOMAINS: tuple[tuple[str, str, str, Callable[[], Events], str, Role], ...] = (
    ("movielens", "MovieLens, movies", "movielens", STREAMS["movielens"], "first genre", "paper"),
    ("mimic", "MIMIC-IV demo, drugs", "mimic", STREAMS["mimic"], "commonest route", "paper"),
    ("synpuf", "DE-SynPUF, diagnosis codes", "synpuf", STREAMS["synpuf"], "ICD-9 chapter", "paper"),
    (
        "genres",
        "MovieLens, genres",
        "movielens",
        lambda: movielens.load().coarse(),
        "the genre itself",
        "added",
    ),
    (
        "chapters",
        "MIMIC-IV demo, chapters",
        "mimic",
        lambda: medical.load_mimic().diagnoses.coarse(),
        "the chapter itself",
        "added",
    ),
)
Found = Mapping[tuple[str, str], Mapping[str, Measure]]  # measures by table and row
NEEDS = ("movielens", "mimic", "synpuf", *(f"loghub/{system}" for system in SYSTEMS))


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    rules = "; ".join(f"{label}: tau {tau:g}" for _, label, tau in RULES)
    return {
        "scale": scale.name,
        "data": sources(*NEEDS),
        "tau": TAU,
        "width": WIDTH,
        "noise": NOISE,
        "queries": f"every item once; attention is asked for {ASKED} of them",
        "budget_of_a_quarter": "distinct items / 4, rounded down",
        "least_used": "tau .3, decay .98",
        "log_lines": rules,
        "log_parser": PARSER,
        "seeds_used": f"{scale.part:.0%}, at least 3",
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every stream that is here with keys of each seed; then the logs, which have no seed."""
    missing = absent(*NEEDS)
    if len(missing) == len(NEEDS):
        return mark_unmeasured("domains", settings(scale), seeds, missing)
    started = perf_counter()
    used = used_seeds(seeds, scale)
    made: list[Row] = []
    for done, (name, label, needs, load, asked, role) in enumerate(DOMAINS, start=1):
        found = {} if needs in missing else measure(load(), used)
        lacks = needs if needs in missing else ""
        for table, setting in (("counts", ""), ("keyed", f"{asked}, tau {TAU}"), ("quarter", "")):
            made.append(Row(name, label, found.get(table, {}), setting, role, table, lacks))
        progress(done, len(DOMAINS) + 2)
    made += log_rows(missing, len(used))
    progress(len(DOMAINS) + 1, len(DOMAINS) + 2)
    made += label_rows("mimic" in missing, used, TAU)
    result = Result(
        study="domains",
        title=TITLE,
        question=QUESTION,
        reading=reading({(row.table, row.name): row.measures for row in made if row.measures}),
        rows=tuple(sorted(made, key=lambda row: list(HEADINGS).index(row.table))),
        settings=settings(scale),
        seeds=tuple(seeds),
        headings=HEADINGS,
        absent=missing,
    )
    return finish(result, perf_counter() - started)


def measure(events: Events, seeds: Sequence[int]) -> Mapping[str, Mapping[str, Measure]]:
    """What each table has of a stream."""
    n_distinct, quarter = events.n_distinct, max(1, events.n_distinct // 4)
    counts = {
        "events": len(events),
        "distinct": n_distinct,
        "redundancy": len(events) / n_distinct,
        "budget": quarter,
        "commonest class": np.bincount(most_common_label(events)).max() / n_distinct,
    }
    found: dict[str, list[float]] = {name: [number] * len(seeds) for name, number in counts.items()}
    for seed in seeds:
        episode = SyntheticKeys(events).draw(np.random.default_rng(seed))
        cache = Cache(Concentration.fixed(TAU))
        scores = {
            "recall": recall(cache, episode),
            "attention": recall(Attention(), sample(episode, seed)),
            "last tokens": recall(Recency(quarter), episode),
            "least used leaves": recall(LFU(quarter), episode),
        }
        for name, number in (scores | {"slots": len(cache)}).items():
            found.setdefault(name, []).append(number)
    means = {name: Measure.of(numbers) for name, numbers in found.items()}
    return {table: {name: means[name] for name in names} for table, names in COLUMNS.items()}


def recall(memory: Memory, episode: Episode) -> float:
    """The part of the queries that is answered right."""
    return float(correct_answers(memory, episode).mean())


def sample(episode: Episode, seed: int) -> Episode:
    """The episode with fewer queries."""
    n_items = len(episode.answers)
    chosen = np.random.default_rng(seed).permutation(n_items)[:ASKED]
    return Episode(
        episode.keys,
        episode.values,
        episode.items,
        episode.queries[chosen],
        episode.answers[chosen],
    )


def reading(found: Found) -> tuple[str, ...]:
    """What the numbers say of the streams that were here."""
    said = [_counted(found), _quartered(found), _parsed(found), _labelled(found)]
    return (
        *filter(None, said),
        "Order and popularity are real; the keys of movies, drugs and codes are random, so that "
        "recall there tests the counting and not whether like things have like keys. Only the log "
        "lines are compared as what they are.",
    )


def _counted(found: Found) -> str:
    parts = [
        f"{label} {one['slots'].mean:,.0f} slots for {of['distinct'].mean:,.0f} distinct and "
        f"{of['events'].mean:,.0f} events, recall {one['recall'].mean:.3f}"
        for name, label, *_ in DOMAINS
        if (one := found.get(("keyed", name))) and (of := found.get(("counts", name)))
    ]
    if not parts:
        return ""
    return (
        f"With one threshold, tau {TAU}: {'; '.join(parts)}. Study real_frontier has MovieLens at "
        "a looser one, .54. The paper's text has a sixty- to one-hundred-forty-fold reduction in "
        "each case; its table has 29 and 38."
    )


def _quartered(found: Found) -> str:
    one = found.get(("quarter", "synpuf"))
    if not one:
        return ""
    return (
        f"A quarter of the slots: on DE-SynPUF the last {one['budget'].mean:,.0f} codes recall "
        f"{one['last tokens'].mean:.3f}, and the cache with such a budget "
        f"{one['least used leaves'].mean:.3f}, where the paper has .30; who says the commonest "
        f"chapter is right in {one['commonest class'].mean:.3f}."
    )


def _parsed(found: Found) -> str:
    hdfs = {row: one for (table, row), one in found.items() if table == "logs" and "HDFS" in row}
    if not hdfs:
        return ""
    rules, (paper, *plain, ours) = (
        [label for _, label, _ in RULES],
        [
            f"GA {one['GA'].mean:.3f} with {one['templates'].mean:.0f} templates"
            for one in hdfs.values()
        ],
    )
    others = "; ".join(f"{label} {said}" for label, said in zip(rules[1:], plain, strict=True))
    return (
        f"On HDFS, where the paper has GA .89 with 15 templates, the bare rule has {paper} when it "
        f"compares {rules[0]} at a tau of {RULES[0][2]:g}, which was chosen with the truth in "
        f"view. At the tau of the other streams: {others}. Our LogParser, with one setting for "
        f"every system, has {ours}. Study logs has all systems."
    )


def _labelled(found: Found) -> str:
    rules = {name: found.get(("labels", name)) for name in ("first", "last", "counts", "attention")}
    single = found.get(("keyed", "mimic"))
    if not (single and all(rules.values())):
        return ""
    told = ", ".join(
        f"{name} {one['commonest route'].mean:.3f}" for name, one in rules.items() if one
    )
    reached = ", ".join(
        f"{name} for the {route}"
        for name, one in rules.items()
        for route in ROUTES
        if one and round(one[route].mean, 2) >= PAPER_RECALL
    )
    return (
        "A drug of MIMIC may have several routes, and the paper does not say which one it asks "
        f"for. For the commonest, slots and attention recall {told}. Its {PAPER_RECALL} is reached "
        f"by {reached or 'none of them'}. Where each drug has one route, as in the table above, "
        f"slots recall {single['recall'].mean:.3f} and attention {single['attention'].mean:.3f}."
    )
