"""The log parser: small logs and their templates side by side, and all that can be asked of it."""

from random import Random

import numpy as np
import pytest

from distinctkv import Concentration
from distinctkv.logs import LogParser
from distinctkv.logs.templates import SETTLED

NAMES = ("ann", "bob", "cas", "dee", "eve", "fay", "gus")


def templates(lines):
    parser = LogParser()
    parser.add_many(lines)
    return {row.template: row.count for row in parser.templates()}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (  # values of any kind
            [
                "Receiving block blk_-1608 src: /10.250.19.102:54106 dest: /10.250.19.102:50010",
                "Receiving block blk_7503 src: /10.251.215.16:55695 dest: /10.251.215.16:50010",
                "Deleting block blk_1 file /mnt/hadoop/dfs/data/current/subdir0/blk_1",
            ],
            {
                "Receiving block <*> src: /<*>:<*> dest: /<*>:<*>": 2,
                "Deleting block <*> file <*>": 1,
            },
        ),
        (  # names, once there are many
            [f"Accepted password for {name} from 10.0.0.{len(name)} port 7 ssh2" for name in NAMES],
            {"Accepted password for <*> from <*> port <*> ssh2": 7},
        ),
        (  # few words are constant text
            [f"interface is now {state} again" for state in ("up", "down") for _ in range(9)],
            {"interface is now up again": 9, "interface is now down again": 9},
        ),
        (  # lists and sizes of any length
            ["ask 10.0.0.1 to delete blk_1", "ask 10.0.0.2 to delete blk_1 blk_2 blk_3"],
            {"ask <*> to delete <*>": 2},
        ),
        (  # a value of several words, in one line of many
            [
                *(f"host{n}.com:80 error: no route to host" for n in range(20)),
                "wpad:80 error: no route to host",
            ],
            {"<*> error: no route to host": 21},
        ),
        (  # the same words after the last value are another template
            [*["failure; rhost=10.0.0.1"] * 20, "failure; rhost=10.0.0.1 user=root"],
            {"failure; rhost=<*>": 20, "failure; rhost=<*> user=root": 1},
        ),
    ],
)
def test_lines_have_these_templates(lines, expected):
    assert templates(lines) == expected


def test_a_match_says_what_the_line_did():
    parser = LogParser()
    first, again = parser.add("open door 1"), parser.add("open door 2")
    other = parser.add("open gate 1")
    assert (first.opened, first.novelty, first.parameters) == (True, 1.0, ("1",))
    assert (again.opened, again.changed, again.novelty) == (False, False, 0.0)
    assert (other.opened, other.novelty) == (True, 0.5)
    assert repr(again) == (
        "LogMatch(id=0, template='open door <*>', parameters=('2',), novelty=0, opened=False, "
        "changed=False)"
    )


def test_a_line_that_changes_the_text_of_its_template_says_so():
    parser = LogParser()
    assert parser.add("open port ssh2").template == "open port ssh2"
    match = parser.add("open port ssh1")
    assert (match.changed, match.opened, match.template) == (True, False, "open port <*>")


def test_a_text_that_another_line_changed_is_told_once():
    parser = LogParser()
    for name in NAMES:
        parser.add(f"user {name} logged in")
    parser.templates()
    first, second = (parser.add("user ann logged in") for _ in range(2))
    assert (first.changed, first.template) == (True, "user <*> logged in")
    assert not second.changed


def test_values_are_given_as_they_stand_in_the_line():
    parser = LogParser()
    line = "at Fri Jun 17 07:07:00 2005 for user root: [1, 2] from /10.0.0.1:80 took 5 ms (ssh2)"
    assert parser.add(line).parameters == (
        *("Fri Jun 17 07:07:00 2005", "root", "1", "2", "10.0.0.1", "80", "5"),
    )


def test_there_are_as_many_values_as_wildcards():
    parser = LogParser()
    for name in NAMES:
        parser.add(f"user {name} logged in from 10.0.0.1")
    parser.templates()
    match = parser.add("user zoe logged in from 10.0.0.2")
    assert (match.template, match.parameters) == (
        "user <*> logged in from <*>",
        ("zoe", "10.0.0.2"),
    )


@pytest.mark.parametrize(
    ("line", "template", "parameters"),
    [
        ("start 130:a.b.c:zone/u0a11", "start <*>:<*>:zone/<*>", ("130", "a.b.c", "u0a11")),
        ("error on Inter-1T00:00:2:0", "error on Inter-<*>", ("1T00:00:2:0",)),
        ("log to org.slf4j.Door by 7", "log to org.<*> by <*>", ("slf4j.Door", "7")),
        ("\x1b[31mdisk 5 failed\x1b[0m", "disk <*> failed", ("5",)),
        ("user <*> on 7", "user <*> on <*>", ("<*>", "7")),
    ],
)
def test_values_are_those_of_the_template_however_the_line_is_cut(line, template, parameters):
    match = LogParser().add(line)
    assert (match.template, match.parameters) == (template, parameters)


def test_templates_know_when_they_were_seen():
    parser = LogParser()
    parser.add_many(["start 1", "stop", "start 2", "start 3"])
    first, second = parser.templates()
    assert (first.count, first.first_seen, first.last_seen) == (3, 0, 3)
    assert (second.id, second.examples) == (1, ("stop",))


def test_an_id_stays_good_when_its_template_becomes_part_of_another():
    parser = LogParser()
    ids = [parser.add(f"the user {name} logged in").id for name in NAMES]
    assert ids == list(range(7))
    parser.templates()
    assert {parser.resolve(number) for number in ids} == {0}
    assert parser.add("the user zoe logged in").id == 0
    assert parser.resolve(99) is None


def test_matching_changes_nothing():
    parser = LogParser()
    parser.add("open door 1")
    assert parser.match("open gate 2") is None
    assert parser.match(b"open door 7").parameters == ("7",)
    assert (parser.seen, len(parser)) == (1, 1)


@pytest.mark.parametrize(
    "line", ["", " ", "\0", "\0a\0b", "\udc80", "\ue001\ue000", "<*>", "é 5", b"\xff\xfe 5", b""]
)
def test_odd_lines_are_lines(line):
    parser = LogParser()
    assert parser.add(line).id == parser.match(line).id == parser.add(line).id
    assert parser.templates()[0].count == 2


def test_a_line_of_many_megabytes_is_cut_and_counted():
    parser = LogParser(max_line=1000)
    parser.add_many(["x 1 " * 3_000_000, b"x 1 " * 3_000_000, "short"])
    assert (parser.seen, parser.truncated, len(parser)) == (3, 2, 2)


def test_what_is_not_text_is_refused():
    with pytest.raises(TypeError, match="a line is str or bytes, got int"):
        LogParser().add(7)


def test_values_that_never_end_are_counted_and_not_kept():
    parser = LogParser()
    names = [f"{a}{b}{c}" for a in "bcdfghjk" for b in "aeiou" for c in "lmnpqrst"]
    parser.add_many(f"the user {name} logged in" for name in names)
    assert parser.n_leaves <= SETTLED
    assert [row.count for row in parser.templates()] == [len(names)]
    assert (
        parser.match("the user zoe logged in").id
        == parser.match(f"the user {names[0]} logged in").id
    )


def test_the_answer_has_the_fields_of_drain3():
    parser = LogParser()
    parser.add_log_message("open port ssh2")
    assert parser.add_log_message("open port ssh2") == {
        "change_type": "none",
        "cluster_id": 0,
        "cluster_size": 2,
        "template_mined": "open port ssh2",
        "cluster_count": 1,
    }
    assert parser.add_log_message("open port ssh1")["change_type"] == "cluster_template_changed"
    assert parser.add_log_message("shut")["change_type"] == "cluster_created"


def test_a_seed_is_known_before_its_first_line():
    parser = LogParser()
    ids = parser.seed(["user <*> is <*>", "user <*> is away"])
    assert ids == [0, 1]
    assert [row.count for row in parser.templates()] == [0, 0]
    assert parser.add("user ann is in").id == 0
    assert parser.add("user ann is away").id == 1
    assert parser.add("user 7 is 8").id == 0
    assert [row.count for row in parser.templates()] == [2, 1]


def test_a_seed_gathers_what_came_before_it():
    parser = LogParser()
    parser.add_many(["disk one failed", "disk two failed"])
    assert len(parser) == 2
    [number] = parser.seed(["disk <*> failed"])
    assert [(row.id, row.count) for row in parser.templates()] == [(number, 2)]


def test_a_parser_absorbs_another():
    one, other = LogParser(), LogParser()
    one.add_many(["start 1", "stop"])
    other.add_many(["hello", "stop", "start 2"])
    assert one.absorb(other) == {0: 2, 1: 1, 2: 0}
    assert [(row.template, row.count, row.last_seen) for row in one.templates()] == [
        ("start <*>", 2, 4),
        ("stop", 2, 3),
        ("hello", 1, 2),
    ]


def test_a_parser_does_not_absorb_itself():
    parser = LogParser()
    parser.add("a line")
    with pytest.raises(ValueError, match="cannot absorb itself"):
        parser.absorb(parser)
    assert parser.seen == 1


@pytest.mark.parametrize("text", ["a line", b"a line"])
def test_one_line_is_not_taken_for_several(text):
    for take in (LogParser().add_many, LogParser().seed):
        with pytest.raises(TypeError, match=r"one by one, got .*; put it in a list"):
            take(text)


def test_few_new_names_are_told_however_many_lines_are_known(seed):
    random = Random(seed)

    def word():
        return "".join(random.choices("abcdefghij", k=6))

    parser = LogParser()
    parser.add_many(" ".join(word() for _ in range(7)) for _ in range(3000))
    opened = [parser.add(f"session opened for {word()} today by cron").opened for _ in range(500)]
    assert sum(opened) <= 16


def test_a_text_that_was_told_is_not_told_again_after_a_journey(tmp_path):
    lines = [f"the user {name} logged in" for name in ("ann", "bob", "cas", "dee", "eve")]
    parser = LogParser()
    for line in lines:
        parser.add(line)
    parser.templates()
    assert parser.add(lines[0]).changed
    parser.save(tmp_path / "state")
    assert not LogParser.load(tmp_path / "state").add(lines[1]).changed


def test_only_a_parser_of_the_same_setting_is_absorbed():
    with pytest.raises(TypeError, match="only a LogParser"):
        LogParser().absorb({})
    with pytest.raises(ValueError, match="must share their setting"):
        LogParser().absorb(LogParser(few=5))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"concentration": Concentration.fixed(1.5)}, "tau must be at most 1 for lines"),
        ({"few": 0}, "few must be at least 1, got 0"),
        ({"few": 1.5}, "few must be a whole number, got 1.5"),
        ({"max_line": float("inf")}, "max_line must be a whole number, got inf"),
        ({"rare": float("nan")}, "rare must be a number, got nan"),
        ({"max_line": 0}, "max_line must be at least 1, got 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        LogParser(**setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"concentration": 0.3}, r"expected a Concentration .*, got 0\.3"),
        ({"few": "4"}, "few must be a number, got '4'"),
        ({"max_line": None}, "max_line must be a number, got None; for the default leave it out"),
    ],
)
def test_settings_of_another_kind_are_refused(setting, message):
    with pytest.raises(TypeError, match=message):
        LogParser(**setting)


def test_settings_may_be_numbers_of_numpy(tmp_path):
    parser = LogParser(few=np.int64(3), rare=np.float32(5), max_line=np.float64(9))
    parser.add(b"door 7 opened")
    parser.save(tmp_path / "parser")
    loaded = LogParser.load(tmp_path / "parser")
    assert (loaded.few, loaded.rare, loaded.max_line, loaded.truncated) == (3, 5, 9, 1)


def test_a_parser_prints_in_a_line():
    parser = LogParser(Concentration.fixed(0.3, 50))
    parser.add_many(["a", "b"])
    assert repr(parser) == "LogParser(tau=0.3, budget 50, 2 templates for 2 lines)"


def test_many_lines_are_taken_in_whole_or_not_at_all():
    parser = LogParser()
    with pytest.raises(TypeError, match="got NoneType at 2"):
        parser.add_many(["alpha beta", "gamma delta", None, "x"])
    assert parser.seen == 0
    assert not parser.templates()
