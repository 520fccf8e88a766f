"""Is the rule a Dirichlet process? Slots against tokens, on streams whose growth is known.

The paper (section 2) says that, run as the underlying stochastic process, the slot count grows as
alpha ln N, and that on a finite set of types the rule stops at their number. It gives no settings.
Keys have 32 numbers, repeats a noise of .1, and tau is .3, as in study ``recall``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import Floats, unit

from ..data import Ints, occurrences, restaurant, zipf
from ..result import Measure, Result, Role, Row, Series, Setting
from . import Progress
from .findings import paragraphs
from .runner import FULL, Scale, finish, silent

TITLE = "Whether the rule is a Dirichlet process"
QUESTION = (
    "The tables of a Dirichlet process open at a rate that falls as 1/N, so that their number "
    "grows as alpha ln N. Do the slots of the cache, and on which streams?"
)
HEADINGS = {
    "process": "The process itself: tables of a Chinese restaurant, the mean of a seed's runs",
    "rule": "The rule: slots it opens, and distinct items it saw, on one stream a seed",
}
ALPHAS = (1, 5, 20)
# Tokens of the process, at every scale. Over its last two decades the slope is below alpha by .3
# percent at alpha 20; with a fifth of the tokens it would be 1.4 percent.
GUESTS = 100_000
RUNS = 100  # of the process, per seed
TOKENS = 10_000  # tokens of the rule's streams
TYPES = 64
WIDTH, NOISE, TAU = 32, 0.1, 0.3

# Which item each token is an occurrence of.
STREAMS: Mapping[str, Callable[[np.random.Generator, int], Ints]] = {
    "types": lambda rng, n_tokens: zipf(rng, n_tokens, TYPES),
    "tables": lambda rng, n_tokens: restaurant(rng, n_tokens, ALPHAS[1]),
    "isotropic": lambda _, n_tokens: np.arange(n_tokens),
}
STREAM_LABELS = {
    "types": f"{TYPES} Zipf types",
    "tables": f"Tables, alpha {ALPHAS[1]}",
    "isotropic": "Nothing repeats",
}
# Name, label, stream, tokens (None: all), role.
RULE_ROWS: tuple[tuple[str, str, str, int | None, Role], ...] = (
    ("types_100", f"{TYPES} types after 100 tokens", "types", 100, "added"),
    ("types_1000", f"{TYPES} types after 1,000", "types", 1000, "added"),
    ("types_10000", f"{TYPES} types after 10,000", "types", TOKENS, "cache"),
    ("tables", STREAM_LABELS["tables"], "tables", None, "added"),
    ("isotropic", STREAM_LABELS["isotropic"], "isotropic", None, "added"),
)
Found = Mapping[str, Sequence[Floats]]  # counts at each point, a list of seeds by name


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "alpha": ", ".join(map(str, ALPHAS)),
        "tokens_of_the_process": GUESTS,
        "runs_per_seed": scale.of(RUNS),
        "tokens_of_the_streams": TOKENS,
        "tokens_without_repeats": scale.of(TOKENS),
        "types": TYPES,
        "width": WIDTH,
        "noise": NOISE,
        "tau": TAU,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Count tables of the process for each alpha, and slots of the rule on each stream."""
    started = perf_counter()
    tables: dict[str, list[Floats]] = {f"alpha_{alpha}": [] for alpha in ALPHAS}
    slots: dict[str, list[Floats]] = {name: [] for name in STREAMS}
    distinct: dict[str, list[Floats]] = {name: [] for name in STREAMS}
    for done, seed in enumerate(seeds, start=1):
        for alpha in ALPHAS:
            tables[f"alpha_{alpha}"].append(process_tables(seed, alpha, scale))
        for name in STREAMS:
            n_slots, n_distinct = rule_slots(seed, name, scale)
            slots[name].append(n_slots)
            distinct[name].append(n_distinct)
        progress(done, len(seeds))
    rows = (*process_rows(tables), *rule_rows(slots, distinct, scale))
    result = Result(
        study="process",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("process", rows, guests=GUESTS, types=TYPES),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=lines(tables, slots, scale),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


def process_tables(seed: int, alpha: int, scale: Scale) -> Floats:
    """Tables after each point's number of tokens, the mean over runs."""
    rng, at = np.random.default_rng((seed, alpha)), points(GUESTS)
    runs = [distinct_at(restaurant(rng, int(at[-1]), alpha), at) for _ in range(scale.of(RUNS))]
    mean: Floats = np.mean(runs, axis=0)
    return mean


def rule_slots(seed: int, name: str, scale: Scale) -> tuple[Floats, Floats]:
    """Slots of the rule and distinct items, at each point of a stream."""
    rng, at = np.random.default_rng(seed), points(stream_length(name, scale))
    items = STREAMS[name](rng, int(at[-1]))
    prototypes = unit(rng.standard_normal((int(items.max()) + 1, WIDTH)))
    ids = Cache(Concentration.fixed(TAU)).write(occurrences(rng, prototypes[items], NOISE))
    return distinct_at(ids, at), distinct_at(items, at)


def stream_length(name: str, scale: Scale) -> int:
    """Tokens in a stream; the one without repeats is slow, and shorter in a quick run."""
    return scale.of(TOKENS) if name == "isotropic" else TOKENS


def points(n_tokens: int) -> Ints:
    """Where slots are counted: eight points per decade, among them the powers of ten.

    >>> points(20)
    array([ 1,  2,  3,  4,  6,  7, 10, 13, 18, 20])
    """
    below = 10 ** (np.arange(8 * np.log10(n_tokens)) / 8)
    return np.unique([*below.round().astype(np.int64), n_tokens])


def distinct_at(names: Ints, at: Ints) -> Floats:
    """Distinct names among the first N tokens, for each N in ``at``.

    >>> distinct_at(np.array([7, 7, 3, 7, 5]), np.array([1, 2, 4, 5]))
    array([1., 1., 2., 3.])
    """
    first = np.sort(np.unique(names, return_index=True)[1])
    return np.searchsorted(first, at).astype(np.float64)


def slope(at: Ints, counts: Floats, decades: int) -> float:
    """Slots per unit of ln N over the last ``decades``, by least squares.

    >>> at = points(1000)
    >>> round(slope(at, 5 * np.log(at), decades=2), 6)
    5.0
    """
    late = at * 10**decades >= at[-1]
    return float(np.polyfit(np.log(at[late]), counts[late], 1)[0])


def process_rows(tables: Found) -> tuple[Row, ...]:
    """Slope and level for each alpha, beside the two formulas for the level."""
    at = points(GUESTS)
    rows = []
    for alpha in ALPHAS:
        found = tables[f"alpha_{alpha}"]
        slopes = [slope(at, counts, decades=2) for counts in found]
        measures = {
            "slope": Measure.of(slopes),
            "slope / alpha": Measure.of([one / alpha for one in slopes]),
            "tables": Measure.of([counts[-1] for counts in found]),
            "α ln(1 + N/α)": Measure(alpha * log(1 + GUESTS / alpha), 0.0, len(found)),
            "α ln N": Measure(alpha * log(GUESTS), 0.0, len(found)),
        }
        setting = f"N = {GUESTS:,}, slope over the last two decades"
        rows.append(
            Row(f"alpha_{alpha}", f"Process, alpha {alpha}", measures, setting, "paper", "process")
        )
    return tuple(rows)


def rule_rows(slots: Found, distinct: Found, scale: Scale) -> tuple[Row, ...]:
    """Slots beside distinct items, and slots per unit of ln N over the last decade."""
    rows = []
    for name, label, stream, n_tokens, role in RULE_ROWS:
        at = points(stream_length(stream, scale))
        upto = at <= (n_tokens or at[-1])
        measures = {
            "slots": Measure.of([counts[upto][-1] for counts in slots[stream]]),
            "distinct": Measure.of([counts[upto][-1] for counts in distinct[stream]]),
            "slope": Measure.of([slope(at[upto], c[upto], decades=1) for c in slots[stream]]),
        }
        rows.append(Row(name, label, measures, f"N = {at[upto][-1]:,}, tau {TAU}", role, "rule"))
    return tuple(rows)


def lines(tables: Found, slots: Found, scale: Scale) -> tuple[Series, ...]:
    """Means over seeds: tables for each alpha, and slots for each stream."""

    def line(name: str, label: str, at: Ints, counts: Floats) -> Series:
        return Series(name, label, tuple(at.astype(float)), tuple(counts.round(3).tolist()))

    at = points(GUESTS)
    made = []
    for alpha in ALPHAS:
        name, label = f"alpha_{alpha}", f"alpha {alpha}"
        made.append(line(name, label, at, np.mean(tables[name], axis=0)))
    for stream, label in STREAM_LABELS.items():
        counts = np.mean(slots[stream], axis=0)
        made.append(line(stream, label, points(stream_length(stream, scale)), counts))
    return tuple(made)
