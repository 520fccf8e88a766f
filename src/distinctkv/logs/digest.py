"""A long log or output in few lines: its templates with counts, within a budget of tokens."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

from .fields import FieldHeader
from .headers import LEVELS, Header, exception_of
from .job import EVICTED, NOTE, Batch, Job, TemplateRow
from .parser import MAX_LENGTH, LogMatch, LogParser
from .tokenizer import clean

WILDCARD = "<*>"
FREQUENT = 0.05  # of all lines: such a template says what the log is mostly about
MAX_LINE = 2000  # characters of a line in a bounded listing
CUT = 240  # characters of a template or an example, if there is a budget
VALUE_CUT, TOP_VALUES = 40, 3  # characters of a value; values of a place that are shown
SHOWN_IDS = 20  # in an error
MAX_VALUES = 1000  # different ones of a place that are counted
_token = re.compile(r"[A-Za-z]{1,4}|\d{1,2}|[^\sA-Za-z\d]")
# Without a level in the header a line is an error by its words: a failure, what cannot be done, the
# end of a process, the mark of a failed test. A count or value of zero or null is no failure.
_alarming = re.compile(
    r"""
    (?<!\bno\ )(?<!\bzero\ )(?<!\bwithout\ )(?<!(?<![\d.,])0\ )\b(?:
        \w*(?:error|exception)s? | errs? | fatal | critical | panic(?:ked)? | traceback | fault |
        segfault | core\ dumped | abort(?:ed|ing)? | crash(?:ed|es|ing)? | bad | bug(?=:) |
        fail(?:ed|ures?|s|ing)? | denied | refused | reject(?:ed|ion) | timed?[ -]?outs? |
        corrupt(?:ed|ion)? | invalid | illegal | overflow | smashing | lockup | deadlock |
        (?:oom[ _-]?)?kill(?:ed|er|ing) | out\ of\ memory | not\ (?:found|ok) | could(?:\ not|n't) |
        can(?:\ ?not|'t) | no\ (?:such|space|route) | un(?:able|available|caught|defined|
        expected(?:ly)?|handled|reachable|recoverable|resolved)
    )\b(?!
        (?:\ (?:rate|count|code|status))?[\s:="'(<|]*
        (?:0(?:[.,]0+)?(?!\w|[.,]\d) | (?:nil|null|none|false)>?(?:[,;)}\]]|$))
    ) |
    \bexit\w*[ _](?:(?:with|code|status)\W+)+(?:[1-9]|<\*>) |
    ^e:\s | [\u2715-\u2718\u274c]
    """,
    re.IGNORECASE | re.VERBOSE,
)
Update = Callable[[int], None]


def estimate_tokens(text: str) -> int:
    """Tokens of a text for a language model, rather too many than too few.

    Up to four letters of a word, up to two digits, and any other character that is no blank count
    as one token.

    >>> estimate_tokens("Took 250 ms.")
    5
    """
    return len(_token.findall(text))


class Occurrence(NamedTuple):
    """A message with the line that it begins in, from 1, and the lines as they are."""

    number: int
    lines: list[str]
    message: str
    time: str | None
    level: str
    match: LogMatch


class ParsedLog:
    """Files that were read once as one log: their templates, and which lines have them.

    ``update`` is called with the bytes read, ``stop`` says whether to end early.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        parser: LogParser | None = None,
        header: Header | None = None,
        detect_header: bool = True,
        field: str | None = None,
        stop: Callable[[], bool] = lambda: False,
        update: Update = lambda n_bytes: None,
    ) -> None:
        self.parser = LogParser() if parser is None else parser
        self.parser.note.pop(NOTE, None)  # how far another log was read
        detect = detect_header and header is None
        self.job = job = Job(
            paths, self.parser, header=header, detect_header=detect, field=field, stop=stop
        )
        self.n_messages = 0
        self._levels: dict[int, Counter[str]] = {}
        self._exceptions: dict[int, Counter[str]] = {}
        self._first_lines: dict[tuple[int, str], int] = {}  # of each exception
        last = -1
        for batch in job:
            ids = job.parse(batch)
            self.n_messages += len(ids)
            for number, level in zip(ids, batch.levels, strict=False):
                self._levels.setdefault(number, Counter())[level] += 1
            if len(ids) < len(batch.lines):
                self._note_exceptions(batch, ids, last)
            last = ids[-1] if ids else last
            update(job.source.bytes_read)

    def occurrences(self) -> Iterator[Occurrence]:
        """All messages, read again, each with the template that it has now.

        Lines that were written since the first reading are left out.
        """
        self.parser.templates()
        again = Job(self.job.source.paths, LogParser(), header=self.job.header)
        n_left = self.n_messages
        last: Occurrence | None = None
        for batch in again:
            places = batch.places
            if last is not None:
                last.lines.extend(batch.lines[: places[0] if places else None])
            for place, message in enumerate(batch.messages[:n_left]):
                if last is not None:
                    yield last
                end = places[place + 1] if place + 1 < len(places) else len(batch.lines)
                lines = batch.lines[places[place] : max(end, places[place] + 1)]
                match = self.parser.match(message)
                time = batch.times[place] if batch.times else None
                level = batch.levels[place] if batch.levels else ""
                last = (
                    None
                    if match is None
                    else Occurrence(batch.number(place), lines, message, time, level, match)
                )
            n_left -= len(batch.messages)
            if n_left <= 0:
                break
        if last is not None:
            yield last

    def lines_of(self, number: int) -> Iterator[Occurrence]:
        """All messages of a template; LookupError if there is no template with this id."""
        now = self.parser.resolve(number)
        if now is None:
            ids = sorted(row.id for row in self.parser.templates())
            some = ", ".join(map(str, ids[:SHOWN_IDS])) + ", ..." * (len(ids) > SHOWN_IDS)
            known = f"ids are {some}" if ids else "there is none"
            raise LookupError(f"no template has the id {number}; {known}")
        return (one for one in self.occurrences() if one.match.id == now)

    def texts(self, lines: Sequence[str]) -> Sequence[str]:
        """Lines that belong to a message, each without the record that it is packed in."""
        header = self.job.header
        if not lines or not isinstance(header, FieldHeader):
            return lines
        outer = copy(header)
        outer.inner = None
        found = outer.read(lines)
        texts: list[list[str]] = [[] for _ in lines]
        for place, message in zip(found.places, found.messages, strict=True):
            texts[place].append(message)
        return ["\n".join(parts) for parts in texts]

    def listing(self, number: int, limit: int, after: int, size: int) -> str:
        """The first messages of a template after a line, with numbers, in so many characters."""
        texts, last = list[str](), after
        for one in self.lines_of(number):
            if one.number <= after:
                continue
            lines = [f"{one.number}: {one.lines[0]}", *one.lines[1:]]
            text = shorten("\n".join(shorten(line, MAX_LINE) for line in lines), size)
            if len(texts) == limit or (texts and len(text) > size):
                return "\n".join([*texts, f"more after line {last}"])
            texts.append(text)
            size, last = size - len(text) - 1, one.number
        return "\n".join(texts)

    @property
    def has_levels(self) -> bool:
        """Whether some line names a level."""
        return any(any(counts) for counts in self._levels.values())

    def _note_exceptions(self, batch: Batch, ids: Sequence[int], last: int) -> None:
        """Note the exceptions in lines that belong to the line before."""
        starts = dict(zip(batch.places, ids, strict=True))
        if len(starts) == len(batch.lines):
            return
        for place, text in enumerate(self.texts(batch.lines)):
            last = starts.get(place, last)
            if place not in starts and (name := exception_of(text)):
                self._exceptions.setdefault(last, Counter())[name] += 1
                self._first_lines.setdefault((last, name), batch.start + place + 1)

    def _by_template(self, counts: Mapping[int, Counter[str]]) -> dict[int, Counter[str]]:
        """Counts by the present ids."""
        found: dict[int, Counter[str]] = {}
        for number, counter in counts.items():
            found.setdefault(self._present_id(number), Counter()).update(counter)
        return found

    def _present_id(self, number: int) -> int:
        now = self.parser.resolve(number)
        return EVICTED if now is None else now

    def _exceptions_after(self, line: int) -> dict[int, Counter[str]]:
        """The exceptions of each template that were first seen after a line."""
        first: dict[tuple[int, str], int] = {}
        for (number, name), place in self._first_lines.items():
            key = self._present_id(number), name
            first[key] = min(place, first.get(key, place))
        found: dict[int, Counter[str]] = {}
        for number, counts in self._by_template(self._exceptions).items():
            new = {name: n for name, n in counts.items() if first[number, name] > line}
            found |= {number: Counter(new)} if new else {}
        return found

    def rows(self, after: int = 0) -> list[DigestRow]:
        """The templates that were first seen after a line, in the order of their first lines.

        A template that has a new exception after this line is one of them, with what is new.
        """
        templates = self.job.templates()  # settles the ids
        levels, exceptions = self._by_template(self._levels), self._exceptions_after(after)
        rows = []
        for row in templates:
            if row.first_line > after or row.id in exceptions:
                counts = levels.get(row.id, Counter[str]())
                rows.append(DigestRow.of(row, counts, _top(exceptions.get(row.id, Counter()))))
        return sorted(rows, key=lambda row: (row.first_line, row.id))

    def values(self) -> dict[int, tuple[str, ...]]:
        """What stands at the places of each template, in a compact form; reads all lines again."""
        found: dict[int, list[Counter[str]]] = {}
        for one in self.occurrences():
            if WILDCARD in one.match.template:
                places = found.setdefault(one.match.id, [])
                for place, value in enumerate(one.match.parameters):
                    if place == len(places):
                        places.append(Counter())
                    if value in places[place] or len(places[place]) < MAX_VALUES:
                        places[place][value] += 1
        return {number: tuple(map(_compact, places)) for number, places in found.items()}


def severity_of(level: str, text: str) -> int:
    """2 for errors, 1 for warnings, 0 for others; by the level, or else by the words.

    In a template a value counts as one that tells of an error.

    >>> severity_of("warning", "write failed"), severity_of("", "write failed")
    (1, 2)
    """
    if level:
        rank = LEVELS.index(level)
        return 2 if rank >= LEVELS.index("error") else int(level == "warning")
    return 2 * bool(_alarming.search(text))


@dataclass(frozen=True, slots=True)
class DigestRow:
    """A template: lines are numbered from 1, times and level are empty if not known.

    ``level`` is the most severe one; ``levels`` counts the lines of each, if they differ in it.
    """

    id: int
    template: str
    count: int
    first_line: int
    last_line: int
    first_time: str
    last_time: str
    level: str
    example: str
    exceptions: str = ""  # in the traces that belong to its lines
    values: tuple[str, ...] = ()
    levels: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, row: TemplateRow, counts: Mapping[str, int], exceptions: str) -> DigestRow:
        """A row of the template table, with its lines at each level."""
        ranked = sorted(filter(None, counts), key=LEVELS.index, reverse=True)
        level = ranked[0] if ranked else ""
        levels = {name: counts[name] for name in ranked} if len(counts) > 1 else {}
        example = row.examples[0] if row.examples else row.template
        return cls(
            *(row.id, row.template, row.count, row.first_line, row.last_line),
            *(row.first_time, row.last_time, level, example, exceptions),
            levels=levels,
        )

    @property
    def severity(self) -> int:
        """2 for errors, 1 for warnings, 0 for others; by the level, or else by the words."""
        return severity_of(self.level, self.example if self.count == 1 else self.template)

    @property
    def level_text(self) -> str:
        """The level, or each one with its count."""
        counted = ", ".join(f"{level} ({count:,})" for level, count in self.levels.items())
        return counted or self.level

    def head(self, cut: int | None = None) -> str:
        """Count, id, level and template."""
        return self._head(self.template, cut)

    def text(self, cut: int | None = None) -> str:
        """All of it as lines; what has one line is that line."""
        where = f"line {self.first_line:,}"
        if self.count > 1:
            where = f"lines {self.first_line:,} to {self.last_line:,}"
        if time := _span(self.first_time, self.last_time):
            where += f", {time}"
        if self.count == 1 and not self.values and len(self.example) < MAX_LENGTH:
            first, details = f"{self._head(clean(self.example), cut)} ({where})", []
        else:
            first, details = self.head(cut), [where]
        if self.exceptions:
            details.append(f"with {self.exceptions}")
        if self.values:
            details += [f"<{n}> {text}" for n, text in enumerate(self.values, 1)]
        elif self.count > 1 and self.example.split() != self.template.split():
            details.append(f"e.g. {_cut(self.example, cut)}")
        return "\n    ".join([first, *details])

    def _head(self, text: str, cut: int | None) -> str:
        level = f"{self.level_text.upper()} " if self.level else ""
        return f"{self.count:,}x [{self.id}] {level}{_cut(text or '(empty)', cut)}"


@dataclass(frozen=True)
class Digest:
    """The templates of a log in the order of their first lines, and which of them are shown how.

    ``n_lines`` are the lines read, ``n_messages`` the messages in them: the counts of all templates
    add up to these. ``n_continued`` lines belong to the line before. ``detailed`` and ``brief`` are
    ids of templates that are shown with and without details.
    """

    name: str
    n_lines: int
    n_messages: int
    n_continued: int
    rows: tuple[DigestRow, ...]
    detailed: frozenset[int]
    brief: frozenset[int] = frozenset()
    cut: int | None = None

    @classmethod
    def of(cls, log: ParsedLog, *, values: bool = False, after: int = 0) -> Digest:
        """The digest of a log, with all templates, or with those that are new after a line."""
        rows = log.rows(after)
        if values:
            found = log.values()
            rows = [replace(row, values=found.get(row.id, ())) for row in rows]
        job = log.job
        name = ", ".join(job.source.names)
        counts = job.counts.lines, log.n_messages, job.continued
        return cls(name, *counts, tuple(rows), frozenset(row.id for row in rows))

    @property
    def hidden(self) -> tuple[DigestRow, ...]:
        """The templates that are not shown."""
        return tuple(row for row in self.rows if row.id not in self.detailed | self.brief)

    def fit(
        self, *, tokens: int | None = None, lines: int | None = None, form: str = "text"
    ) -> Digest:
        """The digest within a budget of tokens (see `estimate_tokens`), or of lines.

        As many templates as possible are shown, then as many details. First in line are templates
        with a twentieth of all lines and rare errors in turn, then warnings, then the rarest.
        """
        if tokens is None and lines is None:
            return self
        wanted = [math.inf if budget is None else budget for budget in (tokens, lines)]
        budgets = [*wanted]
        while True:
            found = self._fit(*budgets)
            sizes = _size(found.render(form))
            over = max(size / want for size, want in zip(sizes, wanted, strict=True))
            if over <= 1 or not found.detailed | found.brief:
                return found
            # Other forms take more room than text: try with less.
            budgets = [budget / over - 1 for budget in budgets]

    def _fit(self, tokens: float, lines: float) -> Digest:
        """The same, if a row takes the room that it takes as text."""
        none = replace(self, detailed=frozenset(), brief=frozenset(), cut=CUT)
        n_tokens, n_lines = _size(none.text())
        detailed, brief = set[int](), set[int]()
        order = self._order()
        for shown in (brief, detailed):
            for row in order if shown is brief else [row for row in order if row.id in brief]:
                more_tokens, more_lines = _size(row.head(CUT))
                if shown is detailed:  # instead of the row in brief
                    all_tokens, all_lines = _size(row.text(CUT))
                    more_tokens, more_lines = all_tokens - more_tokens, all_lines - more_lines
                if n_tokens + more_tokens <= tokens and n_lines + more_lines <= lines:
                    shown.add(row.id)
                    n_tokens, n_lines = n_tokens + more_tokens, n_lines + more_lines
        return replace(none, detailed=frozenset(detailed), brief=frozenset(brief - detailed))

    def text(self) -> str:
        """As plain text."""
        parts = [self._title()]
        for row in self.rows:
            if row.id in self.detailed:
                parts.append(row.text(self.cut))
            elif row.id in self.brief:
                parts.append(row.head(self.cut))
        return "\n".join([*parts, *self._rest()])

    def markdown(self) -> str:
        """As a table, with templates and examples as code."""
        rows = [row for row in self.rows if row.id in self.detailed | self.brief]
        values = any(row.values for row in rows)
        head = [
            "count",
            "id",
            "level",
            "lines",
            "time",
            "template",
            "values" if values else "example",
        ]
        table = [head, ["---:", "---:", *["---"] * 5]]
        for row in rows:
            last = ""
            where = f"{row.first_line}" + f" to {row.last_line}" * (row.count > 1)
            time = _span(row.first_time, row.last_time)
            if row.id in self.detailed and values:
                last = "; ".join(f"<{n}> {text}" for n, text in enumerate(row.values, 1))
            elif row.id in self.detailed and row.example != row.template:
                last = row.example
            texts = [_code(_cut(text, self.cut)) for text in (row.template, last)]
            texts[-1] += f" with {row.exceptions}" if row.exceptions else ""
            table.append([f"{row.count}", f"{row.id}", row.level_text, where, time, *texts])
        lines = [f"| {' | '.join(cells)} |" for cells in table]
        return "\n".join([self._title(), "", *lines, *("", *self._rest())[: 2 * bool(self.hidden)]])

    def data(self) -> dict[str, Any]:
        """As an object for JSON; templates in brief have no example and no values."""
        rows = []
        for row in self.rows:
            if row.id in self.detailed | self.brief:
                cells = {
                    name: value for name, value in asdict(row).items() if value not in ("", (), {})
                }
                for name in () if row.id in self.detailed else ("example", "values"):
                    cells.pop(name, None)
                rows.append(cells | {"template": row.template})
        hidden = {"templates": len(self.hidden), "count": sum(row.count for row in self.hidden)}
        return {
            "name": self.name,
            "lines": self.n_lines,
            "messages": self.n_messages,
            "continuation_lines": self.n_continued,
            "templates": rows,
            "hidden": hidden,
        }

    def render(self, form: str) -> str:
        """As ``text``, ``markdown`` or ``json``."""
        if form == "json":
            return json.dumps(self.data(), ensure_ascii=False)
        return self.markdown() if form == "markdown" else self.text()

    def _order(self) -> list[DigestRow]:
        """The rows, first in line for room: the most frequent and the rarest errors in turn."""
        rows = sorted(self.rows, key=lambda row: (row.count, row.first_line))
        frequent = [row for row in rows[::-1] if row.count >= FREQUENT * self.n_messages]
        others = [row for row in rows if row.count < FREQUENT * self.n_messages]
        errors = [row for row in others if row.severity == 2]
        in_turn = chain(*zip_longest(frequent, errors))
        rest = sorted((row for row in others if row.severity < 2), key=lambda row: -row.severity)
        return [*(row for row in in_turn if row is not None), *rest]

    def _title(self) -> str:
        text = (
            f"{self.name}: {_counted(self.n_lines, 'line')}, {_counted(len(self.rows), 'template')}"
        )
        if self.n_continued:
            text += f"; {_counted(self.n_continued, 'line')} belong to the line before"
        return text

    def _rest(self) -> list[str]:
        hidden = self.hidden
        if not hidden:
            return []
        counts = [row.count for row in hidden]
        each = f"{min(counts):,}" + f" to {max(counts):,}" * (min(counts) != max(counts))
        lines = "line" if each == "1" else "lines"
        return [f"not shown: {_counted(len(hidden), 'template')}, each with {each} {lines}"]


def digest(
    source: str | os.PathLike[str] | Iterable[str],
    *,
    tokens: int | None = None,
    lines: int | None = None,
    values: bool = False,
) -> Digest:
    """The digest of a file, or of lines, within a budget of tokens or lines.

    >>> text = [f"door {n} opened" for n in range(900)] + ["error: key lost"]
    >>> print(digest(text).text())
    lines: 901 lines, 2 templates
    900x [0] door <*> opened
        lines 1 to 900
        e.g. door 0 opened
    1x [1] error: key lost (line 901)
    """
    for name, budget in (("tokens", tokens), ("lines", lines)):
        if budget is not None and budget < 1:
            raise ValueError(f"{name} must be at least 1, got {budget}")
    if isinstance(source, (str, os.PathLike)):
        return Digest.of(ParsedLog([os.fspath(source)]), values=values).fit(
            tokens=tokens, lines=lines
        )
    with spooled(f"{line}\n".encode(errors="replace") for line in source) as path:
        found = Digest.of(ParsedLog([path]), values=values)
    return replace(found, name="lines").fit(tokens=tokens, lines=lines)


@contextmanager
def spooled(parts: Iterable[bytes]) -> Iterator[str]:
    """A temporary file with these bytes, so that they can be read twice."""
    with NamedTemporaryFile("wb", prefix="distinctkv-", delete=False) as file:
        try:
            for part in parts:
                file.write(part)
            file.close()
            yield file.name
        finally:
            file.close()
            Path(file.name).unlink(missing_ok=True)


def _size(text: str) -> tuple[int, int]:
    """Tokens and lines."""
    return estimate_tokens(text), text.count("\n") + 1


def _cut(text: str, size: int | None) -> str:
    return text if size is None or len(text) <= size else f"{text[: size - 3]}..."


def shorten(text: str, size: int) -> str:
    """The first characters of a text, and how many were left out.

    >>> shorten("door opened", 4), shorten("door", 4)
    ('door... (7 more characters)', 'door')
    """
    rest = len(text) - size
    return f"{text[:size]}... ({rest:,} more characters)" if rest > 0 else text


def _code(text: str) -> str:
    """Text as code in a cell of a table."""
    text = text.replace("|", "\\|").replace("`", "'")
    return f"`{text}`" if text else ""


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _span(first: str, last: str) -> str:
    """Two times as one text, without the words that both begin with.

    >>> _span("Jun 14 15:16:01", "Jun 14 15:20:00")
    'Jun 14 15:16:01 to 15:20:00'
    """
    if not first or first == last:
        return first
    words, others = re.split(r"(?<=[ T])", first), re.split(r"(?<=[ T])", last)
    while len(others) > 1 and words[0] == others[0]:
        words, others = words[1:], others[1:]
    return f"{first} to {''.join(others)}"


def _top(counts: Counter[str]) -> str:
    """The most frequent exceptions, and the rarest one, which may be the news.

    >>> _top(Counter("aaaaabbbbcccdde"))
    'a (5), b (4), c (3), e (1), 5 different'
    """
    ranked = counts.most_common()
    shown = [*ranked[:TOP_VALUES], *ranked[TOP_VALUES:][-1:]]
    texts = [f"{name} ({count:,})" for name, count in shown]
    return ", ".join(texts + [f"{len(ranked):,} different"] * (len(ranked) > len(shown)))


_number = re.compile(r"[+-]?\d{1,15}(?:\.\d+)?")


def _compact(counts: Counter[str]) -> str:
    """The values of a place: the range of numbers, or the most frequent values.

    >>> _compact(Counter(["7", "9", "7"])), _compact(Counter(["ann", "bob", "ann"]))
    ('7 to 9, 2 different', 'ann (2), bob (1)')
    """
    different = f"{len(counts):,} different"
    if len(counts) == MAX_VALUES:
        different = f"at least {different}"
    if len(counts) > 1 and all(map(_number.fullmatch, counts)):
        least, most = min(counts, key=float), max(counts, key=float)
        return f"{least} to {most}, {different}"
    top = counts.most_common(TOP_VALUES)
    shown = [f"{_cut(value, VALUE_CUT) or '(empty)'} ({count:,})" for value, count in top]
    return ", ".join(shown) + (f", {different}" if len(counts) > TOP_VALUES else "")
