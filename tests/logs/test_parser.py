"""The log parser: small logs with their templates, saved parsers, budgets, interrupts."""

import copy
import json
import random
import sys
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Concentration, SnapshotError, snapshot
from distinctkv.logs import LogParser, templates
from distinctkv.logs import parser as module
from distinctkv.logs.tokenizer import MESSAGE_WORD

NAMES = ("ann", "bob", "cas", "dee", "eve", "fay", "gus")
WORDS = tuple(f"{a}{b}{c}" for a in "bcdf" for b in "aeiou" for c in "lmnp")
LOGINS = [f"the user {name} logged in" for name in NAMES]


def parsed(lines, concentration=None):
    parser = LogParser(concentration)
    parser.add_many(lines)
    return parser


def texts(parser):
    return [row.template for row in parser.templates()]


def counts(parser):
    return {row.template: row.count for row in parser.templates()}


# Templates and matches


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
                "Receiving block <*> src: /<*> dest: /<*>": 2,
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
        (  # the same words after the last value are another template
            [*["failure; rhost=10.0.0.1"] * 20, "failure; rhost=10.0.0.1 user=root"],
            {"failure; rhost=<*>": 20, "failure; rhost=<*> user=root": 1},
        ),
    ],
)
def test_lines_have_these_templates(lines, expected):
    assert counts(parsed(lines)) == expected


def test_a_match_says_what_the_line_did():
    parser = LogParser()
    first, again = parser.add("open door 1"), parser.add("open door 2")
    other = parser.add("open gate 1")
    assert (first.opened, first.novelty, first.parameters) == (True, 1.0, ("1",))
    assert (again.opened, again.changed, again.novelty) == (False, False, 0.0)
    assert (other.opened, other.novelty) == (True, 0.5)
    assert "template='open door <*>', parameters=('2',)" in repr(again)


def test_novelty_is_the_distance_to_the_nearest_template_among_many():
    """The nearest one may be younger than 32 others, and begin with another word."""
    parser = LogParser()
    parser.add_many(f"disk {word} {word} {word} {word} {word}" for word in WORDS)
    parser.add("disk array two was not found")
    assert parser.add("disk array two was not ready").novelty == pytest.approx(1 / 6)
    assert parser.add("disc array two was not found").novelty == pytest.approx(1 / 6)


def test_a_change_of_the_text_is_reported_once():
    parser = LogParser()
    assert parser.add("open port ssh2").template == "open port ssh2"
    match = parser.add("open port ssh1")
    assert (match.changed, match.opened, match.template) == (True, False, "open port <*>")
    matches = [parser.add(line) for line in LOGINS]
    assert [match.changed for match in matches] == [n == 4 for n in range(7)]
    assert matches[4].template == "the user <*> logged in"


@pytest.mark.parametrize(
    ("line", "template", "parameters"),
    [
        (
            "at Fri Jun 17 07:07:00 2005 for user root: [1, 2] from /10.0.0.1:80 took 5 ms (ssh2)",
            "at <*> for user <*>: [<*>, <*>] from /<*> took <*> ms (ssh2)",
            ("Fri Jun 17 07:07:00 2005", "root", "1", "2", "10.0.0.1:80", "5"),
        ),
        ("start 130:a.b.c now", "start <*>:<*> now", ("130", "a.b.c")),
        ("log to org.slf4j.Door by 7", "log to <*> by <*>", ("org.slf4j.Door", "7")),
        ("\x1b[31mdisk 5 failed\x1b[0m", "disk <*> failed", ("5",)),
        ("user <*> on 7", "user <*> on <*>", ("<*>", "7")),
    ],
)
def test_parameters_are_those_of_the_template(line, template, parameters):
    match = LogParser().add(line)
    assert (match.template, match.parameters) == (template, parameters)


def test_templates_know_their_first_and_last_line():
    first, second = parsed(["start 1", "stop", "start 2", "start 3"]).templates()
    assert (first.count, first.first_seen, first.last_seen) == (3, 0, 3)
    assert (second.id, second.examples) == (1, ("stop",))


def test_an_id_stays_good_when_its_template_becomes_part_of_another():
    parser = LogParser()
    ids = [parser.add(line).id for line in LOGINS]
    assert ids == [0, 1, 2, 3, 0, 0, 0]
    assert {parser.resolve(number) for number in ids} == {0}
    assert parser.add("the user zoe logged in").id == 0
    assert parser.resolve(99) is None


def test_match_changes_nothing():
    parser = parsed(["open door 1"])
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
    short = LogParser(max_line=10)
    short.add_many(["ああああ".encode(), "あ" * 10, ("あ" * 10).encode(), ("あ" * 11).encode()])
    assert short.truncated == 1


def test_many_values_collapse_into_one_variant():
    names = [f"{a}{b}{c}" for a in "bcdfghjk" for b in "aeiou" for c in "lmnpqrst"]
    parser = parsed(f"the user {name} logged in" for name in names)
    assert parser.n_variants <= templates.MAX_VARIANTS
    assert [row.count for row in parser.templates()] == [len(names)]
    ids = {parser.match(f"the user {name} logged in").id for name in ("zoe", names[0])}
    assert len(ids) == 1


def test_few_new_names_open_templates_however_many_lines_are_known(seed):
    draw = random.Random(seed)

    def word():
        return "".join(draw.choices("abcdefghij", k=6))

    parser = parsed(" ".join(word() for _ in range(7)) for _ in range(3000))
    opened = [parser.add(f"session opened for {word()} today by cron").opened for _ in range(500)]
    assert sum(opened) <= 16


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
    assert parser.seed(["user <*> is <*>", "door <*> is shut"]) == [0, 1]
    assert [row.count for row in parser.templates()] == [0, 0]
    assert parser.add("user ann is in").id == 0
    assert parser.add("door back is shut").id == 1
    assert parser.add("user 7 is 8").id == 0
    assert [row.count for row in parser.templates()] == [2, 1]


def test_a_seed_takes_earlier_lines():
    parser = parsed(["disk one failed", "disk two failed"])
    assert len(parser) == 2
    [number] = parser.seed(["disk <*> failed"])
    assert [(row.id, row.count) for row in parser.templates()] == [(number, 2)]


def test_a_parser_absorbs_another():
    one, other = parsed(["start 1", "stop"]), parsed(["hello", "stop", "start 2"])
    assert one.absorb(other) == {0: 2, 1: 1, 2: 0}
    assert [(row.template, row.count, row.last_seen) for row in one.templates()] == [
        ("start <*>", 2, 4),
        ("stop", 2, 3),
        ("hello", 1, 2),
    ]


def test_a_parser_prints_in_a_line():
    parser = parsed(["a", "b"], Concentration.fixed(0.3, 50))
    assert repr(parser) == "LogParser(tau=0.3, budget 50, 2 templates for 2 lines)"


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: LogParser(Concentration.fixed(1.5)), ValueError, "tau"),
        (lambda: LogParser(min_distinct_values=1), ValueError, "min_distinct_values"),
        (lambda: LogParser(min_distinct_values=float("nan")), ValueError, "min_distinct_values"),
        (lambda: LogParser(max_line=0), ValueError, "max_line"),
        (lambda: LogParser().add(7), TypeError, "got int"),
        (lambda: LogParser().add_many("a line"), TypeError, "in a list"),
        (lambda: LogParser().seed(b"a line"), TypeError, "in a list"),
        (lambda: LogParser().absorb(LogParser(min_distinct_values=6)), ValueError, "setting"),
        (lambda: (one := LogParser()).absorb(one), ValueError, "itself"),
        (
            lambda: parsed([], Concentration.fixed(0.3, 3, decay=0.9)).absorb(
                parsed([], Concentration.fixed(0.3, 3, decay=0.5))
            ),
            ValueError,
            "decay",
        ),
    ],
)
def test_errors(call, error, word):
    with pytest.raises(error, match=word):
        call()


def test_a_list_with_something_else_than_lines_is_refused_before_any_is_counted():
    parser = LogParser()
    with pytest.raises(TypeError, match="NoneType at 2"):
        parser.add_many(["alpha beta", "gamma delta", None, "x"])
    assert parser.seen == 0
    assert parser.add("alpha beta").opened


# Message fields

EVENTS = (
    "door opened", "door closed", "user logged out", "cache cleared", "starting worker", "idle",
    "session expired", "config reloaded", "job scheduled", "queue drained", "link.down",
)  # fmt: skip
FORMS = [
    '{{"ts":17,"level":"info","logger":"app","msg":"{}","door":7}}',
    '{{"log":"{}\\n","stream":"stdout","time":"2025-03-14T10:00:07Z"}}',
    '{{"log":"{{\\"level\\":\\"info\\",\\"msg\\":\\"{}\\",\\"door\\":7}}\\n","stream":"stdout"}}',
    '{{"level": "info", "message": "{}"}}',
    'level=info caller=door.go:17 msg="{}" door=7',
    "{{'event': '{}', 'level': 'info'}}",
    '"{}" pod="a/b" level="info"',
]


@pytest.mark.parametrize("form", FORMS)
def test_words_of_a_message_are_compared_with_words_of_messages_only(form):
    assert len(texts(parsed([form.format(event) for event in EVENTS] * 9))) == len(EVENTS)
    [found] = texts(parsed(form.format(f"user {name} logged in") for name in NAMES[:6]))
    assert "user <*> logged in" in found
    short = parsed(form.format(f"hello {name}") for name in NAMES[:6])
    assert len(texts(short)) == 6  # other fields do not make up for a short message


@pytest.mark.parametrize(
    ("form", "words", "n_templates"),
    [
        (
            "level=info msg={} door=7",
            ("started", "stopped", "idle", "waiting", "failed", "done"),
            6,
        ),
        ('level=info msg="{}" door=7', ("Monitor", "Marked", "Decoded", "Friends", "Thumb"), 5),
        (  # what a person said
            'got message: "{}" from door 7',
            ("hello there", "good night to you", "who is it", "come in", "not now", "who are you"),
            1,
        ),
        (
            'level=info msg="{}"',
            ("since Fri Mar 7 2024 took 5 ms", "since May 8 2024 took 7 ms"),
            1,
        ),
    ],
)
def test_messages(form, words, n_templates):
    assert len(texts(parsed([form.format(word) for word in words] * 9))) == n_templates


def test_names_in_brackets_in_a_message_stay_values():
    form = '{{"level":"info","logger":"app","msg":"{} started","door":7}}'
    lines = [form.format(f"[{name}]") for name in NAMES]
    parser = parsed([*lines, form.format("Server")])
    parser.templates()
    assert len({parser.match(line).id for line in lines}) == 1


def test_marks_of_messages_are_not_visible():
    parser = parsed(f'level=info msg="door 7 opened by {name} at noon"' for name in NAMES)
    [row] = parser.templates()
    match = parser.match('level=info msg="door 7 opened by zoe at noon"')
    assert match.parameters == ("7", "zoe")
    assert MESSAGE_WORD not in match.template + row.template + "".join(row.examples)


# The caches of lines change no answer

UNSEEN = st.text("abcdegEFklmnopqrst", min_size=3, max_size=6) | st.from_regex(
    r"[a-f]{0,2}[0-9]{1,2}[a-f]?", fullmatch=True
)
LINE_FORMS = (
    "open {} now", "state={} at 12", "for user {} from 10.0.0.1", "[{}] took 5 {}", "{}: done",
    "{}:443 up", 'said "{} {}"', "{}, {}; ({}).", "invalid {} user {}", "set {} user to {}",
    "open {0} {0} {1}", "msg={} at 3", "level=info event={} door={}", "the door is {}", "at: {} {}",
)  # fmt: skip
LINES = st.lists(st.tuples(st.sampled_from(LINE_FORMS), UNSEEN, UNSEEN, UNSEEN), max_size=200).map(
    lambda rows: [form.format(*words) for form, *words in rows]
)
POLICIES = [Concentration.fixed(0.3), Concentration.fixed(0.3, budget=12)]


def answers(lines, policy, cached):
    """Every answer of a parser, and its templates at the end."""
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(module, "MAX_LENGTH", cached)
        changes.setattr(templates, "MAX_VARIANTS", 6)
        parser = LogParser(policy)
        rows = [parser.add(line) for line in lines]
        found = [(m.id, m.template, m.parameters, m.novelty, m.opened, m.changed) for m in rows]
        matches = [(m.id, m.template, m.parameters) for line in lines if (m := parser.match(line))]
        return found, matches, [(row.template, row.count) for row in parser.templates()]


def test_a_line_that_was_cut_is_counted_as_such_each_time():
    parser = LogParser(max_line=10)
    parser.add_many(["took 17 s of 20", "took 18 s of 30", b"took 19 s of 40", "took 11 s "])
    assert (parser.truncated, texts(parser)) == (3, ["took <*> s "])


@pytest.mark.parametrize("policy", POLICIES, ids=["free", "budget"])
@given(lines=LINES)
def test_cached_lines_change_no_answer(policy, lines):
    assert answers(lines * 2, policy, 1000) == answers(lines * 2, policy, 0)


def test_what_is_said_of_a_line_is_what_templates_say():
    parser = LogParser()
    for name in NAMES:
        line = f"the user {name} logged in"
        match = parser.add(line)
        texts = {row.id: row.template for row in parser.templates()}
        assert parser.match(line).id == match.id
        assert texts[match.id] == match.template == parser.match(line).template


# Budget


def test_the_least_used_template_is_evicted_first():
    lines = ["red", "red", "green", "blue", "blue"]
    parser = parsed(lines, Concentration.fixed(0.3, 2, decay=1.0))
    assert (texts(parser), parser.forgotten) == (["red", "blue"], 1)
    lines = ["red", "red", "green", "green", "green", "blue"]
    assert texts(parsed(lines, Concentration.fixed(0.3, 2, decay=0.5))) == ["green", "blue"]


def test_the_last_line_stays_and_an_id_is_never_given_again():
    parser = LogParser(Concentration.fixed(0.3, 1))
    assert list(parser.add_many(["red", "blue", "red"])) == [-1, -1, 2]
    assert parser.resolve(0) is None
    assert parser.add("blue").id == parser.match("blue").id == 3


def test_variants_collapse_before_templates_are_evicted():
    lines = [f"the user {word} logged in" for word in WORDS]
    parser = parsed(lines, Concentration.fixed(0.3, 25, decay=1.0))
    assert counts(parser) == {"the user <*> logged in": len(WORDS)}
    assert parser.forgotten == 0


def test_seeds_are_kept_and_do_not_count():
    parser = LogParser(Concentration.fixed(0.3, 1))
    parser.seed(["red", "green <*>"])
    parser.add_many(["blue", "black", "green 5"])
    assert texts(parser) == ["red", "green <*>", "black"]


def test_surprise_allows_more():
    parser = parsed(WORDS, Concentration.surprise(0.3, base=2, gain=100, rate=0.1))
    assert len(parser) > 50
    parser.add_many(["calm"] * 100)
    assert len(parser) == 2
    assert parser.temperature < 0.001


def test_temperature_is_that_of_the_paper():
    parser = LogParser(Concentration(tau=0.3, rate=0.25))
    temperature = 0.0
    for line, opened in (("red", 1), ("red", 0), ("blue", 1), ("red", 0)):
        parser.add(line)
        temperature = 0.75 * temperature + 0.25 * opened
        assert parser.temperature == pytest.approx(temperature)
    assert parser.budget == float("inf")


def test_names_are_grouped_when_no_more_variants_are_allowed():
    others = [f"{a} {b} is {a} {b}" for a in WORDS[:6] for b in WORDS[:6]]
    parser = parsed(others, Concentration.fixed(0.3, 20))
    opened = [parser.add(f"session opened for {word} today").opened for word in WORDS]
    assert not any(opened[40:])


def after_eviction():
    """A parser whose templates of users were evicted."""
    policy = Concentration.fixed(0.3, 20)
    parser = parsed((f"the user {word} logged in" for word in WORDS[:30]), policy)
    parser.add_many([*WORDS[:20] * 20, *WORDS[:10] * 20])  # the other ten may be evicted next
    assert parser.match(f"the user {WORDS[30]} logged in") is None
    return parser


def test_lines_of_an_evicted_template_share_an_id_again():
    parser = after_eviction()
    again = [parser.add(f"the user {word} logged in") for word in WORDS[30:36]]
    assert [match.opened for match in again] == [True] * 4 + [False] * 2
    assert len({parser.resolve(match.id) for match in again}) == 1


@pytest.mark.parametrize("ask", [False, True])
def test_values_of_an_evicted_template_collapse_again(monkeypatch, ask):
    monkeypatch.setattr(templates, "MAX_VARIANTS", 8)
    parser = after_eviction()
    if ask:
        parser.templates()
    held = parser.n_variants
    parser.add_many(f"the user {word} logged in" for word in WORDS[30:36])
    assert parser.n_variants <= held + 1
    assert counts(parser)["the user <*> logged in"] == 6


@pytest.mark.parametrize("budget", [3, float("inf")])
def test_the_most_used_template_is_not_evicted_when_absorbed(budget):
    parser = parsed(["red", "green one", "blue two three"], Concentration.fixed(0.3, 3))
    other = parsed(["a hot line of text"] * 1000, Concentration.fixed(0.3, budget))
    assert parser.absorb(other) == {0: 3}
    assert texts(parser) == ["green one", "blue two three", "a hot line of text"]


def test_the_order_of_eviction_is_bounded(monkeypatch):
    monkeypatch.setattr(templates, "MAX_VARIANTS", 4)
    parser = LogParser(Concentration.fixed(0.3, 1000))
    for name in WORDS:
        parser.add_many(f"{name} said {word} to the {name} again" for word in WORDS)
    assert len(parser._budget._order) <= 2 * parser.n_variants + module.SPARE + 1


# Saved parsers

SAVED = [f"{line} (3)" for line in LOGINS[:5]] + ["odd \udc80 \0 line", "", "open port ssh2"]


@pytest.fixture
def path(tmp_path):
    policy = Concentration.surprise(0.3, base=20)
    parser = LogParser(policy, min_distinct_values=4, max_line=99)
    parser.seed(["shut <*>"])
    parser.add_many(SAVED)
    parser.save(tmp_path / "logs")
    return tmp_path / "logs"


def test_a_loaded_parser_is_the_saved_one(path, tmp_path):
    parser = LogParser.load(path)
    assert (parser.seen, parser.min_distinct_values) == (8, 4)
    assert parser.max_line == 99
    parser.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert [row.count for row in parser.templates()] == [0, 5, 1, 1, 1]
    first = parser.templates()[1].id
    assert {parser.resolve(number) for number in range(first, first + 4)} == {first}
    assert parser.add("something new").id == parser.match("something new").id == 8


def test_an_empty_parser_can_be_saved(tmp_path):
    LogParser().save(tmp_path / "empty")
    parser = LogParser.load(tmp_path / "empty")
    assert (parser.seen, parser.templates(), parser.budget) == (0, [], float("inf"))


def damaged(texts):
    one, two = (row[0] for row in texts["templates"][:2])
    yield {}
    yield []
    yield texts | {"variants": 3}
    yield texts | {"templates": [[one, [two], None], *texts["templates"][1:]]}
    yield texts | {"templates": texts["templates"][1:]}
    yield texts | {"variants": [[*row[:-1], 99] for row in texts["variants"]]}


@pytest.mark.parametrize("number", range(6))
def test_a_file_that_describes_no_parser_is_refused(path, number):
    tensors, state = snapshot.load(path, "log parser")
    bad = [*damaged(json.loads(tensors["texts"].tobytes()))][number]
    tensors["texts"] = np.frombuffer(json.dumps(bad).encode(), np.uint8)
    snapshot.save(path, "log parser", tensors, state)
    with pytest.raises(SnapshotError, match="does not describe a parser"):
        LogParser.load(path)


# Interrupts


def lines_run(update, limit):
    """Interrupt an update after so many lines of the library's code; how many were run."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if "distinctkv" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        if count > limit:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            update()
    finally:
        sys.settrace(before)
    return count


OTHERS = [f"{word} said {name} {name} again" for name in NAMES for word in WORDS[:9]]
UPDATES = {
    "add": lambda parser, _: [parser.add(line) for line in OTHERS],
    "add_many": lambda parser, _: parser.add_many(OTHERS),
    "seed": lambda parser, _: parser.seed(["the user <*> logged in"]),
    "absorb": lambda parser, other: parser.absorb(other),
}


@pytest.mark.parametrize("update", UPDATES)
def test_an_interrupted_parser_saves_nothing_or_a_state_that_loads(update, tmp_path, seed):
    draw, path = random.Random(seed), tmp_path / "state"
    parser = parsed(LOGINS[:4] * 2, Concentration.fixed(0.3, 12))
    parser.save(path)
    saved, refused = path.read_bytes(), 0

    def run(limit):
        made = copy.copy(parser)
        return made, lines_run(partial(UPDATES[update], made, parsed(OTHERS)), limit)

    _, total = run(float("inf"))
    for _ in range(30):
        made, _ = run(draw.randrange(total))
        path.write_bytes(saved)
        if made._guard.dirty:
            refused += 1
            for use in (made.templates, partial(made.add, "one more"), partial(made.save, path)):
                with pytest.raises(RuntimeError, match="interrupted"):
                    use()
            assert path.read_bytes() == saved
        else:
            made.save(path)
            LogParser.load(path).templates()
    assert refused


@pytest.mark.parametrize(
    "text",
    [
        "Backup result: {}",
        "order=7 state={} took=0.1s",
        "unit nginx: running -> {}",
        "job 7 for tenant 3 finished with result {}",
    ],
)
def test_outcomes_stay_apart(text):
    parser = LogParser()
    parser.add_many([text.format(word) for word in ("success", "failed") for _ in range(30)])
    assert len(parser) == 2


def test_a_message_has_its_own_text_whatever_joins_its_words():
    parser = LogParser()
    for n in (3, 4):
        match = parser.add(f'msg="out-of-order sample for foo.bar" n={n}')
    assert match.template == 'msg="out-of-order sample for foo.bar" n=<*>'
    assert match.parameters == ("4",)
