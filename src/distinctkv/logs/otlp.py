"""Log records of OpenTelemetry, in JSON lines of OTLP: read, and written with their templates."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .headers import TRACEBACK, exception_of, level_of, seconds_of

# The attributes of OpenTelemetry's drain processor: PARAMETER.<name> are values with a name,
# WILDCARDS all values in order.
TEMPLATE = "log.record.template"
PARAMETER, WILDCARDS = f"{TEMPLATE}.parameter", f"{TEMPLATE}.wildcards"
WILDCARD = "<*>"
# Severity numbers of OpenTelemetry are four for each level, from 1; a notice is the second of info.
_SEVERITIES = {
    **{"trace": 1, "debug": 5, "info": 9, "notice": 10, "warning": 13, "error": 17},
    "critical": 21,
}
_LEVELS = ("", "trace", "debug", "info", "warning", "error", "critical")
_frame = re.compile(r"\s+at \S|\s+File \"|goroutine \d+ \[")
_name = re.compile(r"""([A-Za-z_][\w.-]*)(?:=|: ?)["'(\[]?$""")


class LogRecord(NamedTuple):
    """A record: its body as text, its time and its level, both empty if not known."""

    body: str
    time: str | None
    level: str


def read_otlp(line: str) -> list[LogRecord] | None:
    """The records of an export request in JSON; None if the line is none.

    >>> read_otlp(write_otlp("door 7", "1970-01-01 00:00:01", "error", "door <*>", ("7",)))
    [LogRecord(body='door 7', time='1970-01-01T00:00:01.000Z', level='error')]
    """
    if "resourceLogs" not in line:
        return None
    try:
        scopes = [scope for one in json.loads(line)["resourceLogs"] for scope in one["scopeLogs"]]
        return [_read(record) for scope in scopes for record in scope["logRecords"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def write_otlp(
    body: str,
    time: str | None,
    level: str,
    template: str,
    parameters: Sequence[str],
    more: Sequence[str] = (),
) -> str:
    """An export request with one record, its template and values as attributes.

    A value is named by the word before it (`port=<*>`, `port: <*>`).
    ``more`` are the lines after the first one: a stack trace, or else a part of the body.
    """
    attributes = {TEMPLATE: template}
    attributes |= {
        f"{PARAMETER}.{name}": text for name, text in _named(template, parameters).items()
    }
    if exception := _exception(more):
        attributes |= exception
    elif any(map(str.strip, more)):
        body = "\n".join([body, *more]).rstrip()
    record: dict[str, Any] = {}
    # A time without a year says too little.
    seconds = seconds_of(time) if time and re.search(r"\d{4}", time) else None
    if seconds is not None:
        record["timeUnixNano"] = str(round(seconds * 1e6) * 1000)
    if level:
        record |= {"severityNumber": _SEVERITIES[level], "severityText": level.upper()}
    record["body"] = {"stringValue": body}
    record["attributes"] = [
        {"key": name, "value": {"stringValue": text}} for name, text in attributes.items()
    ]
    if parameters:
        values = [{"stringValue": text} for text in parameters]
        record["attributes"].append({"key": WILDCARDS, "value": {"arrayValue": {"values": values}}})
    scopes = [{"scope": {"name": "distinctkv"}, "logRecords": [record]}]
    request = {"resourceLogs": [{"resource": {}, "scopeLogs": scopes}]}
    return json.dumps(request, ensure_ascii=False)


def _exception(lines: Sequence[str]) -> dict[str, str]:
    """The attributes of an exception, by its stack trace; none if the lines are no trace.

    Java writes the exception that was thrown last first, Python last.

    >>> _exception(["IOError: no", "  at run (a.js:7)"])["exception.type"]
    'IOError'
    """
    named = [line for line in lines if exception_of(line)]
    if not named and not any(map(_frame.match, lines)):
        return {}
    found = {"exception.stacktrace": "\n".join(lines)}
    own = [line for line in named if not line.startswith(("Caused by: ", "Suppressed: "))]
    if own:
        line = own[-1 if TRACEBACK in lines else 0]
        found["exception.type"] = name = exception_of(line)
        if message := line[len(name) + 1 :].strip():
            found["exception.message"] = message
    return found


def _named(template: str, values: Sequence[str]) -> dict[str, str]:
    """The values that have a name before them, by the name; the first one of each.

    >>> _named("from <*> port=<*> to <*> port=<*>", ["a", "7", "b", "8"])
    {'port': '7'}
    """
    found: dict[str, str] = {}
    for text, value in zip(template.split(WILDCARD), values, strict=False):
        if name := _name.search(text):
            found.setdefault(name[1], value)
    return found


def _read(record: dict[str, Any]) -> LogRecord:
    body = record.get("body") or {}
    value = body.get("stringValue", body) if isinstance(body, dict) else body
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    number = str(record.get("severityNumber") or 0)
    place = (int(number) + 3) // 4 if number.isdecimal() else 0
    level = level_of(str(record.get("severityText") or "")) or _LEVELS[min(place, 6)]
    return LogRecord(text.rstrip("\r\n"), _time(record), level)


def _time(record: dict[str, Any]) -> str:
    nanoseconds = str(record.get("timeUnixNano") or record.get("observedTimeUnixNano") or "")
    if not nanoseconds.isdecimal():
        return ""
    at = datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
