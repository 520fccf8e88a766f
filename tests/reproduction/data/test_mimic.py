import gzip
import hashlib

import numpy as np
import pytest

from reproduction.data import DataDamaged, DataMissing, mimic
from reproduction.data.fetch import Source
from reproduction.data.icd import CHAPTERS
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay


@pytest.fixture
def demo(here):
    lay(here["data"], lookalikes.demo())
    return mimic.load()


def test_drugs_are_spelled_as_they_are(demo):
    assert len(demo) == len(demo.prescriptions) == 18_087
    assert demo.prescriptions.names[:2] == ("Drug 0, oral ", "Drug 1, oral ")
    assert demo.prescriptions.classes == ("PO", "IV")


def test_a_drug_may_have_several_routes(demo):
    stream = demo.prescriptions
    assert set(stream.labels[stream.items == 7]) == {0, 1}
    assert set(stream.labels[stream.items == 8]) == {0}


def test_times_are_when_a_drug_is_started(demo):
    start = np.datetime64("2150-01-01", "s").astype(int)
    np.testing.assert_array_equal(demo.prescriptions.times[:3], start + np.arange(3))


def test_diagnoses_of_both_editions_have_chapters(demo):
    stream = demo.diagnoses
    assert stream.names == ("9:V5861", "10:I10")
    assert [CHAPTERS[label] for label in stream.labels[:2]] == [
        "factors influencing health (V)",
        "circulatory system",
    ]
    assert stream.coarse().n_distinct == 2


def test_too_few_rows_are_refused(here):
    lay(here["data"], lookalikes.demo(n_prescriptions=18_086))
    with pytest.raises(DataDamaged, match="18,086 prescriptions"):
        mimic.load()


def test_a_truncated_file_is_refused(here):
    files = lookalikes.demo()
    lay(here["data"], {name: content[:-20] for name, content in files.items()})
    with pytest.raises(DataDamaged, match=r"prescriptions\.csv\.gz is not a whole gzip file"):
        mimic.load()


def test_another_table_is_refused():
    with pytest.raises(DataDamaged, match="no column drug"):
        mimic.parse({mimic.PRESCRIPTIONS: gzip.compress(b"a,b\n1,2\n"), mimic.DIAGNOSES: b""})


@pytest.fixture
def served(web, monkeypatch):
    """The look-alike on the web, taken for the real one."""
    folder, url = web
    files = lookalikes.demo()
    lay(folder, files)
    sources = {
        name: Source(f"{url}/{name}", hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    }
    monkeypatch.setattr(mimic, "SOURCES", sources)
    return folder


@pytest.mark.usefixtures("served")
def test_it_is_fetched_from_its_official_source(here):
    assert len(mimic.load()) == 18_087
    assert mimic.SET.find()[mimic.DIAGNOSES] == here["cache"] / mimic.DIAGNOSES


def test_a_file_that_changed_on_the_way_is_refused(here, served):
    lay(served, {mimic.DIAGNOSES: gzip.compress(b"other")})
    with pytest.raises(DataMissing, match="has the SHA-256 digest"):
        mimic.load()
    assert list(here["cache"].iterdir()) == []
