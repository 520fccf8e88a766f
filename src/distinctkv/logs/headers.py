r"""Headers of log lines: time, host, level, process, ... before the message.

A header is detected by its structure, not from a list of systems. Fields are removed from the front
of the lines while most lines have the same kind of field there. Other words, such as hosts, belong
to the header if a field follows them that cannot be part of a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .tokenizer import mask, strip_colours

# Fields as regular expressions; each includes the separator after it.

_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,:]\d+)?(?: ?[AP]M\b)?"
# After a date some programs omit zeros: 2024-01-03 0:7:2.
_DATED_CLOCK = rf"(?:\d{{1,2}}:\d{{1,2}}:\d{{1,2}}(?:[.,:]\d+)?(?: ?[AP]M\b)?|{_CLOCK})"
_ZONE = r"(?:Z\b| ?[+-]\d\d:?\d\d\b| (?:UTC|GMT|[A-Z]{1,3}[SD]T|[CEMW]ET)\b)?"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_TIMES = (
    rf"\d{{4}}[-/.]\d\d?[-/.]\d\d?[-T_ :]+(?:{_DATED_CLOCK}|\d\d\.\d\d\.\d\d(?:\.\d+)?){_ZONE}",
    rf"\d\d?[-/.]\d\d?(?:[-/.]\d{{2,4}})?[T_ ]+{_DATED_CLOCK}{_ZONE}",
    rf"\d{{8}}[-T_ ]?(?:{_DATED_CLOCK}|\d{{6}}(?:[.,]\d+)?\b){_ZONE}",
    rf"{_DAY}{_MONTH} +\d\d?,?(?: +\d{{4}})?,? +{_CLOCK}{_ZONE}(?: +\d{{4}}\b)?",
    rf"{_DAY}\d\d?[ /-]{_MONTH}[ /-]\d{{4}}[ :]{_CLOCK}{_ZONE}",
    rf"[IWEF]\d{{4}} {_CLOCK}",
    rf"{_CLOCK}{_ZONE}",
    r"\d{4}[-/.]\d\d[-/.]\d\d\b",
    r"\d{6} \d{6}\b",
    r"1\d{9}(?:[.,]\d+|\d{3}|\d{6})?\b",  # seconds since 1970, or milliseconds, or microseconds
    r"\[ *\d{1,8}\.\d{6}\]",  # seconds since boot
)
# The header of RFC 5424 as a whole: single words of it look like words of a message.
SYSLOG = (
    r"<(?P<level>\d{1,3})>1 (?P<time>\S+) \S+ \S+ \S+ \S+ "
    r'(?:-|(?:\[(?:[^]"\\]|"(?:[^"\\]|\\.)*+")*+\])++)(?: +\ufeff?|$)'
)
SYSLOG_FIELDS = ("time", "host", "program", "process", "kind", "data")
# What .NET writes on a console: the message is below its header, indented.
CONSOLE = r"(?P<level>trce|dbug|info|warn|fail|crit): [\w.+`]+\[-?\d+\]$"
CONSOLE_FIELDS = ("level", "name", "number", "message below")
_LEVELS = (
    r"trace\b debug[1-5]?\b info(?:rmation)?\b note\b notice\b warn(?:ing)?\b err(?:or)?\b "
    r"crit(?:ical)?\b severe\b alert\b emerg(?:ency)?\b fatal\b panic\b failure\b config\b "
    r"fine(?:r|st)?\b verbose\b log\b"
)
# What PostgreSQL writes instead, in lines that say more about the line before.
_NOTES = r"(?:STATEMENT|DETAIL|HINT|CONTEXT|QUERY)(?=:  )"
_VALUES = {
    "time": _TIMES,
    "level": (*(f"(?i:{level})" for level in _LEVELS.split()), _NOTES),
}
_OPENING = r"""["'\[(<]*"""
_PREFIX = rf"(?:<\d+>)?(?:\w+=)?{_OPENING}"
_GAP = r"""(?:\s+[\])]+\s*|["'\])>,:;|]+\s*|\s+|$)(?:[-|]+\s+(?::\s+)?)?"""
_NAME = r"[^\s:\[\]]++(?:::[^\s:\[\]]++)*+"


def _strong(kind: str, values: Sequence[str], before: str = _PREFIX, gap: str = _GAP) -> str:
    return rf"{before}(?P<{kind}>{'|'.join(values)}){gap}"


# Never part of a message: if most lines have one of these, it is a field.
STRONG = {kind: _strong(kind, values) for kind, values in _VALUES.items()}
# Fields only after other fields: the pattern, and the kinds that it may follow.
WEAK = {
    "letter": (
        rf"{_OPENING}(?P<letter>[VDIWEFCTP])(?:/|(?=[\s\])|]){_GAP})",
        {"time", "number"},
    ),
    "number": (rf"{_OPENING}-?\d+(?:#\d+)?{_GAP}", {"time", "level", "number"}),
    "bracket": (
        rf"(?:\[[^\[\]]*+(?:\[[^\[\]]*+\][^\[\]]*+)*+\]|\([^()]*+\))(?:{_GAP}|(?=\[))",
        {"time", "level", "letter", "number", "bracket", "column", "name", "dash"},
    ),
    "tag": (
        rf"(?:{_NAME}(?:\[[^\s\]]*\])?\s*:(?!\S)|\S++\s+:(?!\S)|[^\s\[\]]++\](?=\s)|(?<=\w:){_NAME}:)\s*",
        {"time", "level", "letter", "number", "bracket", "column"},
    ),
    "column": (
        r"(?:[^\s|]+\s*\||\S+(?:\t|\s{2,})(?:[-|]+\s+)?)\s*",
        {"time", "level", "letter", "number", "bracket", "column"},
    ),
    "name": (
        r"[A-Za-z_]\w*(?:[.$]\w+){2,}\s+(?:[-|]+\s+)?",
        {"time", "level", "number", "bracket"},
    ),
    "dash": (r"\S+(?: \S+){0,2}? [-|] +", {"time", "level", "letter", "bracket", "dash"}),
}


def narrow(kind: str, found: Sequence[re.Match[str]]) -> str:
    """The pattern of a field with only the alternatives found in these lines: faster."""
    if kind not in STRONG:
        return WEAK[kind][0]
    values, texts = _VALUES[kind], {match[kind] for match in found}
    starts = {match["field"][: match.start(kind) - match.start("field")] for match in found}
    gaps = {match["field"][match.end(kind) - match.start("field") :] for match in found}
    if kind == "level" and all(text.isupper() for text in texts):
        values = (*_LEVELS.upper().replace(r"\B", r"\b").split(), _NOTES)
    if kind == "time":
        firsts = (next(one for one in values if re.fullmatch(one, text)) for text in texts)
        used = set(firsts)
        values = tuple(one for one in values if one in used)
    before = re.escape(starts.pop()) if len(starts) == 1 else _PREFIX
    gap = r"(?:\s+|$)" if all(not gap.strip() for gap in gaps) else _GAP
    return _strong(kind, values, before, gap)


SAMPLE = 1000  # lines that a header is detected from
MIN_SHARE = 0.9  # of the lines must have a field
MIN_TIME_SHARE = 0.5  # must begin with a time; the others may be stack traces
MAX_UNITS = 12  # fields, each with the words before it
MAX_WORDS = 4  # before a field
MIN_NAMES = 3  # different ones; with fewer a name may be the first word of a message
_word = r"[^\s|{\"]++[\s|]++"
# Names that cannot be words of a message: with a process number, of a class, with a digit or mark.
_proper = {
    "tag": re.compile(r"\[\d+\]|\w[.$/:]+\w|\]\s*$"),
    "dash": re.compile(r"[^A-Za-z\s-].* "),
    "bracket": re.compile(r"\d|\w[^\w\s]+\w"),
}
# Names that may be what happened: "Started:", "[OK]", "FAILED -", "[UFW BLOCK]".
_event = re.compile(r"\W*(?:[A-Z][a-z]+|[A-Z]{2,}(?: [A-Z]{2,})*)\W*")
_digits = re.compile(r"\d+")


class Records(NamedTuple):
    """The messages in some lines, with what their headers say.

    ``places`` are the lines that they stand in, from 0. A time or level is empty if it is not
    known; the time of a line without a header is None.
    """

    messages: list[str]
    times: list[str | None]
    levels: list[str]
    places: list[int]


class Header:
    r"""A regular expression that matches the header at the start of a line.

    The message is the group named ``message``, or else the text after the match. Time and level are
    the groups named ``time`` and ``level``. A detected header has ``fields``; it ignores terminal
    colours.

    >>> header = Header(r"(?P<time>\S+) (?P<level>\w+): ")
    >>> header.strip(["12:30:01 WARN: up", "  at main()"])
    (['up', '  at main()'], ['12:30:01', None])
    >>> header.read(["12:30:01 WARN: up", "  at main()"])
    Records(messages=['up'], times=['12:30:01'], levels=['warning'], places=[0])
    """

    def __init__(self, pattern: str, fields: Sequence[str] = ()) -> None:
        self.pattern, self.fields = pattern, tuple(fields)
        self._regex = re.compile(pattern)
        self._message = self._regex.groupindex.get("message")
        self._time = self._regex.groupindex.get("time")
        self._level = self._regex.groupindex.get("level")

    @classmethod
    def restore(cls, pattern: str, fields: Sequence[str]) -> Header:
        """A header from a state file; ValueError if it is none."""
        if not isinstance(pattern, str) or not all(isinstance(field, str) for field in fields):
            raise ValueError(f"a header is a regular expression and field names, got {pattern!r}")
        try:
            return cls(pattern, fields)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error

    def state(self) -> list[Any]:
        """What a state keeps."""
        return [self.pattern, self.fields]

    @property
    def has_time(self) -> bool:
        """Whether there is a group for the time."""
        return self._time is not None

    def strip(self, lines: Sequence[str]) -> tuple[list[str], list[str | None]]:
        """Messages and times; a line without the header is its own message, with time None."""
        messages, times, _, _ = self._read(lines, None)
        return messages, times

    def read(self, lines: Sequence[str], begun: bool = False, traced: bool = False) -> Records:
        """Messages, times and levels; continuation lines belong to the line before.

        ``begun`` says that there is one before the first of these lines, ``traced`` that it has a
        trace of Python that has not ended.
        """
        return self._read(lines, begun, traced)

    def _read(self, lines: Sequence[str], begun: bool | None, traced: bool = False) -> Records:
        match, message, time, level = self._regex.match, self._message, self._time, self._level
        below = begun is not None and self.fields == CONSOLE_FIELDS
        awaits = False  # the text below a header
        found = Records([], [], [], [])
        for place, line in enumerate(self._prepare(lines)):
            own = match(line)
            ends, traced = traced, in_trace([line], traced)
            if own is None:
                if awaits and line[:1].isspace():
                    found.messages[-1], awaits = line.strip(), False
                    continue
                if begun and (ends or is_continuation(line)):
                    continue
                found.messages.append(line)
                found.times.append(None)
                found.levels.append(_indented_level(line))
            else:
                text = "" if time is None else own[time] or ""
                body = line[own.end() :] if message is None else own[message] or ""
                if awaits := below:
                    body = line  # if nothing is below
                named = _status_level(body) if level is None else level_of(own[level] or "")
                if len(text) > 5 and text[0] in GLUED and text[1:5].isdigit():
                    named, text = level_of(text[0]), text[1:]
                found.messages.append(body)
                found.times.append(text)
                found.levels.append(named)
            found.places.append(place)
            begun = begun is not None
        return found

    def awaits_text(self, line: str) -> bool:
        """Whether the message of this line is the next one."""
        return self.fields == CONSOLE_FIELDS and self._regex.match(line) is not None

    def _prepare(self, lines: Sequence[str]) -> Sequence[str]:
        return _without_colours(lines) if self.fields else lines


class _Unit(NamedTuple):
    """A field with the words before it, and the lines that have it."""

    kind: str
    n_words: int
    pattern: str
    found: list[re.Match[str]]

    @property
    def fields(self) -> list[str]:
        return ["word"] * self.n_words + [self.kind]

    @property
    def length(self) -> float:
        """Mean length of the time in this field."""
        if self.kind != "time":
            return 0.0
        return sum(len(found["time"]) for found in self.found) / len(self.found)

    @property
    def of_stream(self) -> bool:
        """Whether it says that a line of a container is full (F) or in parts (P): no level."""
        return {found["words"].strip() for found in self.found} <= {"stdout", "stderr"}

    @property
    def last(self) -> bool:
        """Whether most lines end with it, so that it is the message."""
        return self._in_half(lambda found: not found.string[found.end() :].strip())

    @property
    def _tells_event(self) -> bool:
        """Whether its names may be what happened."""
        return self._in_half(lambda found: _event.fullmatch(found["field"])) or self._tells_more

    @property
    def _tells_more(self) -> bool:
        """Whether it has more forms than all that follows it, so that it is part of the message."""
        names = {_digits.sub("", found["field"].strip()) for found in self.found}
        return len(names) > len({mask(found.string[found.end() :]) for found in self.found})

    def plausible(self, first: bool) -> bool:
        """Whether this may be a part of a header, not of a message that most lines have."""
        texts = {found["field"].strip() for found in self.found}
        if self.kind in _proper:
            proper, few = (
                _proper[self.kind],
                self.kind in ("tag", "dash") and len(texts) < MIN_NAMES,
            )
            if self.n_words and self._in_half(
                lambda found: _event.fullmatch(found["words"] + found["field"])
            ):
                return False  # the words are inside the bracket
            named = self._in_half(lambda found: proper.search(found["field"]))
            return named or not (few or self._tells_event)
        if self.kind == "column":
            return not self._tells_more
        if self.n_words and self._in_half(lambda found: "=" in found["words"]):
            return False  # fields of the message
        if self.kind == "level" and (self.n_words or first):
            return len(texts) > 1 or all(text.isupper() for text in texts)
        if self.kind == "time" and self.n_words:
            return self._in_half(lambda found: not found["words"].split()[0].isalpha())
        return True

    def _in_half(self, test: Callable[[re.Match[str]], object]) -> bool:
        return 2 * sum(map(bool, map(test, self.found))) >= len(self.found)


def detect_header(lines: Sequence[str]) -> Header | None:
    """The header that most of these lines have, or None.

    >>> found = detect_header(["Jun 14 15:16:01 combo sshd[19939]: check pass; user unknown"] * 9)
    >>> found.fields
    ('time', 'word', 'tag')
    >>> found.strip(["Jun 14 15:16:03 combo su[3]: session opened"])
    (['session opened'], ['Jun 14 15:16:03'])
    """
    lines = _without_colours(lines)
    standard = re.compile(SYSLOG).match
    if lines and sum(map(bool, map(standard, lines))) >= MIN_TIME_SHARE * len(lines):
        return Header(SYSLOG, SYSLOG_FIELDS)
    units: list[_Unit] = []
    ends = [(line, 0) for line in lines if line.strip() and not line[0].isspace()]
    console = re.compile(CONSOLE).match
    if ends and sum(console(line) is not None for line, _ in ends) >= MIN_SHARE * len(ends):
        return Header(CONSOLE, CONSOLE_FIELDS)
    while ends and (unit := next(_units(ends, units[-1].kind if units else None), None)):
        if unit.last or len(units) == MAX_UNITS:
            units = _without(units, unit.kind)
            break
        units.append(unit)
        ends = [(found.string, found.end()) for found in unit.found]
    if not units:
        return None
    best = max(units, key=lambda unit: unit.length)
    named = next(
        (
            one
            for kind in ("level", "letter")
            for one in units
            if one.kind == kind and not one.of_stream
        ),
        None,
    )
    pattern = ""
    for unit in reversed(units):
        own = unit.pattern.replace("?P<letter>", "?P<level>")
        own = own if unit is named else own.replace("?P<level>", "?:")
        own = own if unit is best else own.replace("?P<time>", "?:")
        # A line must have the first unit; it may lack the others.
        pattern = own + (f"(?:{pattern})?" if pattern else "")
    return Header(pattern, [field for unit in units for field in unit.fields])


_EXCEPTION = r"(?:[a-zA-Z_][\w$]*\.)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit|Throwable)"
_continuation = re.compile(
    r"\s|$|Caused by: |Suppressed: |\.\.\. \d+ more|Traceback \(most recent call last\):|"
    r"During handling of the above exception|The above exception was the direct cause|"
    r"goroutine \d+ \[|"
    rf"{_EXCEPTION}(?::\s|$)"
)
# An indented line that says so is an error of its own, as a script writes it within a log.
_error = re.compile(r"\s+\W{0,3}(ERROR|FATAL|PANIC|CRITICAL|SEVERE|error|fatal|panic)[:\]]")
_exception = re.compile(
    r"(?:Caused by: |Suppressed: )?((?:[a-zA-Z_][\w$]*\.)*[A-Z][\w$]*)(?::\s|$)"
)
_indented_exception = re.compile(rf"\s+((?:[a-zA-Z_]\w*\.)+{_EXCEPTION})(?::\s|$)")
TRACEBACK = "Traceback (most recent call last):"


def is_continuation(line: str) -> bool:
    r"""Whether a line without the header belongs to the line before: a trace, or indented text.

    >>> [is_continuation(line) for line in ("\tat a.b(C.java:7)", "ValueError: no", "door opened")]
    [True, True, False]
    >>> is_continuation("  ERROR: the door is shut")
    False
    """
    return _continuation.match(line) is not None and not _error.match(line)


def _indented_level(line: str) -> str:
    """The level of an error within indented text; empty if there is none."""
    found = _error.match(line)
    return "" if found is None else level_of(found[1])


def in_trace(lines: Sequence[str], traced: bool = False) -> bool:
    """Whether a trace of Python has begun in these lines or before, and not ended.

    It ends with the first line that is not indented, which names the exception.

    >>> in_trace([TRACEBACK, "  File 'a.py'"]), in_trace([TRACEBACK, "TimeoutExpired: 3 s"])
    (True, False)
    """
    for line in reversed(lines):
        if not line[:1].isspace():
            return TRACEBACK in line
    return traced


def exception_of(line: str) -> str:
    """The class of the exception that a line of a trace names; empty if it names none.

    >>> exception_of("Caused by: java.io.IOException: no"), exception_of("TimeoutExpired: 3 s")
    ('java.io.IOException', 'TimeoutExpired')
    """
    found = _indented_exception.match(line) if line[:1].isspace() else _exception.match(line)
    return "" if found is None else found[1]


GLUED = "IWEF"  # letters before a time, in the logs of Go programs
_LEVEL_NAMES = {
    "trace": "trace trce verbose finest finer v t",
    "debug": "debug dbug fine config d",
    "info": "info information informational log i",
    "notice": "notice note n",
    "warning": "warning warn w",
    "error": "error err severe failure fail e",
    "critical": "critical crit fatal alert emerg emergency panic f c",
}
LEVELS = tuple(_LEVEL_NAMES)  # the least severe first
_levels = {name: level for level, names in _LEVEL_NAMES.items() for name in names.split()}
_SYSLOG = ("critical", "critical", "critical", "error", "warning", "notice", "info", "debug")


def level_of(text: str) -> str:
    """The level that a word or a syslog priority names, one of `LEVELS`; empty if none.

    >>> level_of("WARN"), level_of("E"), level_of("34"), level_of("door")
    ('warning', 'error', 'critical', '')
    """
    if text.isdecimal():
        return _SYSLOG[int(text) % 8]
    name = text.lower()
    return _levels.get(name) or _levels.get(name.rstrip("0123456789"), "")


_status = re.compile(r'"[A-Z]+ (?:[^"\\]|\\.)*" ([1-5])\d\d(?!\S)')
_CLASSES = {"4": "warning", "5": "error"}  # of the status of a request


def _status_level(message: str) -> str:
    """The level of a line of an access log, by its status; empty if it is none."""
    found = _status.match(message) if message[:1] == '"' else None
    return "" if found is None else _CLASSES.get(found[1], "info")


_iso = re.compile(
    r"(\d{4})[-/.](\d\d?)[-/.](\d\d?)[-T_ :]+(\d\d?)[:.](\d\d?)[:.](\d\d?)(?:[.,:](\d{1,9}))?"
    r" ?(Z|[+-]\d\d:?\d\d)?"
)
_named = re.compile(
    r"(?:[A-Z][a-z]+,? +)?(?:(?P<month>[A-Z][a-z]{2})[a-z]* +(?P<day>\d\d?)|(?P<day2>\d\d?)[ /-]"
    r"(?P<month2>[A-Z][a-z]{2})[ /-](?P<year2>\d{4}))[ :,]+(?:(?P<year>\d{4}),? +)?"
    r"(?P<hour>\d\d?):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,]\d+)?(?: +(?P<year3>\d{4}))?"
    r"(?: ?(?P<zone>[+-]\d\d:?\d\d))?"
)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


def seconds_of(time: str) -> float | None:
    """Seconds since 1970 of the time in a header; None if it is in none of the usual formats.

    Without a zone it is UTC, without a year it is 2000.

    >>> seconds_of("1970-01-02 00:00:01,5"), seconds_of("2 Jan"), seconds_of("1700000000.5")
    (86401.5, None, 1700000000.5)
    """
    try:
        if found := _iso.match(time):
            *parts, fraction, zone = found.groups()
        elif found := _named.match(time):
            part = found.groupdict()
            month = 1 + _MONTHS.index(part["month"] or part["month2"]) // 3
            year = part["year"] or part["year2"] or part["year3"] or "2000"
            clock = part["hour"], part["minute"], part["second"]
            parts = [year, str(month), part["day"] or part["day2"], *clock]
            fraction, zone = None, part["zone"]
        else:
            number = float(time)
            digits = len(str(int(number)))
            return number / 1000.0 ** max(0, (digits - 10) // 3)
        year, month, day, hour, minute, second = map(int, parts)
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    sign = 0 if zone in (None, "Z") else -1 if zone[0] == "+" else 1
    offset = sign and sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return at + offset + (float(f"0.{fraction}") if fraction else 0.0)


def time_share(lines: Sequence[str]) -> float:
    """The share of these lines that begin with a time.

    >>> time_share(["10:00:01 up", "down", "10:00:03 up", "up"])
    0.5
    """
    begins = re.compile(STRONG["time"]).match
    found = sum(begins(line) is not None for line in _without_colours(lines))
    return found / max(1, len(lines))


def _without_colours(lines: Sequence[str]) -> list[str]:
    return [strip_colours(line) if "\x1b" in line else line for line in lines]


def _without(units: list[_Unit], kind: str) -> list[_Unit]:
    """Remove weak units of this kind at the end: a row of numbers is one message."""
    while units and units[-1].kind == kind and kind in WEAK:
        units = units[:-1]
    return units


def _units(ends: Sequence[tuple[str, int]], last: str | None) -> Iterator[_Unit]:
    """Units that may come next, the most likely first."""
    for kind, n_words, pattern in _candidates(last):
        whole = re.compile(rf"(?P<words>{_word * n_words})(?P<field>{pattern})")
        found = [match for line, end in ends if (match := whole.match(line, end))]
        least = MIN_TIME_SHARE if (last, kind, n_words) == (None, "time", 0) else MIN_SHARE
        if not found or len(found) < least * len(ends):
            continue
        unit = _Unit(kind, n_words, _word * n_words + narrow(kind, found), found)
        if unit.plausible(last is None):
            yield unit


def _candidates(last: str | None) -> Iterator[tuple[str, int, str]]:
    for kind, pattern in STRONG.items():
        if last != "tag" or kind == "level":
            yield kind, 0, pattern
    for kind, (pattern, after) in WEAK.items():
        if last in after:
            yield kind, 0, pattern
    if last == "tag":
        return
    for n_words in range(1, MAX_WORDS + 1):
        for kind, pattern in STRONG.items():
            yield kind, n_words, pattern
        if n_words == 1 and last is not None:
            yield "tag", 1, WEAK["tag"][0]
        if n_words == 1 and last == "time":
            yield "letter", 1, WEAK["letter"][0]
