"""What is remembered of lines with fresh words changes no answer."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Concentration
from distinctkv.logs import LogParser
from distinctkv.logs.parser import BLANKED, Skeletons
from tests.logs.programs import log, programs

FRESH = st.text("abcdegEFklmnopqrst", min_size=3, max_size=6)
MEANT = [
    "user",
    "from",
    "invalid",
    "Monday",
    "June",
    "bytes",
    "hours",
    "Decoy",
    "null",
    "EDST",
    "cafe",
    BLANKED,
]
WORDS = FRESH | st.sampled_from(MEANT)
FORMS = (
    "open {} now", "state={} at 12", "for user {} from 10.0.0.1", "[{}] took 5 {}", "{}: done",
    "{}:443 up", 'said "{} {}"', "{} 3, 2024 10:00", "{}, {}; ({}).", "invalid {} user {}", "{}=on",
    "set {} user to {}", "ran 5 {} of {}", "on {} 3, 2024 Jan ok", "at Jan 3 10:00:00 {} {}",
    'said "{} {} {}" at 3', "for user  {} ok", "for user\t{} ok", "peer fade:{}:443 up",
    "open {0} {0} {1}", "msg={} at 3", "level=info event={} door={}",
)  # fmt: skip
LINES = st.lists(st.tuples(st.sampled_from(FORMS), WORDS, WORDS, WORDS), max_size=300).map(
    lambda rows: [form.format(*words) for form, *words in rows]
)
POLICIES = [Concentration.fixed(0.3), Concentration.fixed(0.3, budget=12)]


def parsed(lines, policy, without=False):
    """Every answer of a parser, with or without skeletons, and its templates at the end."""
    with pytest.MonkeyPatch.context() as patch:
        if without:
            patch.setattr(Skeletons, "of", lambda *_: None)
        patch.setattr("distinctkv.logs.templates.SETTLED", 6)
        parser = LogParser(policy)
        matches = [parser.add(line) for line in lines]
        told = [(m.id, m.template, m.parameters, m.novelty, m.opened, m.changed) for m in matches]
        return told, parser.templates()


@pytest.mark.parametrize("policy", POLICIES, ids=["free", "budget"])
@given(lines=LINES)
def test_skeletons_change_no_answer(policy, lines):
    assert parsed(lines, policy) == parsed(lines, policy, without=True)


@pytest.mark.parametrize("form", FORMS)
def test_words_with_a_meaning_are_not_blanked(form, seed):
    draw = random.Random(seed)

    def words(meant=0.0):
        fresh = ("".join(draw.choices("klmnopqrst", k=6)) for _ in range(3))
        return [draw.choice(MEANT) if draw.random() < meant else word for word in fresh]

    lines = [form.format(*words()) for _ in range(60)]
    lines += [form.format(*words(meant=0.3)) for _ in range(240)]
    assert parsed(lines, POLICIES[0]) == parsed(lines, POLICIES[0], without=True)


@pytest.mark.parametrize("name", ["programs", "fresh"])
def test_skeletons_change_no_answer_on_programs(name, seed):
    for templates in programs(name).values():
        lines, _ = log(templates, seed)
        assert parsed(lines, POLICIES[0]) == parsed(lines, POLICIES[0], without=True)


def test_lines_with_fresh_words_are_recalled(monkeypatch):
    parser = LogParser()
    letters = "abcdefghij"
    names = [f"kx{a}{b}q" for a in letters for b in letters]
    parser.add_many(f"cannot open {name} now" for name in names)
    monkeypatch.setattr(parser._intake, "read", lambda short: pytest.fail(f"{short} was read"))
    assert parser.add("cannot open zzyxw now").template == "cannot open <*> now"


def test_a_word_that_is_known_is_not_blanked():
    parser = LogParser()
    parser.add("cannot open door")
    skeletons = parser._intake._skeletons
    assert skeletons.of("cannot open zzyxw") == f"cannot open {BLANKED}"
    assert skeletons.of("cannot open door") is None
    assert skeletons.of("cannot open user") is None  # it says what the next word is
