"""How much the threshold matters on real streams, and how much the noise of the keys.

The paper (end of "Real-data validation") sweeps tau from .2 to .9 and means a similarity: a repeat
merges if its cosine to a slot is at least that. In its eq. 2, and in this library, tau is a
novelty: tau = 1 - similarity. Rows give both. Keys are those of ``synthetic_keys``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache
from distinctkv.policy import Concentration
from distinctkv.rule import Floats

from ..data import Events
from ..result import Measure, Result, Row, Series, Setting
from . import Progress
from .findings import paragraphs
from .runner import FEW_SEEDS, FULL, Scale, finish, mark_unmeasured, missing_data, silent, sources
from .sweep import comma_list, round5
from .synthetic_keys import (
    LABELS,
    NOISE,
    STREAMS,
    WIDTH,
    SyntheticKeys,
    correct_answers,
    used_seeds,
)

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
    "sentence": "The plateau in one line each, over all streams",
    "noise": f"Slots per distinct item at similarity {STRICT} (tau .1), first {HEAD:,} events",
}
RATIO = "slots / distinct"
MEASURES = ("slots", RATIO, "recall")
PLATEAU = (0.5, 0.6, 0.7, 0.8)  # where the paper says that nothing changes
# By stream: (seeds, similarities, measures) of `threshold_sweep`, (seeds, noises) of `noise_sweep`.
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
        "seeds_used": f"{scale.part:.0%}, at least 5; of the noises 3 in a quick run",
        "read_theta": 0.05,
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every threshold and every noise on each stream that is here."""
    missing = missing_data(*STREAMS)
    if len(missing) == len(STREAMS):
        return mark_unmeasured("tau", settings(scale), seeds, missing)
    started = perf_counter()
    streams = {name: load() for name, load in STREAMS.items() if name not in missing}
    used = used_seeds(seeds, scale)
    few = used if scale.part == 1 else used[:FEW_SEEDS]  # of the noises, which the paper has not
    swept: dict[str, Floats] = {}
    noisy: dict[str, Floats] = {}
    for done, (name, events) in enumerate(streams.items(), start=1):
        swept[name] = np.array([threshold_sweep(events, seed) for seed in used])
        progress(2 * done - 1, 2 * len(streams))
        noisy[name] = np.array([noise_sweep(events.head(HEAD), seed) for seed in few])
        progress(2 * done, 2 * len(streams))
    rows = (*threshold_rows(swept), *sentence_rows(swept), *noise_rows(noisy, len(few)))
    result = Result(
        study="tau",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("tau", rows, head=HEAD, **plateau(swept)),
        rows=rows,
        settings=settings(scale),
        seeds=tuple(seeds),
        series=tuple(lines(swept)),
        headings=HEADINGS,
        missing=missing,
    )
    return finish(result, perf_counter() - started)


def threshold_sweep(events: Events, seed: int) -> Floats:
    """Slots, slots per distinct item and recall at each similarity, on the same keys."""
    episode = SyntheticKeys(events).draw(np.random.default_rng(seed))
    found = []
    for similarity in SIMILARITIES:
        cache = Cache(Concentration.similar(similarity))
        recall = correct_answers(cache, episode).mean()
        found.append((len(cache), len(cache) / events.n_distinct, recall))
    return np.array(found, dtype=np.float64)


def noise_sweep(events: Events, seed: int) -> Floats:
    """Slots per distinct item at each noise, at the strict threshold."""
    found = []
    for noise in NOISES:
        episode = SyntheticKeys(events, noise).draw(np.random.default_rng(seed))
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
                missing="" if name in swept else name,
            )


def sentence_rows(swept: Found) -> Iterator[Row]:
    """What the paper says of the plateau and of what lies below it, of all streams at once."""
    missing = next((name for name in STREAMS if name not in swept), "")
    inside = [SIMILARITIES.index(similarity) for similarity in PLATEAU]
    below = slice(0, inside[0])
    numbers: dict[str, Floats] = {}
    if not missing:
        ratio, recall = (
            np.stack([swept[name][..., MEASURES.index(one)] for name in STREAMS])
            for one in (RATIO, "recall")
        )  # stream, seed, similarity
        lost = 1 - ratio[..., below]
        numbers = {
            "slots": np.abs(ratio[..., inside] - 1).max(axis=(0, 2)),
            "recall": recall[..., inside].min(axis=(0, 2)),
            "below": ratio[..., below].max(axis=(0, 2)),
            "proportion": (1 - recall[..., below]).sum(axis=(0, 2)) / lost.sum(axis=(0, 2)),
        }
    labels = {
        "slots": "Slots per item on the plateau: furthest from 1",
        "recall": "Recall on the plateau: least",
        "below": "Slots per item below it: most",
        "proportion": "Recall lost below it, for each slot per item lost",
    }
    for name, label in labels.items():
        measures = {"number": Measure.of(numbers[name].tolist())} if numbers else {}
        yield Row(name, label, measures, "", "paper", "sentence", missing)


def noise_rows(noisy: Found, n_seeds: int) -> Iterator[Row]:
    """A row for each noise, a column for each stream that is here."""
    for place, noise in enumerate(NOISES):
        cosine = Measure(round(1 / (1 + noise**2), 6), 0.0, n_seeds)
        ratios = {
            LABELS[name]: Measure.of(found[:, place].tolist()) for name, found in noisy.items()
        }
        name, label = f"n{round(100 * noise)}", f"Noise {noise:g}"
        yield Row(name, label, {"cosine of repeats": cosine} | ratios, "", "added", "noise")


def lines(swept: Found) -> Iterator[Series]:
    """Slots per distinct item against the similarity, the mean over seeds."""
    for name, found in swept.items():
        ratios = found[..., MEASURES.index(RATIO)]
        means, sds = ratios.mean(axis=0), ratios.std(axis=0, ddof=1)
        yield Series(f"slots.{name}", LABELS[name], SIMILARITIES, round5(means), round5(sds))


def plateau(swept: Found) -> Mapping[str, float]:
    """The fewest and the most slots per distinct item from similarity .6 to .8."""
    places = [SIMILARITIES.index(similarity) for similarity in PLATEAU[1:]]
    inside = [found[:, places, MEASURES.index(RATIO)].mean(axis=0) for found in swept.values()]
    return {"fewest": float(np.min(inside)), "most": float(np.max(inside))}
