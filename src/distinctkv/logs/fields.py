r"""Lines that are records of fields: JSON, logfmt, and the logs of OpenTelemetry.

Which field is the message, the time or the level is found by name in the first lines. The other
fields of a record are not part of its message.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .headers import Header, Records, detect_header, level_of
from .otlp import LogRecord, read_otlp
from .tokenizer import BEFORE_RECORD

NAMES: Mapping[str, tuple[str, ...]] = {  # of fields in lower case, the most telling first
    "message": (
        *("message", "msg", "@message", "short_message", "log", "body", "text", "event"),
        *("eventname", "log.message", "event.original", "textpayload", "jsonpayload.message"),
        *("@m", "@mt"),
    ),
    "time": (
        *("time", "timestamp", "@timestamp", "ts", "datetime", "date", "asctime", "t", "when"),
        *(
            "created_at",
            "eventtime",
            "event_time",
            "log.time",
            "__realtime_timestamp",
            "@t",
            "(before)",
        ),
    ),
    "level": (
        *("level", "severity", "levelname", "lvl", "log.level", "loglevel", "log_level"),
        *("severity_text", "severitytext", "priority", "syslog.severity", "@l"),
    ),
}
MIN_SHARE = 0.9  # of the first lines must be records
DEPTH = 3  # of nested objects, their names joined by dots
Fields = dict[str, Any]


def _flatten(
    record: Mapping[str, Any], prefix: str = "", depth: int = 1
) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        yield f"{prefix}{name}", value
        if isinstance(value, dict) and depth < DEPTH:
            yield from _flatten(value, f"{prefix}{name}.", depth + 1)


def read_json(line: str) -> Fields | None:
    """The fields of a JSON object, those of nested ones with dotted names; None if it is none.

    The name of a container before it is left out; a time there is the field ``(before)``.

    >>> read_json('api-1  | {"log": {"level": "info"}, "n": 7}')["log.level"]
    'info'
    """
    line = line.lstrip("\ufeff \t")
    before = None if line.startswith("{") else BEFORE_RECORD.match(line)
    if before is None and not line.startswith("{"):
        return None
    try:
        record = json.loads(line if before is None else line[before.end() :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    time = None if before is None else before["time"]
    return dict(_flatten(record)) | ({} if time is None else {"(before)": time})


_pair = re.compile(r"([A-Za-z_@][\w.@/-]*)=(\"(?:[^\"\\]|\\.)*\"|[^\s\"']*(?<!:))(?:\s+|$)")
_escaped = re.compile(r"\\(.)")


def read_logfmt(line: str) -> Fields | None:
    r"""The fields of a line in logfmt; None if it has fewer than two, or other text.

    >>> read_logfmt('level=warn msg="door \\"7\\" is open" n=7')
    {'level': 'warn', 'msg': 'door "7" is open', 'n': '7'}
    """
    fields, end = {}, 0
    while found := _pair.match(line, end):
        name, value = found.groups()
        quoted = value.startswith('"')
        fields[name] = _escaped.sub(r"\1", value[1:-1]) if quoted else value
        end = found.end()
    return fields if len(fields) > 1 and end == len(line) else None


_READERS: Mapping[str, Callable[[str], Fields | None]] = {"json": read_json, "logfmt": read_logfmt}


class FieldHeader(Header):
    """The message, time and level of records in one format, by the names of their fields.

    >>> header = detect_fields(['{"ts": 1, "lvl": "warn", "msg": "door 7 opened"}'] * 9)
    >>> header.read(['{"ts": 2, "lvl": "info", "msg": "door 8 opened"}'])
    Records(messages=['door 8 opened'], times=['2'], levels=['info'], places=[0])
    """

    def __init__(self, form: str, names: Mapping[str, str], inner: Header | None = None) -> None:
        super().__init__(f"{form}:", tuple(f"{kind}={name}" for kind, name in names.items()))
        self.form, self.names, self.inner = form, dict(names), inner

    @property
    def has_time(self) -> bool:
        """Whether there is a field for the time."""
        return "time" in self.names

    def strip(self, lines: Sequence[str]) -> tuple[list[str], list[str | None]]:
        """Messages and times; a line that is no record is its own message, with time None."""
        found = self.read(lines)
        return found.messages, found.times

    def read(self, lines: Sequence[str], begun: bool = False, traced: bool = False) -> Records:
        """Messages, times and levels of records; one without a message is its own."""
        found = Records([], [], [], [])
        read, get = _READERS[self.form], self.names.get
        for place, line in enumerate(lines):
            fields = read(line)
            message = None if fields is None else fields.get(get("message", ""))
            time = None if fields is None else _text(fields.get(get("time", ""), ""))
            level = "" if fields is None else _level(fields.get(get("level", ""), ""))
            found.messages.append(line if message is None else _text(message).rstrip("\r\n"))
            found.times.append(time)
            found.levels.append(level)
            found.places.append(place)
        return found if self.inner is None else _read_inner(found, self.inner)

    def state(self) -> list[Any]:
        """What a state keeps."""
        return [self.form, self.names, self.inner and self.inner.state()]


class OpenTelemetryHeader(FieldHeader):
    """Lines that are export requests of OpenTelemetry in JSON: many records in a line."""

    def __init__(self, inner: Header | None = None) -> None:
        names = {"message": "body", "time": "timeUnixNano", "level": "severityText"}
        super().__init__("otlp", names, inner)

    def read(self, lines: Sequence[str], begun: bool = False, traced: bool = False) -> Records:
        """Messages, times and levels of all records."""
        found = Records([], [], [], [])
        for place, line in enumerate(lines):
            records = read_otlp(line)
            for record in [LogRecord(line, None, "")] if records is None else records:
                found.messages.append(record.body)
                found.times.append(record.time)
                found.levels.append(record.level)
                found.places.append(place)
        return found if self.inner is None else _read_inner(found, self.inner)


def restore_header(state: Sequence[Any]) -> Header:
    """The header that a state keeps; ValueError if it is none."""
    form, names, *inner = state
    within = restore_header(inner[0]) if inner and inner[0] else None
    if form == "otlp":
        return OpenTelemetryHeader(within)
    if form in _READERS and isinstance(names, dict):
        return FieldHeader(form, {str(kind): str(name) for kind, name in names.items()}, within)
    return Header.restore(form, names)


def detect_fields(lines: Sequence[str], message: str | None = None) -> FieldHeader | None:
    """The format and the fields that most of these lines have, or None.

    ``message`` names the field that is the message.

    >>> detect_fields(['time=9:00 level=info msg="door 7 opened" n=7'] * 9).fields
    ('message=msg', 'time=time', 'level=level')
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        return None
    if sum(read_otlp(line) is not None for line in lines) >= MIN_SHARE * len(lines):
        found = OpenTelemetryHeader()
        return OpenTelemetryHeader(_inner_header(found, lines))
    for form, read in _READERS.items():
        records = [fields for line in lines if (fields := read(line)) is not None]
        if message is not None and not any(message in fields for fields in records):
            continue
        if len(records) >= MIN_SHARE * len(lines):
            names = _choose(records, message)
            if "message" in names or (names and form == "json"):
                header = FieldHeader(form, names)
                return FieldHeader(form, names, _inner_header(header, lines))
    return None


def _choose(records: Sequence[Fields], message: str | None) -> dict[str, str]:
    """The name of each kind of field; the message must be text in half of the records."""
    known = Counter(name for record in records for name, value in record.items() if _plain(value))
    texts = Counter(
        n for record in records for n, value in record.items() if isinstance(value, str)
    )
    names = {} if message is None else {"message": message}
    for kind, wanted in NAMES.items():
        counts = texts if kind == "message" else known
        rows = [name for name in counts if 2 * counts[name] >= len(records)]
        ranked = sorted(
            (wanted.index(name.lower()), name) for name in rows if name.lower() in wanted
        )
        if ranked and kind not in names:
            names[kind] = ranked[0][1]
    return names


def _inner_header(header: FieldHeader, lines: Sequence[str]) -> Header | None:
    """The header in the messages, as of a container's log that has lines of another program."""
    inner = detect_header(header.read(lines).messages)
    return inner if inner is not None and inner.has_time else None


def _read_inner(found: Records, inner: Header) -> Records:
    records = inner.read(found.messages)
    return Records(
        records.messages,
        [found.times[place] for place in records.places],
        [found.levels[p] or level for p, level in zip(records.places, records.levels, strict=True)],
        [found.places[place] for place in records.places],
    )


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _level(value: object) -> str:
    """A level by its name, or by a number in tens as programs of Node.js and Python write it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        steps = ((60, "critical"), (50, "error"), (40, "warning"), (30, "info"), (20, "debug"))
        return next((name for least, name in steps if value >= least), "trace" if value > 7 else "")
    return level_of(value) if isinstance(value, str) else ""
