"""What a study found: rows, series, and all that is needed to find it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Literal

Setting = str | int | float
# A row of the paper's table; one that we add to it; the cache itself.
Role = Literal["paper", "added", "cache"]
# What a comparison with the paper's number came to; "not measured" where the data is missing.
Verdict = Literal["holds", "differs", "inconclusive", "not measured"]
# What an ordering or a "more than" of the paper asks for.
Bound = Literal["at least", "at most"]
# Whether the comparison says anything: a number that could have come out otherwise; a budget, size
# or parameter count; a count of a file's lines or items; a sentence of the paper that another claim
# tests already; a number reached at a setting that was searched for it.
Kind = Literal["measured", "by construction", "file count", "repeat", "searched"]
# Where a tolerance comes from: the paper's spread, the last digit it prints, or us.
Source = Literal["spread", "rounding", "ours"]
# Student's t, for 95 in 100, by degrees of freedom from 1; later ones follow from the last.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean over seeds, with the standard deviation between them."""

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Measure:
        """One number per seed.

        >>> Measure.of([0.9, 1.0, 0.8])
        Measure(mean=0.9, sd=0.1, n=3)
        """
        if len(numbers) < 2:
            raise ValueError(f"a spread needs at least 2 seeds, got {len(numbers)}")
        mean, sd = fmean(numbers), stdev(numbers)
        return cls(float(f"{mean:.12g}"), float(f"{sd:.12g}"), len(numbers))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.sd / sqrt(self.n)

    @property
    def margin(self) -> float:
        """How far from the mean the truth may lie: two standard errors, and more for few seeds.

        >>> [round(Measure(0.0, 1.0, n).margin * sqrt(n), 2) for n in (2, 5, 10, 40, 1000)]
        [12.71, 2.78, 2.26, 2.03, 1.96]
        """
        return self._student * self.error

    @property
    def draw_margin(self) -> float:
        """How far from the mean one more draw may lie, at 95 in 100: the prediction interval."""
        return self._student * self.sd * sqrt(1 + 1 / self.n)

    @property
    def _student(self) -> float:
        free = self.n - 1
        return STUDENT[free - 1] if free <= len(STUDENT) else 1.96 + 2.7 / free


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: what was measured, and the setting it was measured at.

    Rows of one ``table`` have the measures of its first row, or some of them; a study with one
    table need not name it. A row that could not be measured names the stream that is ``missing``,
    and has no measures.
    """

    name: str
    label: str
    measures: Mapping[str, Measure]
    setting: str
    role: Role
    table: str = "table"
    missing: str = ""

    def __post_init__(self) -> None:
        """Refuse a row that is both measured and not, or neither."""
        if bool(self.measures) == bool(self.missing):
            raise ValueError(
                f"row {self.name!r} needs measures, or the name of the stream that is missing"
            )


def measures_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """What the columns of a table measure: what its first measured row has."""
    return next((tuple(row.measures) for row in rows if row.measures), ())


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a figure, with the standard deviation of ``y`` over seeds where one is drawn."""

    name: str
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    sd: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """A number of the paper beside ours, and whether the two are equivalent.

    ``id`` is study, table, row and measure. The verdict is *holds* when ``distance + margin <=
    tolerance``, *differs* when ``distance - margin > tolerance`` and else *inconclusive*.
    """

    id: str
    paper: float
    measured: float | None  # None where the data is missing, as all that follows from it
    spread: float | None  # standard deviation between seeds
    n: int  # seeds
    margin: float | None  # of our mean at 95 in 100
    tolerance: float
    source: Source  # of the tolerance
    verdict: Verdict
    kind: Kind
    bound: Bound | None = None  # of a number that the paper's only limits
    note: str = ""  # what has to be known whatever the verdict is
    explanation: str = ""  # why it differs; empty unless it does

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.measured is None else round(self.measured - self.paper, 12)

    @property
    def distance(self) -> float | None:
        """How far ours is from the paper's; negative where ours is well inside a bound.

        >>> from dataclasses import replace
        >>> claim = Claim("a.b.c.d", .9, .95, .0, 3, .0, .01, "ours", "holds", "measured")
        >>> claim.distance, replace(claim, bound="at least").distance
        (0.05, -0.05)
        """
        if self.difference is None:
            return None
        signs = {"at least": -self.difference, "at most": self.difference}
        return signs[self.bound] if self.bound else abs(self.difference)

    @property
    def unexplained(self) -> bool:
        """Whether it differs and nothing explains why; it decides the exit status."""
        return self.verdict == "differs" and not self.explanation

    @property
    def independent(self) -> bool:
        """Whether it was measured and could have failed by itself."""
        return self.kind == "measured"

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.id.split(".")[1]

    @property
    def row(self) -> str:
        """The name of the row."""
        return self.id.split(".")[2]

    @property
    def measure(self) -> str:
        """The name of the measure."""
        return self.id.split(".")[3]


@dataclass(frozen=True, slots=True)
class Result:
    """All that a study has to say; the report is made of nothing else."""

    study: str
    title: str
    question: str
    findings: tuple[str, ...]
    rows: tuple[Row, ...]
    settings: Mapping[str, Setting]
    seeds: tuple[int, ...]
    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    headings: Mapping[str, str] = field(default_factory=dict)  # table -> what stands above it
    missing: tuple[str, ...] = ()  # streams that were not on this machine

    @property
    def tables(self) -> Mapping[str, tuple[Row, ...]]:
        """Rows by the table they stand in, in order."""
        names = dict.fromkeys(row.table for row in self.rows)
        return {name: tuple(row for row in self.rows if row.table == name) for name in names}

    def claims_of(self, *rows: Row) -> tuple[Claim, ...]:
        """The paper's numbers for these rows."""
        places = {(row.table, row.name) for row in rows}
        return tuple(claim for claim in self.claims if (claim.table, claim.row) in places)

    def to_json(self) -> str:
        """The result as text; numbers survive the round trip exactly."""
        return json.dumps(asdict(self), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The result again, or ``ValueError`` if the text is not one."""
        try:
            return _rebuild(json.loads(text))
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ValueError(
                f"this is not a result of this version ({error}); run the study again"
            ) from error


def _rebuild(raw: Mapping[str, Any]) -> Result:
    rows = (
        {**row, "measures": {name: Measure(**m) for name, m in row["measures"].items()}}
        for row in raw["rows"]
    )
    series = (
        {**line, **{name: tuple(line[name]) for name in ("x", "y", "sd")}} for line in raw["series"]
    )
    made = {
        "findings": tuple(raw["findings"]),
        "rows": tuple(Row(**row) for row in rows),
        "seeds": tuple(raw["seeds"]),
        "series": tuple(Series(**line) for line in series),
        "claims": tuple(Claim(**claim) for claim in raw["claims"]),
        "missing": tuple(raw["missing"]),
    }
    return Result(**{**raw, **made})
