"""Numbers and verdicts as people read them, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ..result import Claim, Kind, Measure, Result, Row

# A sign for each kind of verdict; of several in a row, the first stands for it.
MARKS: Mapping[Kind, str] = {
    "fails": "✗",
    "contested": "≠",
    "holds": "✓",
    "not_judged": "·",
    "missing": "○",
}
UNMEASURED = "not measured: data missing"


def number(value: float, like: float | None = None) -> str:
    """Three digits after the point for parts of one, fewer for counts, or as many as ``like``.

    >>> number(0.9204), number(63.997), number(256), number(12288.0), number(1.223, like=12288.0)
    ('0.920', '64.0', '256', '12,288', '1')
    """
    size = abs(value if like is None else like)
    return f"{value:z,.{0 if size >= 100 else 1 if size >= 10 else 3}f}"


def printed(value: float) -> str:
    """A number of the paper, with all its digits; a part of one has two at least.

    >>> printed(0.82), printed(1.0), printed(0.999), printed(2), printed(74.4), printed(30000)
    ('0.82', '1.00', '0.999', '2', '74.4', '30,000')
    """
    if isinstance(value, int):
        return f"{value:,}"
    digits = f"{Decimal(repr(value)):f}".partition(".")[2].rstrip("0")
    return f"{value:,.{max(2 if abs(value) < 10 else 0, len(digits))}f}"


def spread(measure: Measure) -> str:
    """A mean, and its spread where that is large enough to be seen.

    A whole number above one that has no spread at all is a count, and has no digits after it.

    >>> spread(Measure(0.92, 0.014, 10)), spread(Measure(64.0, 0.005, 10))
    ('0.920 ± 0.014', '64.0')
    >>> spread(Measure(14.0, 0.0, 10)), spread(Measure(1.0, 0.0, 10))
    ('14', '1.000')
    """
    if measure.sd == 0 and measure.mean.is_integer() and measure.mean > 1:
        return f"{measure.mean:,.0f}"
    sd = number(measure.sd, like=measure.mean)
    return number(measure.mean) + (f" ± {sd}" if float(sd.replace(",", "")) else "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The claims on one row, in a word or a few."""

    text: str
    kind: Kind | None = None

    @property
    def mark(self) -> str:
        """A sign that does not need colour."""
        return MARKS[self.kind] if self.kind else ""

    @property
    def passes(self) -> bool:
        """Whether nothing fails here."""
        return self.kind != "fails"


def verdict(result: Result, row: Row) -> Verdict:
    """What we say of a row; nothing, if the paper says nothing and it was measured.

    Failures are named first, then every verdict that is more than "holds".
    """
    claims = result.claims_of(row)
    if not claims:
        lacks = f"not measured: {row.missing} missing"
        return Verdict(lacks, "missing") if row.missing else Verdict("")
    kind = next(kind for kind in MARKS if kind in {claim.kind for claim in claims})
    if kind == "fails":
        failed = ", ".join(claim.measure for claim in claims if not claim.passes)
        return Verdict(f"fails: {failed}", kind)
    if kind == "missing":
        return Verdict(UNMEASURED, kind)
    particular = [claim for claim in claims if claim.verdict != "holds"]
    said = "; ".join(f"{claim.measure}: {claim.verdict}" for claim in particular)
    return Verdict(said or "holds", kind)


def paper(result: Result, row: Row, measure: str) -> str:
    """The paper's number for a cell, or a dash."""
    claim = claim_on(result, row, measure)
    return printed(claim.paper) if claim else "–"


def claim_on(result: Result, row: Row, measure: str) -> Claim | None:
    """The claim on one cell of the table, if there is one."""
    found = (claim for claim in result.claims_of(row) if claim.measure == measure)
    return next(found, None)


def cell(row: Row, measure: str) -> str:
    """What was measured, or a dash in a row whose data is missing."""
    return spread(row.measures[measure]) if row.measures else "–"


def tally(results: Sequence[Result]) -> str:
    """How many claims hold, how many we contest, and how many lack their data.

    Those that we do not judge are not counted.
    """
    claims = [claim for result in results for claim in result.claims]
    kinds = [claim.kind for claim in claims if claim.judged]
    said = f"{kinds.count('holds')} of {len(kinds)} claims hold" if kinds else "no claims to check"
    if "contested" in kinds:
        said += f", {kinds.count('contested')} contested"
    without = sum(claim.kind == "missing" for claim in claims)
    return f"{said}; {without} claim{'s' * (without != 1)} {UNMEASURED}" if without else said


def score(result: Result) -> str:
    """Claims that hold, of all that are judged in a study, and those that lack their data."""
    kinds = [claim.kind for claim in result.claims if claim.judged]
    without = sum(claim.kind == "missing" for claim in result.claims)
    said = [f"{kinds.count('holds')} of {len(kinds)} hold"] if kinds or not without else []
    return "; ".join([*said, f"{without} {UNMEASURED}"] if without else said)


def seeds_behind(result: Result) -> str:
    """How many seeds the means have; a long study uses fewer than it is given.

    >>> row = Row("dp", "", {"recall": Measure(1.0, 0.0, 3)}, "", "cache")
    >>> seeds_behind(Result("toy", "", "", (), (row,), {}, tuple(range(10))))
    '3 seeds'
    """
    counts = {measure.n for row in result.rows for measure in row.measures.values()}
    fewest, most = min(counts, default=len(result.seeds)), max(counts, default=len(result.seeds))
    return f"{fewest} to {most} seeds" if fewest < most else f"{most} seeds"


def missing_notice(result: Result) -> str:
    """Which streams a study lacks, and how to get them; empty if it lacks none.

    >>> missing_notice(Result("toy", "", "", (), (), {}, (), missing=("mimic",)))[:65]
    'Missing data: mimic. Run python -m reproduction.data get mimic, o'
    """
    if not result.missing:
        return ""
    one = len(result.missing) == 1
    command = f"python -m reproduction.data get {result.missing[0] if one else 'NAME'}"
    return (
        f"Missing data: {', '.join(result.missing)}. Run {command}{'' if one else ' for each'}, or "
        f"let DISTINCTKV_DATA name {'its' if one else 'their'} folder."
    )


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A verdict other than "holds", and the rows that share it."""

    where: str
    text: str
    kind: str  # contested or fails
    mark: str


def discrepancies(result: Result) -> list[Discrepancy]:
    """Where we differ from the paper; rows with the same words are named together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in result.rows:
        said = verdict(result, row)
        if said.kind in ("contested", "fails"):
            found.setdefault((said.text, said.kind, said.mark), []).append(row.label)
    return [Discrepancy(", ".join(rows), *said) for said, rows in found.items()]
