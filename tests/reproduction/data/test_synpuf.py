import numpy as np
import pytest

from reproduction.data import DataDamaged, DataMissing, synpuf
from reproduction.data.fetch import Source
from reproduction.data.icd import CHAPTERS
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay, packed


@pytest.fixture
def few(monkeypatch):
    """Twelve claims are taken for the whole official file."""
    monkeypatch.setattr(synpuf, "N_CLAIMS", 12)
    return lookalikes.official_synpuf(12)


def codes(stream):
    return [stream.names[item] for item in stream.items]


def test_the_official_file_is_read_claim_after_claim_without_blanks(here, few):
    lay(here["data"], {synpuf.CSV: few})
    stream = synpuf.load()
    assert codes(stream)[:6] == ["41401", "41401", "V11", "41401", "V12", "E802"]
    assert len(stream) == sum(len(codes) for _, codes in lookalikes.claims(12))


def test_packed_or_not_and_as_a_table_of_claims_it_is_the_same(few):
    streams = [
        synpuf.parse({synpuf.CSV: few}),
        synpuf.parse({synpuf.ZIP: packed({"Sample_1.CSV": few})}),
        synpuf.parse({synpuf.CLAIMS: lookalikes.claims_table(12)}),
    ]
    for stream in streams[1:]:
        assert codes(stream) == codes(streams[0])
        np.testing.assert_array_equal(stream.labels, streams[0].labels)
        np.testing.assert_array_equal(stream.times, streams[0].times)


def test_the_label_is_the_chapter(few):
    stream = synpuf.parse({synpuf.CSV: few})
    assert stream.classes == CHAPTERS
    assert stream.labels[[3, 4, 5]].tolist() == [6, 17, 18]


def test_the_time_is_the_date_of_the_claim_and_minus_one_if_blank(few):
    times = synpuf.parse({synpuf.CSV: few}).times
    first = np.datetime64("2009-01-01", "s").astype(int)
    second = np.datetime64("2009-02-02", "s").astype(int)
    assert times[[0, 1, 2]].tolist() == [first, second, second]
    assert times[7:9].tolist() == [-1, -1]


def test_the_official_file_has_as_many_claims_as_it_should():
    with pytest.raises(DataDamaged, match="12 claims, it should have 66,773"):
        synpuf.parse({synpuf.CSV: lookalikes.official_synpuf(12)})


def test_the_official_file_is_taken_before_the_table_of_claims(here, few):
    lay(here["data"], {synpuf.CLAIMS: lookalikes.claims_table(3), synpuf.CSV: few})
    assert synpuf.load().source == synpuf.CSV


def test_it_is_fetched_packed_and_kept_so(here, few, web, monkeypatch):
    folder, url = web
    lay(folder, {"sample.zip": packed({f"{synpuf.NAME}.csv": few})})
    monkeypatch.setattr(synpuf, "SOURCE", Source(f"{url}/sample.zip"))
    assert len(synpuf.load()) == 24
    assert list(synpuf.SET.get().values()) == [here["cache"] / synpuf.ZIP]


def test_another_page_in_place_of_the_file_is_refused(here, web, monkeypatch):
    folder, url = web
    lay(folder, {"sample.zip": b"<html>we have moved</html>"})
    monkeypatch.setattr(synpuf, "SOURCE", Source(f"{url}/sample.zip"))
    with pytest.raises(DataMissing, match="not a whole zip file"):
        synpuf.load()
    assert list(here["cache"].iterdir()) == []


def test_missing_it_is_asked_for_by_its_name(here):
    with pytest.raises(DataMissing, match=r"as de-synpuf/DE1_0_2008_to_2010_Inpatient_Claims_"):
        synpuf.load()
