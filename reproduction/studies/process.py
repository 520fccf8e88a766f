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

from ..data import restaurant, zipf
from ..data.synthetic import Ints, occurrences
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude
from .study import FULL, Progress, Scale, silent

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
# Tokens of the process, at every scale: the slope of its last two decades is short of alpha by a
# third of a percent at alpha 20, and by 1.4 percent at a fifth of the tokens.
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
# Row, label, stream, tokens (None: all), role.
CASES: tuple[tuple[str, str, str, int | None, Role], ...] = (
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
    """Tables of the process for each alpha; then slots of the rule on each stream."""
    started = perf_counter()
    tables: dict[str, list[Floats]] = {f"alpha_{alpha}": [] for alpha in ALPHAS}
    slots: dict[str, list[Floats]] = {name: [] for name in STREAMS}
    seen: dict[str, list[Floats]] = {name: [] for name in STREAMS}
    for done, seed in enumerate(seeds, start=1):
        for alpha in ALPHAS:
            tables[f"alpha_{alpha}"].append(serve(seed, alpha, scale))
        for name in STREAMS:
            opened, distinct = write(seed, name, scale)
            slots[name].append(opened)
            seen[name].append(distinct)
        progress(done, len(seeds))
    rows = (*process_rows(tables), *rule_rows(slots, seen, scale))
    result = Result(
        study="process",
        title=TITLE,
        question=QUESTION,
        reading=reading({row.name: row.measures for row in rows}),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=lines(tables, slots, scale),
        headings=HEADINGS,
    )
    return conclude(result, perf_counter() - started)


def serve(seed: int, alpha: int, scale: Scale) -> Floats:
    """Tables after each point's number of tokens, the mean over runs."""
    rng, at = np.random.default_rng((seed, alpha)), points(GUESTS)
    runs = [counted(restaurant(rng, int(at[-1]), alpha), at) for _ in range(scale.of(RUNS))]
    mean: Floats = np.mean(runs, axis=0)
    return mean


def write(seed: int, name: str, scale: Scale) -> tuple[Floats, Floats]:
    """Slots that the rule has opened at each point of a stream, and distinct items it has seen."""
    rng, at = np.random.default_rng(seed), points(length(name, scale))
    items = STREAMS[name](rng, int(at[-1]))
    prototypes = unit(rng.standard_normal((int(items.max()) + 1, WIDTH)))
    ids = Cache(Concentration.fixed(TAU)).write(occurrences(rng, prototypes[items], NOISE))
    return counted(ids, at), counted(items, at)


def length(name: str, scale: Scale) -> int:
    """Tokens in a stream; only the one without repeats is costly, so only it is cut short."""
    return scale.of(TOKENS) if name == "isotropic" else TOKENS


def points(n_tokens: int) -> Ints:
    """Where slots are counted: eight times in a decade, the powers of ten among them.

    >>> points(20)
    array([ 1,  2,  3,  4,  6,  7, 10, 13, 18, 20])
    """
    below = 10 ** (np.arange(8 * np.log10(n_tokens)) / 8)
    return np.unique([*below.round().astype(np.int64), n_tokens])


def counted(names: Ints, at: Ints) -> Floats:
    """Distinct names among the first N tokens, for each N in ``at``.

    >>> counted(np.array([7, 7, 3, 7, 5]), np.array([1, 2, 4, 5]))
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


def rule_rows(slots: Found, seen: Found, scale: Scale) -> tuple[Row, ...]:
    """Slots beside distinct items, and slots per unit of ln N over the last decade."""
    rows = []
    for name, label, stream, n_tokens, role in CASES:
        at = points(length(stream, scale))
        upto = at <= (n_tokens or at[-1])
        measures = {
            "slots": Measure.of([counts[upto][-1] for counts in slots[stream]]),
            "distinct": Measure.of([counts[upto][-1] for counts in seen[stream]]),
            "slope": Measure.of([slope(at[upto], c[upto], decades=1) for c in slots[stream]]),
        }
        rows.append(Row(name, label, measures, f"N = {at[upto][-1]:,}, tau {TAU}", role, "rule"))
    return tuple(rows)


def lines(tables: Found, slots: Found, scale: Scale) -> tuple[Series, ...]:
    """Means over seeds: tables for each alpha and the law they follow, slots for each stream."""

    def line(name: str, label: str, at: Ints, counts: Floats) -> Series:
        return Series(name, label, tuple(at.astype(float)), tuple(counts.round(3).tolist()))

    at = points(GUESTS)
    made = []
    for alpha in ALPHAS:
        name, label = f"alpha_{alpha}", f"alpha {alpha}"
        made.append(line(name, label, at, np.mean(tables[name], axis=0)))
        made.append(line(f"law_{alpha}", "α ln(1 + N/α)", at, alpha * np.log1p(at / alpha)))
        made.append(line(f"log_{alpha}", "α ln N", at, alpha * np.log(at)))
    for stream, label in STREAM_LABELS.items():
        counts = np.mean(slots[stream], axis=0)
        made.append(line(stream, label, points(length(stream, scale)), counts))
    return tuple(made)


def reading(found: Mapping[str, Mapping[str, Measure]]) -> tuple[str, ...]:
    """What the numbers say, and what they do not."""
    slopes = ", ".join(f"{found[f'alpha_{alpha}']['slope'].mean:.2f}" for alpha in ALPHAS)
    level = found[f"alpha_{ALPHAS[-1]}"]
    types, tables, isotropic = (found[name] for name in ("types_10000", "tables", "isotropic"))
    return (
        f"The process has the slope that the paper gives it: {slopes} tables per unit of ln N, for "
        f"alpha {', '.join(map(str, ALPHAS))}. Its level is another: after {GUESTS:,} "
        f"tokens alpha {ALPHAS[-1]} has {level['tables'].mean:.0f} tables, where α ln(1 + N/α) is "
        f"{level['α ln(1 + N/α)'].mean:.0f} and α ln N {level['α ln N'].mean:.0f}.",
        f"On {TYPES} types the rule stops at {types['slots'].mean:.1f} slots, and on the way it "
        f"has one for each type seen so far: {found['types_100']['slots'].mean:.1f} of "
        f"{found['types_100']['distinct'].mean:.1f} after 100 tokens, "
        f"{found['types_1000']['slots'].mean:.1f} of {found['types_1000']['distinct'].mean:.1f} "
        "after 1,000.",
        f"On a stream drawn from the process it opens {tables['slots'].mean:.1f} slots for "
        f"{tables['distinct'].mean:.1f} tables: it counts what the stream contains.",
        "So the logarithm is the stream's, not the rule's. Where every token is a new direction, "
        f"the rule opens {isotropic['slots'].mean:,.0f} slots for "
        f"{isotropic['distinct'].mean:,.0f} tokens. A threshold has no rate of its own that falls "
        "with N, and nothing here makes tau an alpha.",
        "In 32 dimensions random directions are far apart, so items hardly ever merge by chance. "
        "The counts say nothing about keys that are alike.",
    )
