"""The exact counts of the real streams, where they are."""

import numpy as np
import pytest

from reproduction.data import DataMissing, loghub, medical, movielens, windows
from reproduction.data.medical import CHAPTERS

pytestmark = pytest.mark.data


def present(dataset):
    """The stream of a set, if it is on this machine; nothing is fetched."""
    if dataset.find() is None:
        pytest.skip(f"{dataset.name} is not on this machine")
    return dataset.load()


def distinct(events):
    """Different items in each of 25 windows of equal length."""
    place = windows(events.times)
    return [len(np.unique(events.items[place == window])) for window in range(25)]


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    """MovieLens from this machine, or else from the wheel, and forgotten afterwards."""
    if movielens.MOVIELENS.find():
        return movielens.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTINCTKV_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(movielens, "URL", "https://localhost:1/")
        try:
            return movielens.load()
        except DataMissing as error:
            return pytest.skip(f"MovieLens cannot be had here: {error}")


def test_movielens_has_its_ratings_and_movies(ratings):
    assert (len(ratings), ratings.n_distinct) == (100_000, 1_682)
    assert np.bincount(ratings.items).max() == 583
    assert ratings.head(30_000).n_distinct == 1_388
    assert (np.diff(ratings.times) >= 0).all()


def test_movielens_has_760_to_1241_movies_in_a_window(ratings):
    found = distinct(ratings)
    assert (min(found), max(found)) == (760, 1_241)


def test_movielens_comes_from_the_wheel(tmp_path, monkeypatch):
    monkeypatch.delenv("DISTINCTKV_DATA")
    monkeypatch.setenv("DISTINCTKV_CACHE", str(tmp_path))
    monkeypatch.setattr(movielens, "URL", "https://localhost:1/")
    try:
        found = movielens.MOVIELENS.get()
    except DataMissing as error:
        pytest.skip(f"MovieLens cannot be had here: {error}")
    assert list(found.values()) == [tmp_path / name for name in movielens.ATOMIC]


@pytest.mark.parametrize(
    ("system", "n_events", "n_corrected"),
    [
        ("Android", 166, 158), ("Apache", 6, 6), ("BGL", 120, 120), ("HDFS", 14, 14),
        ("HPC", 46, 46), ("Hadoop", 114, 114), ("Linux", 118, 118), ("OpenSSH", 27, 26),
        ("Proxifier", 8, 8), ("Thunderbird", 149, 149), ("Windows", 50, 50), ("Zookeeper", 50, 50),
    ],
)  # fmt: skip
def test_loghub_has_its_lines_and_events(system, n_events, n_corrected):
    log, corrected = present(loghub.original(system)), present(loghub.corrected(system))
    assert len(log.raw) == len(log) == 2_000
    assert corrected.lines == log.lines
    assert log.events().n_distinct == n_events
    assert corrected.events().n_distinct == n_corrected
    pairs = zip(log.raw, log.lines, strict=True)
    assert all(raw.rstrip().endswith(line.rstrip()) for raw, line in pairs)


def test_bgl_has_2_to_45_events_in_a_window():
    found = distinct(present(loghub.original("BGL")).events())
    assert (min(found), max(found)) == (2, 45)


def test_mimic_has_its_prescriptions_and_drugs():
    stream = present(medical.MIMIC).prescriptions
    assert (len(stream), stream.n_distinct) == (18_087, 631)
    routes = np.zeros((631, len(stream.classes)), dtype=bool)
    routes[stream.items, stream.labels] = True
    assert (routes.sum(axis=1) > 1).sum() == 130


def test_every_diagnosis_of_mimic_has_a_chapter():
    stream = present(medical.MIMIC).diagnoses
    assert (len(stream), stream.n_distinct) == (4_506, 1_474)
    assert stream.classes == CHAPTERS


def test_synpuf_has_its_codes():
    stream = present(medical.SYNPUF)
    of_the_first = 3_989 if stream.source == medical.CLAIMS else 3_981
    assert stream.head(150_000).n_distinct == of_the_first
    assert stream.classes == CHAPTERS
    assert len(np.unique(stream.labels)) == 19
