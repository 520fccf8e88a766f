"""How much the threshold matters on real streams, and how much the noise of the keys.

The paper (end of "Real-data validation") sweeps tau from .2 to .9 and means by it a similarity: a
repeat merges if its cosine to a slot is at least that. Its eq. 2, and this package, mean novelty:
tau = 1 - similarity. Rows give both. Keys are those of ``keyed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import Floats

from ..data import Events
from .keyed import LABELS, NOISE, STREAMS, WIDTH, Keyed, answered, few
from .result import Measure, Result, Row, Series, Setting
from .shelf import conclude, unmeasured
from .study import FULL, Progress, Scale, absent, silent, sources
from .sweep import comma_list

TITLE = "How much the threshold matters"
QUESTION = (
    "A threshold has to lie between how alike repeats are and how alike different items are. On "
    "three real streams, how wide is the range that serves, and what happens beside it?"
)
SIMILARITIES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NOISES = (0.2, 0.25, 0.28, 0.3, 0.32, 0.35)
STRICT = 0.9  # the similarity at which the noise is turned up
HEAD = 30_000  # events of each stream for the noises
HEADINGS = {name: f"{label}, noise {NOISE}" for name, label in LABELS.items()} | {
    "noise": f"Slots per distinct item at similarity {STRICT} (tau .1), first {HEAD:,} events"
}
RATIO = "slots / distinct"
MEASURES = ("slots", RATIO, "recall")
PLATEAU = (0.5, 0.6, 0.7, 0.8)  # where the paper says that nothing changes
# By stream: what `sweep` (seeds, similarities, measures) or `crowd` (seeds, noises) found.
Found = Mapping[str, Floats]


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "data": sources(*STREAMS),
        "similarity": comma_list(SIMILARITIES),
        "tau": "1 - similarity",
        "width": WIDTH,
        "noise": NOISE,
        "noises": comma_list(NOISES),
        "events_for_the_noises": HEAD,
        "queries": "every item once",
        "label_of_a_drug": "its commonest route",
        "seeds_used": f"{scale.part:.0%}, at least 3",
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every threshold and every noise on each stream that is here."""
    missing = absent(*STREAMS)
    if len(missing) == len(STREAMS):
        return unmeasured("tau", settings(scale), seeds, missing)
    started = perf_counter()
    streams = {name: load() for name, load in STREAMS.items() if name not in missing}
    used = few(seeds, scale)
    swept: dict[str, Floats] = {}
    noisy: dict[str, Floats] = {}
    for done, (name, events) in enumerate(streams.items(), start=1):
        swept[name] = np.array([sweep(events, seed) for seed in used])
        progress(2 * done - 1, 2 * len(streams))
        noisy[name] = np.array([crowd(events.head(HEAD), seed) for seed in used])
        progress(2 * done, 2 * len(streams))
    result = Result(
        study="tau",
        title=TITLE,
        question=QUESTION,
        reading=reading(swept, noisy),
        rows=(*threshold_rows(swept), *noise_rows(noisy, len(used))),
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(lines(swept, noisy)),
        headings=HEADINGS,
        absent=missing,
    )
    return conclude(result, perf_counter() - started)


def sweep(events: Events, seed: int) -> Floats:
    """Slots, slots per distinct item and recall at each similarity, on the same keys."""
    episode = Keyed(events).draw(np.random.default_rng(seed))
    found = []
    for similarity in SIMILARITIES:
        cache = Cache(Concentration.similar(similarity))
        recall = answered(cache, episode).mean()
        found.append((len(cache), len(cache) / events.n_distinct, recall))
    return np.array(found, dtype=np.float64)


def crowd(events: Events, seed: int) -> Floats:
    """Slots per distinct item at each noise, under a threshold that is strict."""
    found = []
    for noise in NOISES:
        episode = Keyed(events, noise).draw(np.random.default_rng(seed))
        cache = Cache(Concentration.similar(STRICT))
        cache.write(episode.keys)
        found.append(len(cache) / events.n_distinct)
    return np.array(found)


def threshold_rows(swept: Found) -> Iterator[Row]:
    """A table for each stream, a row for each threshold."""
    for name in STREAMS:
        for place, similarity in enumerate(SIMILARITIES):
            columns = swept[name][:, place].T.tolist() if name in swept else []
            yield Row(
                name=f"s{round(100 * similarity)}",
                label=f"Similarity {similarity:g}, tau {round(1 - similarity, 2):g}",
                measures={
                    measure: Measure.of(numbers)
                    for measure, numbers in zip(MEASURES, columns, strict=False)
                },
                setting="",
                role="paper" if similarity in (*PLATEAU, STRICT) else "added",
                table=name,
                absent="" if name in swept else name,
            )


def noise_rows(noisy: Found, n_seeds: int) -> Iterator[Row]:
    """A row for each noise, a column for each stream that is here."""
    for place, noise in enumerate(NOISES):
        cosine = Measure(round(1 / (1 + noise**2), 6), 0.0, n_seeds)
        ratios = {
            LABELS[name]: Measure.of(found[:, place].tolist()) for name, found in noisy.items()
        }
        name, label = f"n{round(100 * noise)}", f"Noise {noise:g}"
        yield Row(name, label, {"cosine of repeats": cosine} | ratios, "", "added", "noise")


def lines(swept: Found, noisy: Found) -> Iterator[Series]:
    """Means over seeds for the figures."""

    def line(kind: str, name: str, at: Sequence[float], found: Floats) -> Series:
        means, sds = found.mean(axis=0), found.std(axis=0, ddof=1)
        rounded = (tuple(numbers.round(5).tolist()) for numbers in (means, sds))
        return Series(f"{kind}.{name}", LABELS[name], tuple(at), *rounded)

    for name in swept:
        yield line("recall", name, SIMILARITIES, swept[name][..., 2])
        yield line("slots", name, SIMILARITIES, swept[name][..., 1])
        yield line("noise", name, NOISES, noisy[name])


def reading(swept: Found, noisy: Found) -> tuple[str, ...]:
    """What the numbers say of the streams that were here."""

    def each(similarity: float, measure: str) -> str:
        at = SIMILARITIES.index(similarity), MEASURES.index(measure)
        return ", ".join(
            f"{LABELS[name]} {found[:, at[0], at[1]].mean():.3f}" for name, found in swept.items()
        )

    places = [SIMILARITIES.index(similarity) for similarity in PLATEAU[1:]]
    inside = [found[:, places, 1].mean(axis=0) for found in swept.values()]

    def crowded(noise: float) -> str:
        place = NOISES.index(noise)
        return ", ".join(f"{found[:, place].mean():.2f}" for found in noisy.values())

    return (
        "The paper's threshold here is a similarity s, that of its eq. 2 a novelty, tau = 1 - s; "
        "they agree only at .5.",
        f"From s = {PLATEAU[1]} to {PLATEAU[-1]} slots per distinct item lie between "
        f"{np.min(inside):.3f} and {np.max(inside):.3f}. At .5 they are {each(0.5, RATIO)}; less "
        "than 1 is where different items share a slot. "
        f"Recall at .5: {each(0.5, 'recall')}; at .4: {each(0.4, 'recall')}.",
        f"At .9 slots per distinct item are {each(0.9, RATIO)}, recall {each(0.9, 'recall')}, with "
        f"noise {NOISE}, at which two occurrences have an expected cosine of "
        f"{1 / (1 + NOISE**2):.3f}. "
        f"On the first {HEAD:,} events ({', '.join(LABELS[name] for name in noisy)}) noise .25 "
        f"opens {crowded(0.25)} slots per distinct item, .28 {crowded(0.28)}, .3 {crowded(0.3)}, "
        f".32 {crowded(0.32)} and .35 {crowded(0.35)}.",
        f"These ranges are those of random keys in {WIDTH} dimensions with this noise. They say "
        "nothing about the threshold of an encoder. Log lines, the one stream that is compared as "
        "it is, are in studies domains and logs.",
    )
