"""Rare templates that are a frequent one with a longer value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs.templates import subsumed
from distinctkv.logs.tokenizer import WILD

keys = st.lists(st.sampled_from([WILD, "a", "b"]), max_size=7).map(tuple)


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


@pytest.mark.parametrize("counts", [(100, 1), (1, 100), (5, 5)])
def test_values_side_by_side_are_one_however_many(counts):
    assert into("host <*> is down: <*>", "host <*> is down: <*> <*> <*>", counts)


def embeds(template, key):
    """Whether a key is a template with more words at wildcards other than its last token."""
    if not template or not key:
        return template == key
    if template[0] == WILD and len(template) > 1:
        return any(embeds(template[1:], key[n:]) for n in range(1, len(key) + 1))
    return template[0] == key[0] and embeds(template[1:], key[1:])


def squeezed(key):
    return tuple(token for n, token in enumerate(key) if (token, *key[n - 1 : n]) != (WILD, WILD))


@given(st.dictionaries(keys, st.sampled_from([1, 2, 15, 30, 400]), max_size=30))
def test_of_all_that_fit_the_one_with_most_lines_stands_for_the_others(counts):
    same = {
        key: min((k for k in counts if squeezed(k) == squeezed(key)), key=size) for key in counts
    }
    totals = {one: sum(counts[key] for key in counts if same[key] == one) for one in same.values()}

    def last(key):
        wider = [
            (totals[one], one)
            for one in totals
            if 0 < len(key) - len(one) <= 4 and WILD in one[:-1] and embeds(one, key)
        ]
        most, widest = max(wider, default=(0, key))
        return last(widest) if WILD in key and most >= 10 * totals[key] else key

    found = subsumed(counts, 10, 4)
    assert {key: found.get(key, key) for key in counts} == {key: last(same[key]) for key in counts}


def size(key):
    return len(key), key


def test_a_template_without_lines_is_not_its_own_stand_in():
    assert subsumed({("a", "<*>", "b"): 0}, rare=10, gap=4) == {}
