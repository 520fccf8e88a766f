"""Lines of named fields: what happened is in one of them."""

from time import process_time

import pytest

from distinctkv.logs import LogParser
from distinctkv.logs.tokenizer import TOLD

EVENTS = (
    "door opened", "door closed", "user logged out", "cache cleared", "starting worker", "idle",
    "session expired", "config reloaded", "job scheduled", "queue drained", "link.down",
)  # fmt: skip
NAMES = ("ann", "bob", "cas", "dee", "eve", "fay")
FORMS = [
    '{{"ts":17,"level":"info","logger":"app","msg":"{}","door":7}}',
    '{{"log":"{}\\n","stream":"stdout","time":"2025-03-14T10:00:07Z"}}',
    '{{"log":"{{\\"level\\":\\"info\\",\\"msg\\":\\"{}\\",\\"door\\":7}}\\n","stream":"stdout"}}',
    '{{"level": "info", "message": "{}"}}',
    'level=info caller=door.go:17 msg="{}" door=7',
    "{{'event': '{}', 'level': 'info'}}",
]


def templates(lines):
    parser = LogParser()
    parser.add_many(lines)
    return [row.template for row in parser.templates()]


@pytest.mark.parametrize("form", FORMS)
def test_events_are_apart_though_all_other_fields_are_alike(form):
    assert len(templates([form.format(event) for event in EVENTS] * 9)) == len(EVENTS)


@pytest.mark.parametrize("form", FORMS)
def test_names_in_a_message_are_values(form):
    [found] = templates([form.format(f"user {name} logged in") for name in NAMES])
    assert "user <*> logged in" in found


@pytest.mark.parametrize("form", FORMS)
def test_other_fields_do_not_make_up_for_a_short_message(form):
    assert len(templates([form.format(f"hello {name}") for name in NAMES])) == len(NAMES)


def test_a_message_of_one_word_has_no_quotes():
    words = ("started", "stopped", "idle", "waiting", "failed", "done")
    assert len(templates([f"level=info msg={word} door=7" for word in words] * 9)) == len(words)


def test_what_a_person_said_is_a_value():
    said = ("hello there", "good night to you", "who is it", "come in", "not now", "who are you")
    assert len(templates([f'got message: "{text}" from door 7' for text in said])) == 1


def test_words_that_begin_like_months_and_days_are_words():
    words = ("Monitor", "Marked", "Decoded", "Friends", "Thumbnail")
    assert len(templates([f'level=info msg="{word}" door=7' for word in words] * 9)) == len(words)


def test_what_shares_a_template_goes_on_sharing_it():
    form = '{{"level":"info","logger":"app","msg":"{} started","door":7}}'
    lines = [form.format(f"[{name}]") for name in NAMES]
    parser = LogParser()
    parser.add_many([*lines, form.format("Server")])
    parser.templates()
    assert len({parser.match(line).id for line in lines}) == 1


def test_names_of_fields_again_and_again_take_no_time():
    spent = []
    for name in ("abc", "msg"):
        start = process_time()
        LogParser().add(f"{name}=" * 2_400 + '"')
        spent.append(process_time() - start)
    assert spent[1] < 0.05 + 5 * spent[0]


def test_dates_and_units_in_a_message_are_values():
    texts = ("since Fri Mar 7 2024 took 5 ms", "since May 8 2024 took 7 ms")
    [found] = templates([f'level=info msg="{text}"' for text in texts])
    assert found == 'level=info msg="since <*> took <*> ms"'


def test_marks_are_seen_by_nobody():
    parser = LogParser()
    parser.add_many([f'level=info msg="door 7 opened by {name} at noon"' for name in NAMES])
    [row] = parser.templates()
    match = parser.match('level=info msg="door 7 opened by gus at noon"')
    assert match.parameters == ("7", "gus")
    assert TOLD not in match.template + row.template + "".join(row.examples)
