"""Patterns: which differences are parameters."""

from itertools import product

import pytest

from distinctkv.logs.patterns import CROWD, LONGEST, in_common, novelty, patterns

NAMES = tuple(f"n{letter}" for letter in "abcdefghijklmnopqrst")


def opened(template, values, few=4, tau=0.3):
    keys = [tuple(template.format(value).split()) for value in values]
    return {" ".join(pattern) for pattern in patterns(keys, tau, few)}


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
    rest = "word " * LONGEST
    assert opened(rest + "{}", NAMES) == {rest + "<*>"}
    assert opened(rest + "{0} {0}", NAMES) == set()


@pytest.mark.parametrize("n_keys", [2, 8, 9, 40])
def test_few_and_many_keys_are_compared_alike(n_keys):
    keys = [tuple(f"a b{i} c d{i} e f g".split()) for i in range(n_keys)]
    assert in_common(keys, 0.3) == {("a", "<*>", "c", "<*>", "e", "f", "g")}


def test_novelty_is_the_part_of_constants_that_differ():
    assert novelty(("a", "b", "c"), ("a", "b", "<*>")) == 0
    assert novelty(("a", "x", "c"), ("a", "b", "<*>")) == 0.5
    assert novelty(("a",), ("<*>",)) == 0


def test_of_very_many_like_keys_only_some_are_compared():
    keys = [("warn", f"x{n}", f"y{n}", "lost") for n in range(20)]
    assert ("warn", "<*>", "<*>", "lost") in patterns(keys, tau=0.3, few=4)
    others = [("warn", f"a{n}", f"b{n}", f"c{n}") for n in range(CROWD)]
    assert patterns([*keys, *others], tau=0.3, few=4) == set()


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
