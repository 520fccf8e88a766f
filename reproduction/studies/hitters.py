"""H2O on a real stream by its two settings: the temperature of its scores, and a recent window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from ..baselines import H2O
from ..data import Events
from .result import Measure, Row
from .synthetic_keys import SyntheticKeys, correct_answers

THETAS = (0.01, 0.02, 0.05, 0.145)
HEADING = "H2O by its settings; these are the seeds of the other tables"


def hitter_rows(events: Events, seeds: Sequence[int], budget: int) -> Iterator[Row]:
    """Recall at a budget for each temperature, with half of it recent and with none."""
    places = list(product((0, budget // 2), THETAS))
    found: dict[tuple[int, float], list[float]] = {place: [] for place in places}
    for seed in seeds:
        episode = SyntheticKeys(events).draw(np.random.default_rng(seed))
        for recent, theta in places:
            memory = H2O(budget, score_theta=theta, recent=recent)
            found[recent, theta].append(float(correct_answers(memory, episode).mean()))
    for (recent, theta), recalls in found.items():
        yield Row(
            f"r{recent}_t{1000 * theta:.0f}",
            f"Theta {theta:g}, {'half recent' if recent else 'no recent window'}",
            {"recall": Measure.of(recalls)},
            f"B={budget}",
            "added",
            "hitters",
        )
