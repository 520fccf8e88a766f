"""Lines that are records: message, time and level are found by themselves, or named."""

import json

import pytest

from distinctkv.logs import LogParser, digest
from distinctkv.logs.fields import detect_fields, read_json, read_logfmt, restore_header
from distinctkv.logs.headers import TRACEBACK
from distinctkv.logs.otlp import read_otlp, write_otlp

EVENTS = (
    "door opened",
    "door closed",
    "cache cleared",
    "job scheduled",
    "queue drained",
    "key lost",
)


def records(**names):
    """A JSON line for each of many events, with other fields around."""
    return [
        json.dumps(
            {
                "n": n,
                names.get("time", "time"): f"2024-05-01T10:00:{n % 60:02}Z",
                names.get("level", "level"): ("info", "WARN", "error")[n % 3],
                "user": {"name": f"u{n}", "id": n},
                names.get("message", "msg"): f"{EVENTS[n % len(EVENTS)]} by worker {n}",
            }
        )
        for n in range(120)
    ]


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"message": "message", "time": "@timestamp", "level": "severity"},
        {"message": "event", "time": "ts", "level": "lvl"},
        {"message": "@message", "time": "timestamp", "level": "log.level"},
        {"message": "log", "time": "asctime", "level": "levelname"},
        {"message": "@m", "time": "@t", "level": "@l"},
    ],
)
def test_events_in_json_are_as_many_templates(names):
    rows = digest(records(**names)).rows
    assert [row.template for row in rows] == [f"{event} by worker <*>" for event in EVENTS]
    assert {row.level for row in rows} == {"info", "warning", "error"}
    assert rows[0].first_time == "2024-05-01T10:00:00Z"


@pytest.mark.parametrize("prefix", ["api-1  | ", "[pod/api-7d9c-0/app] ", "pod-7 app ", "x{y} | "])
def test_a_container_may_have_its_name_before_each_record(prefix):
    rows = digest([prefix + line for line in records()]).rows
    assert [row.template for row in rows] == [f"{event} by worker <*>" for event in EVENTS]
    assert {row.level for row in rows} == {"info", "warning", "error"}


def test_records_among_other_lines_keep_their_messages():
    lines = [f"web-1  | GET /door/{n} 200" for n in range(120)]
    lines += [f"api-1  | {line}" for line in records()]
    texts = [row.template for row in digest(lines).rows]
    assert len(texts) == 1 + len(EVENTS)
    assert all(any(event in text for text in texts) for event in EVENTS)


@pytest.mark.parametrize(
    "text", ["Sent", "FATAL: config rejected:", "2024-05-01 12:00:00 ERROR Lost"]
)
def test_text_before_an_object_is_part_of_the_message(text):
    payload = json.dumps({"message": "door", "level": "info", "time": 7})
    templates = {row.template for row in digest([f"{text} {payload}"] * 9 + records()).rows}
    assert any("<*>" in template and "door" not in template for template in templates)
    assert any(text.split()[-1] in template for template in templates)


def test_the_time_before_a_record_is_its_time():
    lines = [
        f"2024-05-01T12:00:{n:02}.5Z stdout F " + json.dumps({"level": "info", "msg": f"door {n}"})
        for n in range(30)
    ]
    [row] = digest(lines).rows
    assert (row.template, row.first_time) == ("door <*>", "2024-05-01T12:00:00.5Z")


def test_half_a_record_is_a_line():
    parser = LogParser()
    parser.add_many(['3,"level":"info","msg":"door opened"}', '{"a": 1, "level": "info"} {}'])
    assert len(parser) == 2


def test_nested_fields_have_dotted_names():
    lines = [
        json.dumps({"log": {"level": "error"}, "event": {"original": f"door {n} opened"}})
        for n in range(30)
    ]
    [row] = digest(lines).rows
    assert (row.template, row.level) == ("door <*> opened", "error")


def test_a_named_field_is_the_message():
    lines = [json.dumps({"msg": "request", "path": f"/door/{n}/open"}) for n in range(30)]
    header = detect_fields(lines, "path")
    assert header.read(lines).messages[7] == "/door/7/open"


def test_events_in_logfmt():
    lines = [
        f'time=2024-05-01T10:00:00Z level=warn msg="{EVENTS[n % 6]} by worker {n}" n={n} ok=true'
        for n in range(60)
    ]
    rows = digest(lines).rows
    assert [row.template for row in rows] == [f"{event} by worker <*>" for event in EVENTS]
    assert {row.level for row in rows} == {"warning"}


@pytest.mark.parametrize(
    "line",
    [
        *("door opened", "a=1 and more", 'msg="open', "a=1", ""),
        "type=LOGIN msg=audit(1763456000.123:41): pid=8 msg='op=login res=failed'",
    ],
)
def test_other_text_is_not_logfmt(line):
    assert read_logfmt(line) is None


@pytest.mark.parametrize("line", ["[1]", "{", "door", '{"a": 1} b', "7", '{"a":' * 5000])
def test_other_text_is_not_json(line):
    assert read_json(line) is None


def test_a_line_that_is_no_record_is_its_own_message():
    lines = [*records(), "Killed", '{"half": ']
    found = digest(lines)
    assert sum(row.count for row in found.rows) == len(lines)
    assert {"Killed", '{"<*>":'} <= {row.template.strip() for row in found.rows}


def test_a_record_without_a_message_is_its_own():
    lines = [*records(), *['{"level":"info","n":7}'] * 3]
    assert sum(row.count for row in digest(lines).rows) == len(lines)


def test_a_container_log_has_the_lines_of_its_program():
    lines = [
        json.dumps(
            {
                "log": f"2024-05-01 10:00:{n % 60:02} ERROR door {n} opened\n",
                "stream": "stdout",
                "time": "2024-05-01T10:00:00Z",
            }
        )
        for n in range(60)
    ]
    [row] = digest(lines).rows
    assert (row.template, row.level) == ("door <*> opened", "error")
    header = detect_fields(lines)
    again = restore_header(json.loads(json.dumps(header.state())))
    assert again.read(lines) == header.read(lines)


def test_levels_in_numbers():
    lines = [json.dumps({"level": 50, "time": n, "msg": "key lost"}) for n in range(9)]
    assert detect_fields(lines).read(lines).levels == ["error"] * 9


def export(*bodies, **record):
    """A line of OTLP with several records."""
    found = [{"body": {"stringValue": body}} | record for body in bodies]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": found}]}]})


def test_records_of_opentelemetry_are_read():
    given = {"timeUnixNano": "1714557600000000000", "severityNumber": 17}
    lines = [export(f"door {n} opened", f"door {n} shut", **given) for n in range(30)]
    found = digest(lines)
    assert [(row.template, row.count) for row in found.rows] == [
        ("door <*> opened", 30),
        ("door <*> shut", 30),
    ]
    assert (found.n_lines, found.n_messages) == (30, 60)
    row = found.rows[1]
    assert (row.level, row.first_line, row.last_line) == ("error", 1, 30)
    assert row.first_time == "2024-05-01T10:00:00.000Z"
    assert restore_header(detect_fields(lines).state()).read(lines[:1]).places == [0, 0]


def test_a_line_may_have_no_record_or_several():
    def line(*bodies):
        found = [{"body": {"stringValue": body}, "timeUnixNano": "1"} for body in bodies]
        return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": found}]}]})

    lines = [line(f"2024-05-01 12:00:{n:02} ERROR door {n} fell") for n in range(30)]
    lines += ['{"resourceLogs": []}', line("a.b.KeyError: lost", "\tat a.b.C(C.java:7)")]
    found = digest(lines)
    assert sum(row.count for row in found.rows) == 30
    assert found.rows[0].exceptions == "a.b.KeyError (1)"


def test_a_body_that_is_no_text_and_a_record_without_time():
    line = json.dumps(
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"intValue": 7}}]}]}]}
    )
    assert [(one.time, one.level) for one in read_otlp(line)] == [("", "")]
    assert read_otlp('{"resourceLogs": 7}') is None


def test_what_is_written_has_the_names_of_opentelemetry():
    text = write_otlp(
        "port=7 to 8", "2024-05-01 10:00:00", "warning", "port=<*> to <*>", ("7", "8")
    )
    [record] = json.loads(text)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    found = {one["key"]: one["value"] for one in record["attributes"]}
    assert found == {
        "log.record.template": {"stringValue": "port=<*> to <*>"},
        "log.record.template.parameter.port": {"stringValue": "7"},
        "log.record.template.wildcards": {
            "arrayValue": {"values": [{"stringValue": "7"}, {"stringValue": "8"}]}
        },
    }
    assert (record["severityText"], record["severityNumber"]) == ("WARNING", 13)
    assert record["timeUnixNano"] == "1714557600000000000"
    assert [one.body for one in read_otlp(text)] == ["port=7 to 8"]
    assert "timeUnixNano" not in write_otlp("a", "May 1 10:00:00", "", "a", ())


JAVA = ["a.Outer: no", "\tat a.B.run(B.java:7)", "Caused by: a.Inner: why", "\t... 3 more"]
PYTHON = [TRACEBACK, '  File "a.py", line 7', "KeyError: 7", "", TRACEBACK, "a.Failed: no"]


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        (JAVA, {"type": "a.Outer", "message": "no"}),
        (PYTHON, {"type": "a.Failed", "message": "no"}),
        (["\tat a.B.run(B.java:7)"], {}),
        (["java.lang.StackOverflowError"], {"type": "java.lang.StackOverflowError"}),
    ],
)
def test_a_trace_is_written_as_an_exception(trace, found):
    text = write_otlp("cannot run", None, "error", "cannot run", (), trace)
    [record] = json.loads(text)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    values = {one["key"]: one["value"]["stringValue"] for one in record["attributes"]}
    named = {f"exception.{name}": value for name, value in found.items()}
    assert (
        values
        == {
            "log.record.template": "cannot run",
            "exception.stacktrace": "\n".join(trace),
        }
        | named
    )
    assert record["body"] == {"stringValue": "cannot run"}


def test_other_lines_of_a_message_are_in_its_body():
    text = write_otlp("query", None, "", "query", (), ["  SELECT 7", "  FROM doors"])
    assert [one.body for one in read_otlp(text)] == ["query\n  SELECT 7\n  FROM doors"]
    assert "exception" not in text
    assert write_otlp("query", None, "", "query", (), [""]) == write_otlp(
        "query", None, "", "query", ()
    )
