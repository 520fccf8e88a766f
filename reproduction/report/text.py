"""Numbers and verdicts as people read them, the same in the terminal and on the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from string import Formatter

from ..claims import headline, tally
from ..result import Claim, Kind, Measure, Result, Row, Verdict

# A sign for each verdict, which does not need colour; of several the first stands for all.
MARKS: Mapping[Verdict, str] = {
    "differs": "≠",
    "inconclusive": "?",
    "not measured": "○",
    "holds": "✓",
}
# What claims of each kind are, where they are counted apart.
KINDS: Mapping[Kind, str] = {
    "searched": "at settings searched for them",
    "repeat": "that repeat another",
    "by construction": "set by construction",
    "file count": "that count what a file has",
}
# A searched number has a note that says so.
REMARKS: Mapping[Kind, str] = {
    "repeat": "repeats another claim",
    "by construction": "by construction",
    "file count": "a count of the file",
}
VERBS = {"holds": "hold", "differs": "differ"}
SUMMARY = Path(__file__).with_name("summary.md")
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


def cell(row: Row, measure: str) -> str:
    """What was measured, or a dash where a row has no such number."""
    return spread(row.measures[measure]) if measure in row.measures else "–"


# Claims


def claim_on(result: Result, row: Row, measure: str) -> Claim | None:
    """The claim on one cell of the table, if there is one."""
    found = (claim for claim in result.claims_of(row) if claim.measure == measure)
    return next(found, None)


def claimed(claim: Claim) -> str:
    """The paper's number, and whether it is a limit."""
    sign = {"at least": "≥ ", "at most": "≤ "}.get(claim.bound or "", "")
    return sign + printed(claim.paper)


def quantity(value: float | None) -> str:
    """A margin or a tolerance in two digits that count, of the first four; or a dash.

    >>> quantity(0.0123), quantity(0.000096), quantity(0.0), quantity(25.4), quantity(None)
    ('0.012', '0.0001', '0', '25', '–')
    """
    if value is None:
        return "–"
    return (
        f"{value:,.0f}"
        if abs(value) >= 10
        else f"{float(f'{value:.2g}'):.4f}".rstrip("0").rstrip(".")
    )


def remark(claim: Claim) -> str:
    """What the verdict alone does not say: what kind of claim it is, and what to know of it."""
    kind = REMARKS.get(claim.kind, "")
    return "; ".join(part for part in (kind, claim.explanation, claim.note) if part)


def counted(verdicts: Mapping[Verdict, int]) -> str:
    """How many claims have which verdict.

    >>> counted({"holds": 5, "differs": 1})
    '5 hold, 1 differs'
    """
    order: tuple[Verdict, ...] = ("holds", "differs", "inconclusive", "not measured")
    return ", ".join(
        f"{n} {verdict if n == 1 else VERBS.get(verdict, verdict)}"
        for verdict in order
        if (n := verdicts.get(verdict, 0))
    )


def score(result: Result) -> str:
    """The verdicts of a study's claims that could have failed, and how many others it has."""
    if not result.claims:
        return "the paper has no numbers for it"
    found = tally([result])
    others = sum(verdicts.total() for kind, verdicts in found.items() if kind != "measured")
    said = counted(found["measured"]) or "no independent claim"
    return f"{said}; {others} of other kinds" if others else said


def tally_lines(results: Sequence[Result]) -> list[str]:
    """The verdicts of the claims that are counted, whose tolerances they have, and the others."""
    found = tally(results)
    sources = [claim.source for result in results for claim in result.claims if claim.independent]
    n = sources.count("ours")
    tolerances = (
        f"{n} of these {len(sources)} tolerances {'is' if n == 1 else 'are'} ours, not the paper's."
    )
    others = [f"{found[kind].total()} {words}" for kind, words in KINDS.items() if found[kind]]
    counted_not = [f"Judged and not counted: {', '.join(others)}."] if others else []
    return [f"{headline(results).capitalize()}.", *([tolerances] if n else []), *counted_not]


# The head of the page


class _Lookup(Formatter):
    """Fills ``{study.table.row.measure:.3f}``."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = values

    def get_field(self, field_name: str, args: object, kwargs: object) -> tuple[float, str]:
        return self.values[field_name], field_name


def summary(results: Sequence[Result], template: str | None = None) -> list[tuple[Verdict, str]]:
    """What holds and what does not: a verdict and a line of Markdown for each part of the template.

    The first line of a part names its claims; the verdict is the worst of theirs. A part of which
    nothing was run is left out; one whose data is missing says so.
    """
    if template is None:
        template = SUMMARY.read_text(encoding="utf-8")
    claims = {claim.id: claim for result in results for claim in result.claims}
    titles = {result.study: result.title for result in results}
    values = {
        f"{result.study}.{row.table}.{row.name}.{name}": measure.mean
        for result in results
        for row in result.rows
        for name, measure in row.measures.items()
    }
    lines: list[tuple[Verdict, str]] = []
    for part in template.strip().split("\n\n"):
        names, _, text = part.partition("\n")
        found = [claims[name] for name in names.split(", ") if name in claims]
        study = names.partition(".")[0]
        if study not in titles:
            continue
        try:
            said = _Lookup(values).format(" ".join(text.split()))
            verdicts: Counter[Verdict] = Counter(claim.verdict for claim in found)
            worst = [verdict for verdict in MARKS if verdicts[verdict]]
            lines.append((worst[0] if worst else "not measured", said))
        except KeyError:
            lines.append(("not measured", f"[{titles[study]}](#study-{study}): data missing."))
    return lines


# Notices


def seeds_behind(rows: Iterable[Row], default: int = 0) -> str:
    """How many seeds the means have; a long study uses fewer than it is given.

    >>> seeds_behind([Row("dp", "", {"recall": Measure(1.0, 0.0, 3)}, "", "cache")])
    '3 seeds'
    """
    counts = {measure.n for row in rows for measure in row.measures.values()} or {default}
    fewest, most = min(counts), max(counts)
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
