import pytest

from reproduction.studies import wordwise

LINES = ["user ann left", "user bob left", "disk 7 is full", "disk 12 is full", "left user ann"]


@pytest.mark.parametrize("tau", [0.4, 0.6])
def test_words_in_place_differ_by_their_share(tau):
    groups = wordwise.in_place(LINES, tau)
    assert groups[0] == groups[1] != groups[4]
    assert groups[2] == groups[3]


def test_a_small_tau_parts_lines_that_differ_in_one_word():
    assert len(set(wordwise.in_place(LINES, 0.2))) == 5


def test_words_with_digits_are_alike_where_they_are_masked():
    assert wordwise.numbers_alike(LINES, 0.2)[2] == wordwise.numbers_alike(LINES, 0.2)[3]
    assert wordwise.masked("disk 12 is full") == "disk <*> is full"


def test_a_bag_has_no_places():
    groups = wordwise.bags(LINES, 0.2)
    assert groups[0] == groups[4] != groups[1]


@pytest.mark.parametrize("rule", list(wordwise.SIMILARITIES))
def test_blank_lines_are_alike(rule):
    groups = wordwise.SIMILARITIES[rule](["", " ", "word"], 0.3)
    assert groups[0] == groups[1] != groups[2]


def test_a_template_keeps_what_all_lines_of_a_group_share():
    groups = wordwise.in_place(LINES, 0.4)
    assert wordwise.texts(LINES, groups)[:3] == [
        "user <*> left",
        "user <*> left",
        "disk <*> is full",
    ]
