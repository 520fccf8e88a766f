"""Patterns, groups of keys and subsumed templates."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs.patterns import (
    FEW_KEYS,
    MAX_COMPARED,
    MAX_TOKENS,
    NearestKeys,
    PatternIndex,
    common_of_pairs,
    find_patterns,
    find_subsumed,
    group_keys,
    link_keys,
    novelty,
)
from distinctkv.logs.tokenizer import WILD

NAMES = tuple(f"n{letter}" for letter in "abcdefghijklmnopqrst")


def opened(template, values, tau=0.3):
    keys = [tuple(template.format(value).split()) for value in values]
    return {" ".join(pattern) for pattern in find_patterns(keys, tau, 5)}


def test_many_values_are_a_parameter():
    assert opened("the user {} logged in", NAMES[:5]) == {"the user <*> logged in"}


def test_few_values_are_constant_text():
    assert opened("the user {} logged in", NAMES[:4]) == set()


def test_a_value_is_a_parameter_where_another_is_known_to_be_one():
    assert opened("the user {} logged in", ["ann", "<*>"]) == {"the user <*> logged in"}


def test_keys_that_differ_too_much_are_not_alike():
    assert opened("user {} in", NAMES[:8]) == set()


def test_short_keys_need_more_values():
    assert opened("removing {}", NAMES[:8]) == set()
    assert opened("removing {}", NAMES[:9]) == {"removing <*>"}
    assert opened("{} started", NAMES[:9]) == {"<*> started"}
    assert opened("removing {}", ["ann", "<*>"]) == {"removing <*>"}


def test_a_single_word_is_never_a_parameter():
    assert opened("{}", NAMES) == set()


def test_two_words_may_change_at_once():
    lines = [
        f"the user {a} logged in from host {b} again"
        for a, b in zip(NAMES, NAMES[::-1], strict=False)
    ]
    assert opened("{}", lines) == {"the user <*> logged in from host <*> again"}


@pytest.mark.parametrize(("n_names", "pattern"), [(8, set()), (9, {"a <*> b <*>"})])
def test_keys_may_differ_twice_as_much_on_twice_the_evidence(n_names, pattern):
    lines = [f"a {a} b {b}" for a, b in zip(NAMES[:n_names], NAMES[::-1], strict=False)]
    assert opened("{}", lines) == pattern


def test_both_words_must_take_many_values():
    lines = [f"the user {name} logged {verb} on this host" for name in NAMES for verb in "xy"]
    assert opened("{}", lines) == {
        "the user <*> logged x on this host",
        "the user <*> logged y on this host",
    }


def test_no_tolerance_no_patterns():
    assert opened("the user {} logged in", NAMES, tau=0.0) == set()


def test_in_keys_that_are_very_long_one_word_may_change():
    rest = "word " * MAX_TOKENS
    assert opened(rest + "{}", NAMES) == {rest + "<*>"}
    assert opened(rest + "{0} {0}", NAMES) == set()


@pytest.mark.parametrize("n_keys", [2, 8, 9, 40])
def test_few_and_many_keys_are_compared_alike(n_keys):
    keys = [tuple(f"a b{i} c d{i} e f g".split()) for i in range(n_keys)]
    assert common_of_pairs(keys, 0.3) == {("a", "<*>", "c", "<*>", "e", "f", "g")}


def test_novelty_is_the_part_of_constants_that_differ():
    assert novelty(("a", "b", "c"), ("a", "b", "<*>")) == 0
    assert novelty(("a", "x", "c"), ("a", "b", "<*>")) == 0.5
    assert novelty(("a",), ("<*>",)) == 1


def test_of_very_many_like_keys_only_some_are_compared():
    keys = [("warn", f"x{n}", f"y{n}", "lost") for n in range(20)]
    assert ("warn", "<*>", "<*>", "lost") in find_patterns(keys, tau=0.3, min_values=5)
    others = [("warn", f"a{n}", f"b{n}", f"c{n}") for n in range(MAX_COMPARED)]
    assert find_patterns([*keys, *others], tau=0.3, min_values=5) == set()


def switches(n_places, values=("on", "off")):
    words = [f"w{place} {{}}" for place in range(n_places)]
    return [" ".join(words).format(*row) for row in product(values, repeat=n_places)]


@pytest.mark.parametrize("n_places", [3, 4, 6])
def test_switches_that_are_free_of_each_other_are_parameters(n_places):
    whole = " ".join(f"w{place} <*>" for place in range(n_places))
    assert whole in opened("{}", switches(n_places))


def test_two_switches_are_text():
    assert opened("{}", switches(2)) == set()


def test_switches_that_go_together_are_text():
    lines = [" ".join(f"w{place} {way}" for place in range(5)) for way in ("on", "off", "idle")]
    assert opened("{}", lines) == set()


def test_a_verb_beside_two_names_is_text():
    lines = [f"player {a} {verb} zone {b} now" for a in NAMES for verb in "xy" for b in NAMES[:9]]
    found = opened("{}", lines)
    assert {f"player <*> {verb} zone <*> now" for verb in "xy"} < found
    assert not any(pattern.split()[2] == "<*>" for pattern in found)


def test_keys_may_differ_twice_as_much_where_names_and_states_are_free():
    lines = [f"agent {name} is now {state}" for name in NAMES[:6] for state in "pqrstu"]
    assert "agent <*> is now <*>" in opened("{}", lines)


def keys_of(*lines):
    return [tuple(line.split()) for line in lines]


def test_patterns_that_share_a_key_make_one_group():
    keys = keys_of("a b x", "a b c", "y b c", "p q r")
    groups = link_keys(keys, keys_of("a b <*>", "<*> b c"))
    assert [group.keys for group in groups] == [keys[:3], keys[3:]]


def test_the_widest_pattern_comes_first():
    index = PatternIndex(keys_of("a <*> c", "<*> <*> c", "a b <*>", "a <*> <*>"))
    key = ("a", "b", "c")
    assert index.matches(key) == keys_of("<*> <*> c", "a <*> <*>", "a <*> c", "a b <*>")
    assert index.widest(key) == ("<*>", "<*>", "c")
    assert index.widest(("x", "y", "z")) is None
    assert PatternIndex(keys_of("a b")).matches(()) == []


def test_keys_that_match_a_seed_are_in_no_other_group():
    keys = keys_of(*(f"the user {name} logged in" for name in NAMES[:5]))
    _, groups = group_keys(keys, keys[:1], 0.3, 4)
    assert [len(group.keys) for group in groups] == [1, 4]


def test_the_narrowest_seed_matches():
    seeds = keys_of("open <*> <*>", "open door <*>")
    patterns, _ = group_keys(seeds, seeds, 0.3, 5)
    assert patterns.match(("open", "door", "now")) == ("open", "door", "<*>")


keys = st.lists(st.sampled_from([WILD, "a", "b"]), max_size=7).map(tuple)


def subsumes(short, longer, counts=(100, 1), **kept):
    pair = tuple(short.split()), tuple(longer.split())
    counted = dict(zip(pair, counts, strict=False))
    return find_subsumed(counted, ratio=10, max_extra=4, **kept) == {pair[1]: pair[0]}


@pytest.mark.parametrize(
    ("often", "seldom"),
    [
        ("<*> error to connect", "my host <*> error to connect"),
        ("open <*> failed at <*>", "open a b <*> failed at <*>"),
        ("open <*> failed", "open <*> a b c d failed"),
    ],
)
def test_a_longer_value_in_a_rare_line_is_a_value(often, seldom):
    assert subsumes(often, seldom)


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
    assert not subsumes(often, seldom)


def test_a_template_that_is_not_rare_stands_for_itself():
    assert not subsumes("open <*> failed", "open a <*> failed", counts=(99, 10))


def test_a_template_that_was_given_stands_for_itself():
    assert not subsumes(
        "open <*> failed", "open a <*> failed", kept=[("open", "a", "<*>", "failed")]
    )


def test_the_last_in_a_row_takes_all():
    rows = {("a", "<*>", "b"): 1000, ("a", "x", "<*>", "b"): 100, ("a", "x", "y", "<*>", "b"): 10}
    assert set(find_subsumed(rows, 10, 4).values()) == {("a", "<*>", "b")}


@pytest.mark.parametrize("counts", [(100, 1), (1, 100), (5, 5)])
def test_values_side_by_side_are_one_however_many(counts):
    assert subsumes("host <*> is down: <*>", "host <*> is down: <*> <*> <*>", counts)


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

    found = find_subsumed(counts, 10, 4)
    assert {key: found.get(key, key) for key in counts} == {key: last(same[key]) for key in counts}


def size(key):
    return len(key), key


def test_a_template_without_lines_is_not_its_own_stand_in():
    assert find_subsumed({("a", "<*>", "b"): 0}, ratio=10, max_extra=4) == {}


token = st.sampled_from(["<*>", *"abcd"])
key = st.tuples(token, token, token, token)
changes = st.lists(st.tuples(st.integers(0, 2 * FEW_KEYS), st.none() | key), max_size=150)


@given(changes, key)
def test_the_nearest_of_all_keys_is_found(changes, asked):
    nearest, keys = NearestKeys(4), {}
    for number, one in changes:
        if one is not None:
            nearest.put(number, one)
            keys[number] = one
        elif number in keys:
            nearest.remove(number)
            del keys[number]
        expected = min((novelty(asked, one) for one in keys.values()), default=1.0)
        assert asked in keys.values() or nearest.novelty(asked) == expected
