import gzip
import hashlib

import numpy as np
import pytest

from reproduction.data import DataDamaged, DataMissing, medical
from reproduction.data.medical import (
    CHAPTERS,
    FIRST_CODES,
    NO_CHAPTER,
    chapter9,
    chapter10,
    labelled,
)
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay, packed

ENDS = [*(first - 1 for first, _ in FIRST_CODES[1:]), 999]


def test_there_are_nineteen_chapters():
    assert len(CHAPTERS) == len(set(CHAPTERS)) == 19


@pytest.mark.parametrize(("place", "end"), [*enumerate(ENDS)])
def test_a_chapter_of_icd9_has_its_first_code_and_its_last(place, end):
    first, name = FIRST_CODES[place]
    assert chapter9(f"{first:03}") == chapter9(f"{end:03}99") == name


@pytest.mark.parametrize(
    ("code", "place"), [("V01", 17), ("V9199", 17), ("V30.00", 17), ("E000", 18), ("E9999", 18)]
)
def test_v_and_e_codes_have_chapters_of_their_own(code, place):
    assert chapter9(code) == CHAPTERS[place]


@pytest.mark.parametrize("code", ["", "OTHER", "00000", "12", "123456", "V1", "E12", "I10", "v58"])
def test_what_is_no_code_has_no_chapter(code):
    assert chapter9(code) == NO_CHAPTER


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("A047", 0), ("B9689", 0), ("C7A8", 1), ("D49", 1), ("D50", 3), ("E119", 2), ("F329", 4),
        ("G40901", 5), ("H269", 5), ("H9190", 5), ("I10", 6), ("J189", 7), ("K219", 8), ("L89", 11),
        ("M8008XA", 12), ("N179", 9), ("O80", 10), ("P07", 14), ("Q21", 13), ("R1013", 15),
        ("S0262XA", 16), ("T85694A", 16), ("V00", 18), ("Y92488", 18), ("Z87.891", 17),
    ],
)  # fmt: skip
def test_a_code_of_icd10_has_the_chapter_of_its_subject(code, place):
    assert chapter10(code) == CHAPTERS[place]


@pytest.mark.parametrize("code", ["", "U071", "4280", "I", "OTHER"])
def test_a_code_without_a_counterpart_has_no_chapter(code):
    assert chapter10(code) == NO_CHAPTER


def test_a_twentieth_class_comes_only_where_it_is_needed():
    assert labelled(["blood"])[1] == CHAPTERS
    labels, classes = labelled(["blood", NO_CHAPTER])
    assert classes == (*CHAPTERS, NO_CHAPTER)
    assert labels.tolist() == [3, 19]


@pytest.fixture
def demo(here):
    lay(here["data"], lookalikes.demo())
    return medical.load_mimic()


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
        medical.load_mimic()


def test_a_truncated_file_is_refused(here):
    files = lookalikes.demo()
    lay(here["data"], {name: content[:-20] for name, content in files.items()})
    with pytest.raises(DataDamaged, match=r"prescriptions\.csv\.gz is not a complete gzip file"):
        medical.load_mimic()


def test_another_table_is_refused():
    with pytest.raises(DataDamaged, match="no column drug"):
        medical.MIMIC.parse(
            {medical.PRESCRIPTIONS: gzip.compress(b"a,b\n1,2\n"), medical.DIAGNOSES: b""}
        )


@pytest.fixture
def served(web, monkeypatch):
    """The look-alike on the web, taken for the real one."""
    folder, url = web
    files = lookalikes.demo()
    lay(folder, {name.rpartition("/")[2]: content for name, content in files.items()})
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    monkeypatch.setattr(medical, "MIMIC_URL", url)
    monkeypatch.setattr(medical, "MIMIC_SHA256", digests)
    return folder


@pytest.mark.usefixtures("served")
def test_mimic_is_downloaded_from_its_official_source(here):
    assert len(medical.load_mimic()) == 18_087
    assert medical.MIMIC.find()[medical.DIAGNOSES] == here["cache"] / medical.DIAGNOSES


def test_a_file_that_changed_on_the_way_is_refused(here, served):
    lay(served, {"diagnoses_icd.csv.gz": gzip.compress(b"other")})
    with pytest.raises(DataMissing, match="SHA256"):
        medical.load_mimic()
    assert list(here["cache"].iterdir()) == []


@pytest.fixture
def few(monkeypatch):
    """Twelve claims are taken for the whole official file."""
    monkeypatch.setattr(medical, "N_CLAIMS", 12)
    return lookalikes.official_synpuf(12)


def codes(stream):
    return [stream.names[item] for item in stream.items]


def test_the_official_file_is_read_claim_after_claim_without_blanks(here, few):
    lay(here["data"], {medical.CSV: few})
    stream = medical.load_synpuf()
    assert codes(stream)[:6] == ["41401", "41401", "V11", "41401", "V12", "E802"]
    assert len(stream) == sum(len(codes) for _, codes in lookalikes.claims(12))


def test_packed_or_not_and_as_a_table_of_claims_it_is_the_same(few):
    streams = [
        medical.SYNPUF.parse({medical.CSV: few}),
        medical.SYNPUF.parse({medical.ZIP: packed({"Sample_1.csv": few})}),
        medical.SYNPUF.parse({medical.CLAIMS: lookalikes.claims_table(12)}),
    ]
    for stream in streams[1:]:
        assert codes(stream) == codes(streams[0])
        np.testing.assert_array_equal(stream.labels, streams[0].labels)
        np.testing.assert_array_equal(stream.times, streams[0].times)


def test_the_label_is_the_chapter(few):
    stream = medical.SYNPUF.parse({medical.CSV: few})
    assert stream.classes == CHAPTERS
    assert stream.labels[[3, 4, 5]].tolist() == [6, 17, 18]


def test_the_time_is_the_date_of_the_claim_and_minus_one_if_blank(few):
    times = medical.SYNPUF.parse({medical.CSV: few}).times
    first = np.datetime64("2009-01-01", "s").astype(int)
    second = np.datetime64("2009-02-02", "s").astype(int)
    assert times[[0, 1, 2]].tolist() == [first, second, second]
    assert times[7:9].tolist() == [-1, -1]


def test_the_official_file_has_as_many_claims_as_it_should():
    with pytest.raises(DataDamaged, match="12 claims, it should have 66,773"):
        medical.SYNPUF.parse({medical.CSV: lookalikes.official_synpuf(12)})


def test_the_official_file_is_taken_before_the_table_of_claims(here, few):
    lay(here["data"], {medical.CLAIMS: lookalikes.claims_table(3), medical.CSV: few})
    assert medical.load_synpuf().source == medical.CSV


def test_synpuf_is_downloaded_zipped_and_kept_so(here, few, web, monkeypatch):
    folder, url = web
    lay(folder, {"sample.zip": packed({f"{medical.SYNPUF_NAME}.csv": few})})
    monkeypatch.setattr(medical, "SYNPUF_URL", f"{url}/sample.zip")
    assert len(medical.load_synpuf()) == 24
    assert list(medical.SYNPUF.get().values()) == [here["cache"] / medical.ZIP]


def test_another_page_in_place_of_the_file_is_refused(here, web, monkeypatch):
    folder, url = web
    lay(folder, {"sample.zip": b"<html>we have moved</html>"})
    monkeypatch.setattr(medical, "SYNPUF_URL", f"{url}/sample.zip")
    with pytest.raises(DataMissing, match="not a complete zip file"):
        medical.load_synpuf()
    assert list(here["cache"].iterdir()) == []


def test_missing_claims_are_asked_for_by_their_name(here):
    with pytest.raises(DataMissing, match=r"as de-synpuf/DE1_0_2008_to_2010_Inpatient_Claims_"):
        medical.load_synpuf()
