"""The paper's numbers, and whether ours are equivalent to them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypedDict

from .result import Bound, Claim, Kind, Measure, Result, Row, Source, Verdict

# The largest spread that the paper prints, of a part of one; of a larger number, this part of it.
LARGEST_SPREAD = 0.03
SMOKE = "smoke"  # the scale at which a study only shows that it runs
MOST_SEEDS = 10  # as many as the paper's; a claim that these leave open stays inconclusive


class Wording(TypedDict, total=False):
    """A line of ``claims.toml``: a number and its tolerance always, the rest where it applies."""

    paper: float
    tolerance: float
    source: Source
    kind: Kind
    bound: Bound
    once: bool
    note: str
    explanation: str


# table -> row -> measure -> wording
Claims = Mapping[str, Mapping[str, Mapping[str, Wording]]]


@cache
def _all_claims() -> Mapping[str, Claims]:
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def claims_for(study: str) -> Claims:
    """What the paper claims of a study.

    >>> claims_for("recall")["table"]["dp"]["slots"]
    {'paper': 64, 'tolerance': 0.5, 'source': 'rounding'}
    """
    return _all_claims().get(study, {})


def check(study: str, rows: Sequence[Row], claims: Claims | None = None) -> tuple[Claim, ...]:
    """A verdict for every claim on a study; ``claims`` is ``claims.toml`` if not given."""
    claims = claims_for(study) if claims is None else claims
    measured = {
        f"{study}.{row.table}.{row.name}.{name}": measure
        for row in rows
        for name, measure in row.measures.items()
    }
    claimed = _lines(study, claims)
    missing = tuple(f"{study}.{row.table}.{row.name}." for row in rows if row.missing)
    unmeasured = [name for name in claimed if name not in measured and not name.startswith(missing)]
    if unmeasured:
        raise ValueError(
            f"claims.toml speaks of {min(unmeasured)}, which was not measured; "
            f"there are {', '.join(measured)}"
        )
    return tuple(
        judge(name, measured[name], wording) if name in measured else mark_unmeasured(name, wording)
        for name, wording in claimed.items()
    )


def unmeasured(study: str) -> tuple[Claim, ...]:
    """Every claim on a study whose data is missing."""
    lines = _lines(study, claims_for(study))
    return tuple(mark_unmeasured(name, wording) for name, wording in lines.items())


def attach(result: Result) -> Result:
    """The result with every claim on its study judged, or marked as not measured.

    The numbers of a smoke run must be there, and are not judged.
    """
    judged = check(result.study, result.rows) if result.rows else ()
    if not judged or result.settings.get("scale") == SMOKE:
        judged = unmeasured(result.study)
    return replace(result, claims=judged)


def mark_unmeasured(name: str, wording: Wording) -> Claim:
    """A claim on what was not measured.

    >>> mark_unmeasured("toy.table.dp.recall", {"paper": 0.92, "tolerance": 0.02}).verdict
    'not measured'
    """
    return Claim(
        id=name,
        paper=wording["paper"],
        measured=None,
        spread=None,
        n=0,
        margin=None,
        tolerance=wording["tolerance"],
        source=wording.get("source", "ours"),
        verdict="not measured",
        kind=wording.get("kind", "measured"),
        bound=wording.get("bound"),
        note=wording.get("note", ""),
    )


def _lines(study: str, claims: Claims) -> Mapping[str, Wording]:
    """The wordings by the id of their claim."""
    return {
        f"{study}.{table}.{row}.{name}": wording
        for table, named in claims.items()
        for row, wordings in named.items()
        for name, wording in wordings.items()
    }


def judge(name: str, ours: Measure, wording: Wording) -> Claim:
    """The equivalence test of one claim, from the data alone.

    >>> wording = {"paper": 0.92, "tolerance": 0.02}
    >>> [judge("toy.table.dp.recall", Measure(mean, 0.01, 9), wording).verdict
    ...  for mean in (0.915, 0.905, 0.85)]
    ['holds', 'inconclusive', 'differs']
    """
    tolerance, margin = _limits(ours, wording)
    claim = Claim(
        id=name,
        paper=wording["paper"],
        measured=ours.mean,
        spread=ours.sd,
        n=ours.n,
        margin=margin,
        tolerance=tolerance,
        source=wording.get("source", "ours"),
        verdict="inconclusive",
        kind=wording.get("kind", "measured"),
        bound=wording.get("bound"),
        note=wording.get("note", ""),
    )
    verdict = _verdict(claim.distance or 0.0, margin, tolerance)
    explanation = wording.get("explanation", "") if verdict == "differs" else ""
    return replace(claim, verdict=verdict, explanation=explanation)


def _verdict(distance: float, margin: float, tolerance: float) -> Verdict:
    if round(distance + margin - tolerance, 12) <= 0:
        return "holds"
    return "differs" if round(distance - margin - tolerance, 12) > 0 else "inconclusive"


def _limits(ours: Measure, wording: Wording) -> tuple[float, float]:
    """Tolerance and margin: the claim's own and that of our mean, or those of one more draw.

    Where the paper draws once, its number may lie as far from our mean as one more draw of ours:
    the prediction interval at 95 in 100 is added to the tolerance. What that interval has above the
    largest spread that the paper prints is margin, so that widely spread draws agree with nothing.

    >>> _limits(Measure(629.5, 2.0, 5), {"paper": 628, "tolerance": 0.5, "once": True})
    (6.590674839457, 0.0)
    """
    if not wording.get("once"):
        return wording["tolerance"], round(ours.margin, 12)
    most = LARGEST_SPREAD * max(1.0, abs(wording["paper"]))
    allowed = min(ours.draw_margin, most)
    return round(wording["tolerance"] + allowed, 12), round(ours.draw_margin - allowed, 12)


# More seeds


def seeds_wanted(result: Result, most: int = MOST_SEEDS) -> int:
    """How many seeds, up to ``most``, would settle the inconclusive claims if their means stay.

    Only independent claims are worth the time. 0 if each of them has a verdict, or if so many seeds
    would settle none of the others.
    """
    lines = _lines(result.study, claims_for(result.study))
    wanted = (
        _seeds_to_settle(claim, lines[claim.id], most)
        for claim in result.claims
        if claim.verdict == "inconclusive" and claim.independent
    )
    return max(wanted, default=0)


def _seeds_to_settle(claim: Claim, wording: Wording, most: int) -> int:
    """The fewest seeds that give a verdict, or 0.

    >>> wording = {"paper": 0.92, "tolerance": 0.02}
    >>> claim = judge("toy.table.dp.recall", Measure(0.91, 0.01, 3), wording)
    >>> claim.verdict, _seeds_to_settle(claim, wording, most=10)
    ('inconclusive', 7)
    """
    mean, sd = claim.measured or 0.0, claim.spread or 0.0
    for n in range(claim.n + 1, most + 1):
        if judge(claim.id, Measure(mean, sd, n), wording).verdict != "inconclusive":
            return n
    return 0


# The tally


def tally(results: Iterable[Result]) -> dict[Kind, Counter[Verdict]]:
    """How many claims of each kind have which verdict; the first kind could have failed."""
    kinds: tuple[Kind, ...] = ("measured", "searched", "repeat", "by construction", "file count")
    found: dict[Kind, Counter[Verdict]] = {kind: Counter() for kind in kinds}
    for result in results:
        for claim in result.claims:
            found[claim.kind][claim.verdict] += 1
    return found


def headline(results: Iterable[Result]) -> str:
    """The verdicts of the claims that were measured and could have failed, as the README has them.

    >>> from .result import Result
    >>> claim = judge("toy.table.dp.recall", Measure(0.9, 0.0, 3), {"paper": 0.9, "tolerance": 0.1})
    >>> headline([Result("toy", "", "", (), (), {}, (), claims=(claim,))])
    '1 independent claim: 1 holds, 0 differ, 0 inconclusive'
    """
    found = tally(results)["measured"]
    total = found.total()
    if not total:
        return "no independent claims"
    said = (
        f"{total} independent claim{'s' * (total != 1)}: "
        f"{found['holds']} hold{'s' * (found['holds'] == 1)}, "
        f"{found['differs']} differ{'s' * (found['differs'] == 1)}, "
        f"{found['inconclusive']} inconclusive"
    )
    return f"{said}, {found['not measured']} not measured" if found["not measured"] else said
