"""Numbers and verdicts as people read them, the same in the terminal and on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from ..claims import headline
from ..claims import tally as count
from ..result import Claim, Measure, Result, Row, Verdict

# A sign for each verdict; of several in a row, the first stands for it.
MARKS: Mapping[Verdict, str] = {
    "differs": "≠",
    "inconclusive": "?",
    "holds": "✓",
    "not measured": "○",
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
class RowVerdict:
    """The claims on one row: their verdicts in a word or a few, and a line for each."""

    text: str
    verdict: Verdict | None = None
    lines: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """A sign that does not need colour."""
        return MARKS[self.verdict] if self.verdict else ""


def verdict(result: Result, row: Row) -> RowVerdict:
    """What the claims on a row came to; nothing, if the paper says nothing and it was measured."""
    claims = result.claims_of(row)
    if not claims:
        lacks = f"not measured: {row.missing} missing"
        return RowVerdict(lacks, "not measured") if row.missing else RowVerdict("")
    worst = next(one for one in MARKS if one in {claim.verdict for claim in claims})
    if worst == "not measured":
        return RowVerdict(UNMEASURED, worst)
    measures = ", ".join(claim.measure for claim in claims if claim.verdict == worst)
    said = worst if worst == "holds" else f"{measures}: {worst}"
    return RowVerdict(said, worst, tuple(map(claim_line, claims)))


def claim_line(claim: Claim) -> str:
    """A verdict with all that it rests on.

    >>> claim = Claim("a.b.dp.recall", 0.82, 0.817, 0.005, 10, 0.0034, 0.02, "spread", "holds",
    ...     "searched", note="theta searched for this number")
    >>> claim_line(claim)
    'recall holds: off by -0.003 ± 0.0034, tolerance 0.02; theta searched for this number'
    """
    if claim.difference is None or claim.margin is None:
        return f"{claim.measure}: {UNMEASURED}"
    bound = f" (paper: {claim.bound})" if claim.bound else ""
    kind = "" if claim.kind in ("measured", "searched") else claim.kind
    said = [
        f"{claim.measure} {claim.verdict}: off by {claim.difference:.3g} ± {claim.margin:.2g}, "
        f"tolerance {claim.tolerance:.2g}{bound}",
        kind,
        claim.note,
        claim.explanation,
    ]
    return "; ".join(filter(None, said))


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
    """The verdicts of the independent claims; then how many of each other kind hold."""
    rest = (
        f"{kind}: {found['holds']} of {found.total()} hold"
        for kind, found in count(results).items()
        if kind != "measured" and found.total()
    )
    return "; ".join([headline(results), *rest])


def score(result: Result) -> str:
    """The claims of a study by verdict; most of all, how many hold."""
    verdicts = Counter(claim.verdict for claim in result.claims)
    without = verdicts.pop("not measured", 0)
    said = [f"{verdicts['holds']} of {verdicts.total()} hold"] if verdicts or not without else []
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
    """Claims that do not hold, and the rows that share their words."""

    where: str
    text: str
    verdict: Verdict
    mark: str


def discrepancies(result: Result) -> list[Discrepancy]:
    """Where a number differs or is inconclusive; rows with the same words are named together."""
    labels = {(row.table, row.name): row.label for row in result.rows}
    found: dict[tuple[str, Verdict, str], list[str]] = {}
    for claim in result.claims:
        if claim.verdict in ("differs", "inconclusive"):
            said = f"{claim.measure} {claim.verdict}: {claim.explanation}".removesuffix(": ")
            found.setdefault((said, claim.verdict, MARKS[claim.verdict]), []).append(
                labels[claim.table, claim.row]
            )
    return [Discrepancy(", ".join(dict.fromkeys(rows)), *said) for said, rows in found.items()]
