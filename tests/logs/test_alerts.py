"""Alerts: one for each new template, when it has settled and came often enough."""

import json

import pytest

from distinctkv.logs import LogParser
from distinctkv.logs.alerts import SETTLE_LINES, AlertRule
from distinctkv.logs.job import Job


def lines(*messages, level="INFO"):
    """A line a second."""
    return [
        f"2024-05-01 10:{n // 60 % 60:02}:{n % 60:02} {level} {message}"
        for n, message in enumerate(messages)
    ]


@pytest.fixture
def alerts(tmp_path):
    """The alerts of some lines under a rule, and the templates."""

    def found(rows, *rule, chunk_size=1 << 12, **named):
        path = tmp_path / "app.log"
        path.write_text("".join(f"{row}\n" for row in rows))
        given = {"detect_header": True, "chunk_size": chunk_size}
        job = Job([str(path)], LogParser(), alert_rule=AlertRule(*rule, **named), **given)
        rows = [alert for batch in job for alert in job.watch(batch)]
        return [*rows, *job.last_alerts()], job.templates()

    return found


def test_names_at_one_place_are_one_alert(alerts):
    names = [f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in ("ra", "lin", "to", "pex")]
    rows = lines(*(f"package {name} was installed" for name in names * 9))
    assert len(rows) > SETTLE_LINES
    found, templates = alerts(rows)
    assert [one.template for one in templates] == ["package <*> was installed"]
    assert [(one.template, one.id) for one in found] == [(templates[0].template, templates[0].id)]


def test_an_alert_comes_before_the_end(alerts):
    rows = lines("key lost", *(f"door {n} opened" for n in range(2 * SETTLE_LINES)), "bell rang")
    [first, *_, last], _ = alerts(rows)
    assert (first.template, first.number) == ("key lost", 1)
    assert (last.template, last.number, last.seen) == ("bell rang", len(rows), 1)


def test_so_many_lines_must_come_within_a_time(alerts):
    messages = [f"door {n} opened" for n in range(600)]
    for place in (100, 200, 300, 400, 401, 402):  # 100 s apart, then three in 2 s
        messages[place] = "key lost"
    messages[150] = "bell rang"
    found, _ = alerts(lines(*messages), 3, 90.0)
    assert [one.template for one in found] == ["door <*> opened", "key lost"]
    early, _ = alerts(lines(*messages[:399]), 3, 90.0)
    assert [one.template for one in early] == ["door <*> opened"]
    slow, _ = alerts(lines(*messages[:399]), 3)
    assert [one.template for one in slow] == ["door <*> opened", "key lost"]


def test_what_comes_in_the_warm_up_is_known(alerts):
    messages = ["key lost", *(f"door {n} opened" for n in range(300)), "key lost", "bell rang"]
    found, _ = alerts(lines(*messages), warmup=60.0)
    assert [one.template for one in found] == ["bell rang"]


def test_a_level_is_the_least_and_lines_without_one_count(alerts):
    rows = [*lines("door opened", "door shut"), *lines("key lost", level="ERROR")]
    found, _ = alerts([*rows * 9, "2024-05-01 11:00:00 bell rang"], level="warning")
    assert [(one.template, one.level) for one in found] == [
        ("key lost", "error"),
        ("bell rang", ""),
    ]


@pytest.mark.parametrize("given", [{"times": 0}, {"level": "loud"}])
def test_a_wrong_rule_is_refused(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        AlertRule(**given)


def test_what_waits_is_kept_in_the_state(tmp_path):
    path, state = tmp_path / "app.log", tmp_path / "app.state"
    text = "".join(f"{row}\n" for row in lines(*(f"door {n} opened" for n in range(900))))
    path.write_text(text)

    def watch():
        parser = LogParser.load(state) if state.exists() else LogParser()
        job = Job([str(path)], parser, state=state, detect_header=True)
        found = [alert for batch in job for alert in job.watch(batch)]
        job.save()
        return job, found

    job, found = watch()
    assert found == []
    assert json.dumps(job.watched.state())
    path.write_text(text + text)
    job, found = watch()
    found += job.last_alerts()
    assert [(one.template, one.number) for one in found] == [("door <*> opened", 1)]
