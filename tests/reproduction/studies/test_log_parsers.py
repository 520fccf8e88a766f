import pytest

from reproduction.studies import log_parsers
from reproduction.studies.log_parsers import (
    DRAIN3_BEST,
    DRAIN3_DEFAULT,
    DRAIN3_MASKED,
    SIMILARITIES,
    Drain3Setting,
    normalize,
    parse_with_drain3,
    score,
)

LINES = ["user ann left", "user bob left", "disk 7 is full", "disk 12 is full", "left user ann"]


def test_shards_that_disagree_are_found(monkeypatch):
    monkeypatch.setattr(log_parsers.LogParser, "absorb", lambda *_: None)
    assert not log_parsers.shards_agree(["open a", "shut"], 2)


# The word-overlap baseline


@pytest.mark.parametrize("tau", [0.4, 0.6])
def test_words_in_place_differ_by_their_share(tau):
    groups = log_parsers.in_place(LINES, tau)
    assert groups[0] == groups[1] != groups[4]
    assert groups[2] == groups[3]


def test_a_small_tau_separates_lines_that_differ_in_one_word():
    assert len(set(log_parsers.in_place(LINES, 0.2))) == 5


def test_words_with_digits_are_alike_where_they_are_masked():
    groups = log_parsers.numbers_alike(LINES, 0.2)
    assert groups[2] == groups[3]


def test_a_bag_has_no_places():
    groups = log_parsers.bags(LINES, 0.2)
    assert groups[0] == groups[4] != groups[1]


@pytest.mark.parametrize("rule", list(SIMILARITIES))
def test_blank_lines_are_alike(rule):
    groups = SIMILARITIES[rule](["", " ", "word"], 0.3)
    assert groups[0] == groups[1] != groups[2]


# Drain3


def test_without_drain3_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(log_parsers, "has_drain3", lambda: False)
    with pytest.raises(ModuleNotFoundError, match="pip install 'drain3"):
        log_parsers.drain3()


@pytest.mark.parametrize("setting", [DRAIN3_DEFAULT, DRAIN3_MASKED, DRAIN3_BEST], ids=str)
def test_templates_are_those_after_the_last_line(setting):
    pytest.importorskip("drain3")
    groups, texts = parse_with_drain3(["took 3 ms at once", "took 5 ms at once", "bye"], setting)
    assert groups == [1, 1, 2]
    assert texts == ["took <*> ms at once", "took <*> ms at once", "bye"]


def test_settings_reach_drain3():
    pytest.importorskip("drain3")
    masks = ["from 10.0.0.1 to 0xff"]
    assert parse_with_drain3(masks, DRAIN3_MASKED)[1] == ["from <*> to <*>"]
    assert parse_with_drain3(masks)[1] == masks
    lines = ["one alone", "two by two", "one alone"]
    assert parse_with_drain3(lines, Drain3Setting(max_clusters=1))[0] == [1, 2, 3]
    lines = ["took:3 ms=a", "took:5 ms=b"]
    assert parse_with_drain3(lines, Drain3Setting(delimiters="=:"))[1] == ["took <*> ms <*>"] * 2
    assert parse_with_drain3(lines)[1] == lines


# The measures, by hand


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
    assert normalize(text) == form
