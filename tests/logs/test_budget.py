"""The budget: what is evicted, and what stays."""

import pytest

from distinctkv import Concentration
from distinctkv.logs import LogParser, templates

WORDS = tuple(f"{a}{b}{c}" for a in "bcdf" for b in "aeiou" for c in "lmnp")


def texts(parser):
    return [row.template for row in parser.templates()]


def test_the_least_used_template_is_forgotten_first():
    parser = LogParser(Concentration.fixed(0.3, 2, decay=1.0))
    parser.add_many(["red", "red", "green", "blue", "blue"])
    assert texts(parser) == ["red", "blue"]
    assert parser.forgotten == 1


def test_usage_fades():
    parser = LogParser(Concentration.fixed(0.3, 2, decay=0.5))
    parser.add_many(["red", "red", "green", "green", "green", "blue"])
    assert texts(parser) == ["green", "blue"]


def test_the_line_that_was_just_seen_stays():
    parser = LogParser(Concentration.fixed(0.3, 1, decay=1.0))
    parser.add_many(["red"] * 9)
    assert parser.add("blue").id == parser.match("blue").id == 1
    assert parser.match("red") is None


def test_an_id_that_was_evicted_is_never_given_again():
    parser = LogParser(Concentration.fixed(0.3, 1))
    ids = parser.add_many(["red", "blue", "red"])
    assert list(ids) == [-1, -1, 2]
    assert parser.resolve(0) is None


def test_values_are_given_up_before_templates():
    parser = LogParser(Concentration.fixed(0.3, 25, decay=1.0))
    parser.add_many(f"the user {word} logged in" for word in WORDS)
    assert [(row.template, row.count) for row in parser.templates()] == [
        ("the user <*> logged in", len(WORDS))
    ]
    assert parser.forgotten == 0


def test_seeds_are_kept_and_do_not_count():
    parser = LogParser(Concentration.fixed(0.3, 1))
    parser.seed(["red", "green <*>"])
    parser.add_many(["blue", "black", "green 5"])
    assert texts(parser) == ["red", "green <*>", "black"]


def test_surprise_grants_more():
    parser = LogParser(Concentration.surprise(0.3, base=2, gain=100, rate=0.1))
    parser.add_many(WORDS)
    assert len(parser) > 50
    parser.add_many(["calm"] * 100)
    assert len(parser) == 2
    assert parser.temperature < 0.001


def test_the_temperature_follows_the_rule():
    parser = LogParser(Concentration(tau=0.3, rate=0.25))
    temperature = 0.0
    for line, opened in (("red", 1), ("red", 0), ("blue", 1), ("red", 0)):
        parser.add(line)
        temperature = 0.75 * temperature + 0.25 * opened
        assert parser.temperature == pytest.approx(temperature)
    assert parser.budget == float("inf")


def test_lines_are_grouped_when_no_more_leaves_can_be_held():
    parser = LogParser(Concentration.fixed(0.3, 20))
    others = [f"{a} {b} is {a} {b}" for a in WORDS[:6] for b in WORDS[:6]]
    parser.add_many(others)
    opened = [parser.add(f"session opened for {word} today").opened for word in WORDS]
    assert not any(opened[40:])


def test_values_that_are_no_longer_kept_make_room_when_unused(monkeypatch):
    monkeypatch.setattr(templates, "SETTLED", 8)
    parser = LogParser(Concentration.fixed(0.3, 30))
    for rest in ("a b c d", "e f g h i", "j k l m n o"):
        parser.add_many(f"{word} {rest}" for word in WORDS[:20])
    assert sum(bool(leaf.folded) for leaf in parser._templates.leaves.values()) == 3
    parser.add_many(["one more of another kind"] * 500)
    parser.add_many([f"{word} {word} {word}" for word in WORDS[:29]] * 20)
    assert not any(leaf.folded for leaf in parser._templates.leaves.values())


@pytest.mark.parametrize("asked", [False, True])
def test_values_of_an_evicted_template_are_given_up_again(monkeypatch, asked):
    monkeypatch.setattr(templates, "SETTLED", 8)
    parser = LogParser(Concentration.fixed(0.3, 20))
    parser.add_many(f"the user {word} logged in" for word in WORDS[:30])
    parser.add_many([*WORDS[:20] * 20, *WORDS[:10] * 20])  # the other ten may go next
    assert parser.match(f"the user {WORDS[30]} logged in") is None
    if asked:
        parser.templates()
    parser.add_many(f"the user {word} logged in" for word in WORDS[30:36])
    users = [leaf for leaf in parser._templates.leaves.values() if len(leaf.key) > 1]
    assert [(leaf.key[2], leaf.count) for leaf in users] == [("<*>", 6)]


def test_lines_of_an_evicted_template_share_an_id_again():
    parser = LogParser(Concentration.fixed(0.3, 20))
    parser.add_many(f"the user {word} logged in" for word in WORDS[:30])
    parser.add_many([*WORDS[:20] * 20, *WORDS[:10] * 20])  # the other ten may go next
    again = [parser.add(f"the user {word} logged in") for word in WORDS[30:36]]
    assert [match.opened for match in again] == [True, *[False] * 5]
    assert len({match.id for match in again}) == 1


@pytest.mark.parametrize("budget", [3, float("inf")])
def test_the_busiest_template_is_not_lost_when_absorbed(budget):
    parser = LogParser(Concentration.fixed(0.3, 3))
    parser.add_many(["red", "green one", "blue two three"])
    other = LogParser(Concentration.fixed(0.3, budget))
    other.add_many(["a hot line of text"] * 1000)
    assert parser.absorb(other) == {0: 3}
    assert texts(parser) == ["green one", "blue two three", "a hot line of text"]


def test_usage_that_fades_at_another_pace_is_not_absorbed():
    slow, fast = (LogParser(Concentration.fixed(0.3, 3, decay=d)) for d in (0.9, 0.5))
    with pytest.raises(ValueError, match="decay"):
        slow.absorb(fast)


def test_leaves_that_are_gone_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(templates, "SETTLED", 4)
    parser = LogParser(Concentration.fixed(0.3, 1000))
    for name in WORDS:
        parser.add_many(f"{name} said {word} to the {name} again" for word in WORDS)
    assert len(parser._budget._order) <= 2 * parser.n_leaves + 64 + 1
