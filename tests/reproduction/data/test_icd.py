import pytest

from reproduction.data.icd import CHAPTERS, FIRST, NO_CHAPTER, chapter9, chapter10, labelled

ENDS = [*(first - 1 for first, _ in FIRST[1:]), 999]


def test_there_are_nineteen_chapters():
    assert len(CHAPTERS) == len(set(CHAPTERS)) == 19


@pytest.mark.parametrize(("place", "end"), [*enumerate(ENDS)])
def test_a_chapter_of_icd9_has_its_first_code_and_its_last(place, end):
    first, name = FIRST[place]
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
