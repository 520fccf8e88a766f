"""The measures, by hand."""

import pytest

from reproduction.studies.scores import normal, score


def test_a_perfect_parse_scores_one():
    scores = score([1, 2, 2], ["a", "b <*>", "b <*>"], "xyy", ["a", "b <*>", "b <*>"])
    assert scores == (1, 1, 1, 1, 2, 2)


def test_a_group_counts_only_if_it_is_the_same_set():
    # found {0,1} {2} {3,4,5}; true {0,1,2} {3,4,5}: three of six lines are in a right group
    scores = score([1, 1, 2, 3, 3, 3], [""] * 6, "aaabbb", [""] * 6)
    assert scores.ga == 0.5
    assert scores.fga == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))


def test_a_text_counts_only_if_all_its_lines_have_it():
    # found "a" for lines 0-2, where it is right twice; "b" is right
    scores = score([1] * 4, ["a", "a", "a", "b"], "wxyz", ["a", "a", "c", "b"])
    assert scores.pa == 0.75
    assert scores.fta == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))


def test_nothing_parsed_scores_nothing():
    assert score([], [], [], []) == (0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a  b\tc ", "a b c"),
        ("took 12 ms", "took <*> ms"),
        ("blk_<*> of x<*>y", "<*> of <*>"),
        ("core.<*>", "core.<*>"),
        ("<*>.<*>:<*>", "<*>"),
        ("src: /<*>:<*>", "src: /<*>"),
        ("at /a/<*>/b", "at /a/<*>/b"),
        ('is "<*>" now', "is <*> now"),
        ("cpu #<*> up", "cpu <*> up"),
        ("user=<*>,id=7", "user=<*>,id=<*>"),
    ],
)
def test_texts_are_compared_in_this_form(text, form):
    assert normal(text) == form
