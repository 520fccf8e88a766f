"""Ours, beyond the paper: streams that strain the rule, and the settings that bear it.

Each strain (`strains.STRAINS`) changes one thing about the paper's recall stream and turns it up.
All settings meet the same streams, and every item is asked for once. The setting to choose for a
stream holds the fewest slots of those whose recall is within a hundredth of the best; "safe", which
changes several things at once, and attention over every token are there to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import perf_counter

import numpy as np

from distinctkv.cache import Cache, Memory

from ..data import Episode
from .advice import Found, Place, choose, reading
from .result import Measure, Result, Role, Row, Series, Setting
from .shelf import conclude
from .strains import MEANT, PLAIN, SAFE, STRAINS, TASK, TAUS, Strain, at_tau
from .study import FULL, Progress, Scale, silent

TITLE = "What strains the rule, and which settings bear it"
QUESTION = (
    "The paper's stream is kind: items far apart, little noise, nothing that changes. What happens "
    "when keys are alike, repeats are noisy, items drift, values change or are wrong, or items are "
    "many, and which settings help?"
)
EPISODES = 15
HEADINGS = {"choice": "What to choose where the strain is greatest"} | {
    strain.name: strain.heading for strain in STRAINS
}


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "episodes": scale.of(EPISODES),
        **asdict(TASK),
        **MEANT,
        "seeds_for_many_items": f"{scale.part:.0%}, at least 2",
        "read_theta": 0.05,
        "clock": "wall, BLAS with its own threads",
    }


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Every setting of every strain on the same streams."""
    started = perf_counter()
    few = max(2, scale.of(len(seeds)))
    steps = [
        (strain, number, seed)
        for strain in STRAINS
        for number in strain.streams
        for seed in (seeds[:few] if strain.heavy else seeds)
    ]
    scores: dict[Place, list[Sequence[float]]] = {}
    for done, (strain, number, seed) in enumerate(steps, start=1):
        n_episodes = 1 if strain.heavy else scale.of(EPISODES)
        for setting, score in measure(strain, number, seed, n_episodes).items():
            scores.setdefault((strain.name, number, setting), []).append(score)
        progress(done, len(steps))
    found = {
        (strain.name, number, setting): {
            name: Measure.of([score[i] for score in scores[strain.name, number, setting]])
            for i, name in enumerate(strain.measures)
        }
        for strain in STRAINS
        for number in strain.streams
        for setting in strain.settings
    }
    result = Result(
        study="stress",
        title=TITLE,
        question=QUESTION,
        reading=reading(found),
        rows=(*_choices(found), *_rows(found)),
        settings=settings(scale),
        seeds=tuple(seeds),
        series=_series(found),
        headings=HEADINGS,
    )
    return conclude(result, perf_counter() - started)


def measure(
    strain: Strain, number: float, seed: int, n_episodes: int
) -> Mapping[str, Sequence[float]]:
    """Recall, slots per item, bytes and tokens per second of each setting, over some episodes."""
    totals = {setting: np.zeros(4) for setting in strain.settings}
    for j in range(n_episodes):
        episode = strain.streams[number](np.random.default_rng((seed, j)))
        for setting, make in strain.settings.items():
            totals[setting] += trial(make(), episode)
    return {setting: (total / n_episodes).tolist() for setting, total in totals.items()}


def trial(memory: Memory, episode: Episode) -> tuple[float, float, int, float]:
    """Write the stream, ask the queries: recall, slots per item, bytes, tokens per second."""
    counts = isinstance(memory, Cache) and memory.merge.value == "counts"
    values = episode.values.argmax(axis=1) if counts else episode.values
    started = perf_counter()
    memory.write(episode.keys, values)
    seconds = perf_counter() - started
    answers = np.asarray(memory.read(episode.queries))
    answers = answers if counts else answers.argmax(axis=1)
    n_items = len(np.unique(episode.items))
    recall = float((answers == episode.answers).mean())
    return recall, len(memory) / n_items, memory.nbytes, len(episode.items) / seconds


def _choices(found: Found) -> tuple[Row, ...]:
    """Plain, safe and the setting to choose, where the strain is greatest."""
    rows = []
    for strain in STRAINS:
        if SAFE not in strain.settings:
            continue
        chosen = choose(found, strain, strain.hardest)
        measures = {
            f"{words} {name}": found[strain.name, strain.hardest, setting][measure]
            for measure, name in (("recall", "recall"), ("slots/item", "slots"))
            for words, setting in ((PLAIN, PLAIN), (SAFE, SAFE), ("chosen", chosen))
        }
        label = strain.label(strain.hardest)
        if not label.startswith(strain.name):
            label = f"{strain.name}: {label}"
        rows.append(Row(strain.name, label, measures, chosen, "added", "choice"))
    return tuple(rows)


def _rows(found: Found) -> tuple[Row, ...]:
    """A row for each stream and setting; the one to choose stands out."""
    rows = []
    for strain in STRAINS:
        for number in strain.streams:
            chosen = choose(found, strain, number)
            for setting in strain.settings:
                measures = found[strain.name, number, setting]
                role: Role = "cache" if setting == chosen else "added"
                name = f"{strain.label(number)}, {setting}"
                rows.append(Row(name, name, measures, "", role, strain.name))
    return tuple(rows)


def _series(found: Found) -> tuple[Series, ...]:
    """Means against the strain for each setting; against tau for each noise of the last table."""
    lines = []
    for measure in ("recall", "slots/item"):

        def mean(place: Place, measure: str = measure) -> float:
            return found[place][measure].mean

        for strain in STRAINS:
            numbers = tuple(strain.streams)
            for setting in strain.settings:
                y = tuple(mean((strain.name, number, setting)) for number in numbers)
                lines.append(Series(f"{strain.name}.{measure}.{setting}", setting, numbers, y))
        for noise in (0.1, 0.5):
            y = tuple(mean(("tau", noise, at_tau(tau))) for tau in TAUS)
            lines.append(Series(f"taus.{measure}.{noise:g}", f"noise {noise:g}", TAUS, y))
    return tuple(lines)
