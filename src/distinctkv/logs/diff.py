"""What is new, gone, more or less frequent in one log than in another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from .digest import ParsedLog, Update, severity_of
from .headers import SAMPLE, Header, exception_of
from .job import find_header
from .parser import LogParser
from .reader import LineSource

LEVEL = 0.01  # chance of any row between two parts of one log
BLOCKS = 20  # parts of a log, in its order, by which bursts are measured
MIN_FIT = 0.9  # of the lines that a log's own header matches must match a common header
MIN_RATIO = 1.5  # between two rates that are told apart
EXACT = 2000  # lines up to which the binomial distribution is summed


def read_logs(
    paths: Sequence[str],
    *,
    header: Header | None = None,
    detect_header: bool = True,
    field: str | None = None,
    stop: Callable[[], bool] = lambda: False,
    update: Update = lambda n_bytes: None,
) -> list[ParsedLog]:
    """Logs that are compared: one parser reads them, with one header if one fits all.

    Headers detected on each log alone may differ, as where only one has lines of several levels;
    then no message of one is a message of the other.
    """
    parser, logs, n_read = LogParser(), list[ParsedLog](), 0
    if header is None and detect_header and field is None and len(paths) > 1:
        header = common_header(paths)
    for path in paths:
        log = ParsedLog(
            [path],
            parser=parser,
            header=header,
            detect_header=detect_header,
            field=field,
            stop=stop,
            update=lambda n_bytes, before=n_read: update(before + n_bytes),  # type: ignore[misc]
        )
        logs.append(log)
        n_read += log.job.source.bytes_read
    return logs


def common_header(paths: Sequence[str]) -> Header | None:
    """The header with the most fields that fits the first lines of all files; None if none does.

    A header fits a file if it matches almost as many lines as the file's own one.
    """
    samples = [_first_lines(path) for path in paths]
    own = [find_header(lines) for lines in samples]
    found = [find_header([*chain(*samples)]), *own]
    fitting = [
        one
        for one in found
        if one is not None
        and all(
            _n_matches(one, lines) >= MIN_FIT * _n_matches(other, lines)
            for other, lines in zip(own, samples, strict=True)
        )
    ]
    return max(fitting, key=lambda one: len(one.fields), default=None)


def _first_lines(path: str) -> list[str]:
    lines = list[str]()
    for chunk in LineSource([path]):
        lines += chunk.lines
        if len(lines) >= SAMPLE:
            break
    return lines[:SAMPLE]


def _n_matches(header: Header | None, lines: Sequence[str]) -> int:
    """How many messages the header takes out of their lines."""
    if header is None:
        return 0
    messages, times, _, places = header.read(lines)
    return sum(
        time is not None and message != lines[place]
        for message, time, place in zip(messages, times, places, strict=True)
    )


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A template at a level in two logs, or an exception in its traces that only one log has.

    ``change`` is new, gone, more, less or same. ``ratio`` is that of the shares of messages, None
    if it is new. ``chance`` bounds the probability that two parts of one log have such a row.
    ``first_line`` and ``example`` are from the second log, or from the first one if the template is
    gone. ``level`` is empty if it is not known in both logs.
    """

    id: int
    change: str
    level: str
    template: str
    before: int
    after: int
    ratio: float | None
    chance: float
    significant: bool
    first_line: int
    example: str
    exception: str = ""

    @property
    def listed(self) -> bool:
        """Whether chance does not explain it, or it is an error or an exception that is new."""
        error = self.exception or severity_of(self.level, self.example) == 2
        return self.significant or (self.change == "new" and bool(error))


@dataclass(frozen=True)
class LogDiff:
    """All templates of two logs at each of their levels, the least likely difference first."""

    n_before: int
    n_after: int
    rows: tuple[DiffRow, ...]

    @classmethod
    def of(cls, before: ParsedLog, after: ParsedLog) -> LogDiff:
        """Compare two logs that one parser has read; both are read again."""
        with_levels = before.has_levels and after.has_levels
        logs = _tally(before, with_levels), _tally(after, with_levels)
        sizes = before.n_messages, after.n_messages
        texts = {row.id: row.template for row in before.parser.templates()}
        kinds = sorted(kind for kind in {*logs[0], *logs[1]} if _comparable(kind, *logs))
        rows = [
            _row(kind, texts[kind.id], [log.get(kind, _Tally()) for log in logs], sizes, len(kinds))
            for kind in kinds
        ]
        rows.sort(key=lambda row: (not row.significant, row.chance, -row.before - row.after))
        return cls(*sizes, tuple(rows))

    @property
    def significant(self) -> tuple[DiffRow, ...]:
        """The rows that chance does not explain."""
        return tuple(row for row in self.rows if row.significant)

    @property
    def listed(self) -> tuple[DiffRow, ...]:
        """These, and errors that are new, however few."""
        return tuple(row for row in self.rows if row.listed)

    def rare(self, change: str) -> int:
        """How many others are ``new`` or ``gone``, but too rare to tell from chance."""
        return sum(row.change == change and not row.listed for row in self.rows)

    def data(self, everything: bool = False) -> dict[str, Any]:
        """As an object for JSON."""
        rows = [asdict(row) for row in (self.rows if everything else self.listed)]
        rare = {"new": self.rare("new"), "gone": self.rare("gone")}
        return {"before": self.n_before, "after": self.n_after, "rows": rows, "rare": rare}


class _Kind(NamedTuple):
    """What is counted: a template at a level, or an exception in its traces."""

    id: int
    level: str
    exception: str = ""


@dataclass(slots=True)
class _Tally:
    """The messages of a kind in each block of a log, and the first line."""

    first_line: int = 0
    example: str = ""
    blocks: list[int] = field(default_factory=lambda: [0] * BLOCKS)

    @property
    def count(self) -> int:
        return sum(self.blocks)


def _tally(log: ParsedLog, with_levels: bool) -> Mapping[_Kind, _Tally]:
    found: dict[_Kind, _Tally] = {}
    for index, one in enumerate(log.occurrences()):
        kind = _Kind(one.match.id, one.level if with_levels else "")
        places = {kind: 0}  # the first line of each kind in this message
        for place, line in enumerate(log.texts(one.lines[1:]), 1):
            if name := exception_of(line):
                places.setdefault(kind._replace(exception=name), place)
        for kind, place in places.items():
            if kind not in found:
                found[kind] = _Tally(one.number + place, one.lines[place])
            found[kind].blocks[min(index * BLOCKS // log.n_messages, BLOCKS - 1)] += 1
    return found


def _comparable(kind: _Kind, *logs: Mapping[_Kind, _Tally]) -> bool:
    """Whether it has a row: an exception has one if it tells more than the row of its template."""
    template = kind._replace(exception="")
    known = all(template in log for log in logs)
    return not kind.exception or (known and not all(kind in log for log in logs))


def _row(
    kind: _Kind,
    template: str,
    logs: Sequence[_Tally],
    sizes: tuple[int, int],
    n_rows: int,
) -> DiffRow:
    before, after = (log.count for log in logs)
    shares = [log.count / max(1, size) for log, size in zip(logs, sizes, strict=True)]
    ratio = shares[1] / shares[0] if before else None
    if ratio is None or not after:
        change, burst, large = ("gone" if before else "new"), 1.0, True
    else:
        change, burst = ("more" if ratio >= 1 else "less"), burstiness(*(t.blocks for t in logs))
        large = not 1 / MIN_RATIO < ratio < MIN_RATIO
    share = sizes[1] / max(1, sum(sizes))
    chance = min(1.0, n_rows * binomial_test(before / burst, after / burst, share))
    significant = large and chance <= LEVEL
    if not significant and (before == after or ratio == 1):
        change = "same"
    example = logs[1] if after else logs[0]
    return DiffRow(
        *(kind.id, change, kind.level, template, before, after, ratio, chance),
        *(significant, example.first_line, example.example, kind.exception),
    )


def burstiness(*logs: Sequence[int]) -> float:
    """How many times the variance of the counts in blocks is that of lines at random; at least 1.

    >>> burstiness([5, 5, 5, 5]), burstiness([20, 0, 0, 0])
    (1.0, 20.0)
    """
    scatter, freedom = 0.0, 0
    for blocks in logs:
        mean = sum(blocks) / len(blocks)
        if mean:
            scatter += float(np.sum((np.array(blocks) - mean) ** 2)) / mean
            freedom += len(blocks) - 1
    return max(1.0, scatter / freedom) if freedom else 1.0


def binomial_test(before: float, after: float, share: float) -> float:
    """The two-sided probability of so uneven counts if each line is in a log by chance.

    ``share`` is the part of all lines that are in the second log.

    >>> binomial_test(0, 10, 0.5) == 2 * 0.5**10, binomial_test(5, 5, 0.5)
    (True, 1.0)
    """
    low, high = round(before), round(after)
    n = low + high
    if not n or not 0 < share < 1:
        return 1.0
    if n > EXACT and low and high:
        spread = math.sqrt(n * share * (1 - share))
        return math.erfc(max(0.0, abs(high - n * share) - 0.5) / spread / math.sqrt(2))
    if high < n * share:
        high, share = low, 1 - share
    tail = [_log_binomial(n, k, share) for k in range(high, n + 1)]
    return min(1.0, 2 * math.fsum(map(math.exp, tail)))


def _log_binomial(n: int, k: int, share: float) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return ways + k * math.log(share) + (n - k) * math.log1p(-share)
