"""Fields of log headers as regular expressions. Each takes in what parts it from the next."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CLOCK = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,:]\d+)?(?: ?[AP]M\b)?"
# After a date some programs leave out zeros: 2024-01-03 0:7:2.
_LOOSE = rf"(?:\d{{1,2}}:\d{{1,2}}:\d{{1,2}}(?:[.,:]\d+)?(?: ?[AP]M\b)?|{_CLOCK})"
_ZONE = r"(?:Z\b| ?[+-]\d\d:?\d\d\b| (?:UTC|GMT|[A-Z]{1,3}[SD]T|[CEMW]ET)\b)?"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_TIMES = (
    rf"\d{{4}}[-/.]\d\d?[-/.]\d\d?[-T_ :]+(?:{_LOOSE}|\d\d\.\d\d\.\d\d(?:\.\d+)?){_ZONE}",
    rf"\d\d?[-/.]\d\d?(?:[-/.]\d{{2,4}})?[T_ ]+{_LOOSE}{_ZONE}",
    rf"\d{{8}}[-T_ ]?(?:{_LOOSE}|\d{{6}}(?:[.,]\d+)?\b){_ZONE}",
    rf"{_DAY}{_MONTH} +\d\d?,?(?: +\d{{4}})?,? +{_CLOCK}{_ZONE}(?: +\d{{4}}\b)?",
    rf"{_DAY}\d\d?[ /-]{_MONTH}[ /-]\d{{4}}[ :]{_CLOCK}{_ZONE}",
    rf"[IWEF]\d{{4}} {_CLOCK}",
    rf"{_CLOCK}{_ZONE}",
    r"\d{4}[-/.]\d\d[-/.]\d\d\b",
    r"\d{6} \d{6}\b",
    r"1\d{9}(?:[.,]\d+|\d{3}|\d{6})?\b",  # seconds since 1970, or milliseconds, or microseconds
    r"\[ *\d{1,8}\.\d{6}\]",  # seconds since a kernel began
)
# The whole header of RFC 5424, whose words cannot be told from a message one by one.
SYSLOG = (
    r"<\d{1,3}>1 (?P<time>\S+) \S+ \S+ \S+ \S+ "
    r'(?:-|(?:\[(?:[^]"\\]|"(?:[^"\\]|\\.)*+")*+\])++)(?: +\ufeff?|$)'
)
SYSLOG_FIELDS = ("time", "host", "program", "process", "kind", "data")
_LEVELS = (
    r"trace\b debug[1-5]?\b info(?:rmation)?\b note\b notice\b warn(?:ing)?\b err(?:or)?\b "
    r"crit(?:ical)?\b severe\b alert\b emerg(?:ency)?\b fatal\b panic\b failure\b config\b "
    r"fine(?:r|st)?\b verbose\b log\b"
)
_VALUES = {"time": _TIMES, "level": tuple(f"(?i:{level})" for level in _LEVELS.split())}
_OPEN = r"""["'\[(<]*"""
_KEYED = rf"(?:<\d+>)?(?:\w+=)?{_OPEN}"
_GAP = r"""(?:\s+[\])]+\s*|["'\])>,:;|]+\s*|\s+|$)(?:[-|]+\s+(?::\s+)?)?"""
_NAME = r"[^\s:\[\]]++(?:::[^\s:\[\]]++)*+"


def _strong(kind: str, values: Sequence[str], before: str = _KEYED, gap: str = _GAP) -> str:
    return rf"{before}(?P<{kind}>{'|'.join(values)}){gap}"


# Never part of a message: where most lines have one of these, it is a field.
STRONG = {kind: _strong(kind, values) for kind, values in _VALUES.items()}
# Fields only in a header that has begun: each, and what it may come after.
WEAK = {
    "letter": (rf"{_OPEN}[VDIWEFCTP](?:/|(?=[\s\])|]){_GAP})", {"time", "number"}),
    "number": (rf"{_OPEN}-?\d+(?:#\d+)?{_GAP}", {"time", "level", "number"}),
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


def narrowed(kind: str, found: Sequence[re.Match[str]]) -> str:
    """The pattern of a field without what it never was in these lines: a third of the work."""
    if kind not in STRONG:
        return WEAK[kind][0]
    values, texts = _VALUES[kind], {match[kind] for match in found}
    starts = {match["field"][: match.start(kind) - match.start("field")] for match in found}
    gaps = {match["field"][match.end(kind) - match.start("field") :] for match in found}
    if kind == "level" and all(text.isupper() for text in texts):
        values = tuple(_LEVELS.upper().replace(r"\B", r"\b").split())
    if kind == "time":
        firsts = (next(one for one in values if re.fullmatch(one, text)) for text in texts)
        used = set(firsts)
        values = tuple(one for one in values if one in used)
    before = re.escape(starts.pop()) if len(starts) == 1 else _KEYED
    gap = r"(?:\s+|$)" if all(not gap.strip() for gap in gaps) else _GAP
    return _strong(kind, values, before, gap)
