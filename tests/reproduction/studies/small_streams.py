"""Small streams in place of the real ones; they contain no line of real data."""

import csv
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from reproduction.data import Events, loghub, medical, movielens, numbered

FILES = {
    "movielens": movielens.OFFICIAL,
    "mimic": medical.MIMIC.choices[0],
    "synpuf": medical.SYNPUF.choices[0],
}
N_LINES = 200
SENTENCES = (
    "Opening file {} for reading",
    "Closed session {} after {} ms",
    "Worker {} has joined",
    "Retrying in {} seconds",
)


@contextmanager
def nowhere(folder):
    """No data at all on this machine but what is put into the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTINCTKV_DATA", str(folder))
        patch.setenv("DISTINCTKV_CACHE", str(folder / "cache"))
        yield patch


def write_log(folder, system, n_lines):
    """A system whose lines are the sentences by turns, each value new."""
    home = folder / "loghub_2k" / system
    home.mkdir(parents=True)
    rows = []
    for i in range(n_lines):
        event = i % len(SENTENCES)
        template = SENTENCES[event].format("<*>", "<*>")
        rows.append([SENTENCES[event].format(7 * i, i), f"E{event}", template])
    (home / f"{system}_2k.log").write_text("\n".join(row[0] for row in rows))
    truth = home / f"{system}_2k.log_structured.csv"
    with truth.open("w", newline="") as file:
        csv.writer(file).writerows([["Content", "EventId", "EventTemplate"], *rows])


def drifting(n_events=600, n_items=60, near=20):
    """Events among ``near`` neighbours of a place that moves through the items; two classes."""
    at = np.arange(n_events) * (n_items - near) // n_events
    items = at + np.arange(n_events) * 7 % near
    names = tuple(map(str, range(n_items)))
    return Events(items, items % 2, np.arange(n_events), names, ("even", "odd"), "toy")


@contextmanager
def two_streams(folder, *present):
    """The streams of study ``adaptive_real``, of which those that are named are here."""
    files = {"movielens": movielens.OFFICIAL, "bgl": loghub.original("BGL").choices[0]}
    with nowhere(folder) as patch:
        for name in [name for stream in present for name in files[stream]]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        patch.setattr(movielens, "load", drifting)
        patch.setattr(loghub, "load", lambda system: SimpleNamespace(events=drifting))
        yield


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
