"""Numbers and verdicts as people read them, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..studies.result import Claim, Kind, Measure, Result, Row

# A sign for each kind of verdict; of several in a row, the first stands for it.
MARKS: Mapping[Kind, str] = {"fails": "✗", "contested": "≠", "holds": "✓", "aside": "·"}


def number(value: float, like: float | None = None) -> str:
    """Three digits after the point for parts of one, fewer for counts, or as many as ``like``.

    >>> number(0.9204), number(63.997), number(256), number(12288.0), number(1.223, like=12288.0)
    ('0.920', '64.0', '256', '12,288', '1')
    """
    size = abs(value if like is None else like)
    return f"{value:z,.{0 if size >= 100 else 1 if size >= 10 else 3}f}"


def printed(value: float) -> str:
    """A number of the paper, with the digits that papers print.

    >>> printed(0.82), printed(1.0), printed(64), printed(30000)
    ('0.82', '1.00', '64', '30,000')
    """
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,g}"


def spread(measure: Measure) -> str:
    """A mean, and its spread where that is large enough to be seen.

    >>> spread(Measure(0.92, 0.014, 10)), spread(Measure(64.0, 0.005, 10))
    ('0.920 ± 0.014', '64.0')
    """
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
    """What we say of a row; nothing, if the paper says nothing.

    Failures are named first; else the most particular wording stands for the row.
    """
    claims = result.claims_of(row)
    if not claims:
        return Verdict("")
    kind = next(kind for kind in MARKS if kind in {claim.kind for claim in claims})
    if kind == "fails":
        failed = ", ".join(claim.measure for claim in claims if not claim.passes)
        return Verdict(f"fails: {failed}", kind)
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


def tally(results: Sequence[Result]) -> str:
    """How many claims hold, and how many we contest; those that we do not judge are not counted."""
    kinds = [claim.kind for result in results for claim in result.claims if claim.judged]
    if not kinds:
        return "no claims to check"
    hold = f"{kinds.count('holds')} of {len(kinds)} claims hold"
    return f"{hold}, {kinds.count('contested')} contested" if "contested" in kinds else hold


def score(result: Result) -> str:
    """Claims that hold, of all that are judged in a study."""
    kinds = [claim.kind for claim in result.claims if claim.judged]
    return f"{kinds.count('holds')} of {len(kinds)} hold"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A verdict other than "holds", and the rows that share it."""

    where: str
    text: str
    kind: str  # contested or fails
    mark: str


def doubts(result: Result) -> list[Doubt]:
    """Where we differ from the paper; rows with the same words are named together."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in result.rows:
        said = verdict(result, row)
        if said.kind in ("contested", "fails"):
            found.setdefault((said.text, said.kind, said.mark), []).append(row.label)
    return [Doubt(", ".join(rows), *said) for said, rows in found.items()]
