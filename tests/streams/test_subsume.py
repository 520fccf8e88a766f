"""Rare templates that are a frequent one with a longer value."""

import pytest

from distinctkv.streams.parsing.subsume import subsumed


def into(often, seldom, counts=(100, 1), **kept):
    keys = tuple(often.split()), tuple(seldom.split())
    return subsumed(dict(zip(keys, counts, strict=False)), rare=10, gap=4, **kept) == {
        keys[1]: keys[0]
    }


@pytest.mark.parametrize(
    ("often", "seldom"),
    [
        ("<*> error to connect", "my host <*> error to connect"),
        ("open <*> failed at <*>", "open a b <*> failed at <*>"),
        ("open <*> failed", "open <*> a b c d failed"),
    ],
)
def test_a_longer_value_in_a_rare_line_is_a_value(often, seldom):
    assert into(often, seldom)


@pytest.mark.parametrize(
    ("often", "seldom"),
    [
        ("failure from <*>", "failure from <*> user root"),  # text after the last value
        ("open the file", "open all the file"),  # no value there
        ("open <*> failed", "open <*> a b c d e failed"),  # too many words
        ("open <*> failed", "shut <*> a failed"),  # other constants
    ],
)
def test_other_text_is_another_template(often, seldom):
    assert not into(often, seldom)


def test_a_template_that_is_not_rare_stands_for_itself():
    assert not into("open <*> failed", "open a <*> failed", counts=(99, 10))


def test_a_template_that_was_given_stands_for_itself():
    assert not into("open <*> failed", "open a <*> failed", kept=[("open", "a", "<*>", "failed")])


def test_the_last_in_a_row_takes_all():
    rows = {("a", "<*>", "b"): 1000, ("a", "x", "<*>", "b"): 100, ("a", "x", "y", "<*>", "b"): 10}
    assert set(subsumed(rows, 10, 4).values()) == {("a", "<*>", "b")}
