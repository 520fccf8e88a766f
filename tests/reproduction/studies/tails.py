"""Small streams with a long tail in the place of the real ones."""

from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np

from reproduction.data import Events, loghub, medical, movielens, numbered
from reproduction.studies import real_frontier
from reproduction.studies.runner import QUICK
from tests.reproduction.studies.toys import nowhere, write_log

FILES = {
    "movielens": movielens.OFFICIAL,
    "mimic": medical.MIMIC.choices[0],
    "synpuf": medical.SYNPUF.choices[0],
}
N_LINES = 200


def tailed(n_events=2000, n_items=400, n_classes=8):
    """A few items often, most rarely, every item at least once; its class by its number."""
    rng = np.random.default_rng(n_events)
    drawn = (n_items * rng.random(n_events - n_items) ** 3).astype(int)
    items, names = numbered(map(str, rng.permutation([*drawn, *range(n_items)]).tolist()))
    classes = tuple(f"class {i}" for i in range(n_classes))
    return Events(items, items % n_classes, np.arange(n_events), names, classes, "toy")


def routed():
    """Two drugs in three events each: one has its first route once and another twice."""
    items, labels = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 2, 1, 2, 1, 2])
    return Events(items, labels, np.arange(6), ("a", "b"), ("IV", "PO", "SC"), "toy")


@contextmanager
def streams(folder, *present):
    """Only those streams of the paper that are named are here, small; logs are of few sentences."""
    with nowhere(folder) as patch:
        for name in present:
            if name.startswith("loghub/"):
                write_log(folder, name.removeprefix("loghub/"), N_LINES)
            for file in FILES.get(name, ()):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).touch()
        demo = SimpleNamespace(prescriptions=tailed(900, 150), diagnoses=tailed(300, 60))
        patch.setattr(loghub, "N_LINES", N_LINES)
        patch.setattr(movielens, "load", tailed)
        patch.setattr(medical, "load_mimic", lambda: demo)
        patch.setattr(medical, "load_synpuf", lambda: tailed(1500, 300))
        yield patch


@cache
def small_frontier(seed):
    """Study ``real_frontier`` on 2,000 ratings of 400 movies; made once for all tests."""
    with TemporaryDirectory() as folder, streams(Path(folder), "movielens"):
        return real_frontier.run((seed, seed + 1), QUICK)
