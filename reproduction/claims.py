"""The paper's numbers, and whether ours agree with them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from .result import Claim, Kind, Measure, Result, Row, Source


class Wording(TypedDict, total=False):
    """A line of ``claims.toml``: a number and its tolerance always, a qualification sometimes."""

    paper: float
    tolerance: float
    source: Source
    caveat: str
    contested: str
    ours: float
    not_judged: str
    lower_bound: bool


# table -> row -> measure -> wording
Claims = Mapping[str, Mapping[str, Mapping[str, Wording]]]


def claims_for(study: str) -> Claims:
    """What the paper claims of a study.

    >>> claims_for("recall")["table"]["dp"]["slots"]
    {'paper': 64, 'tolerance': 0.5, 'source': 'rounding'}
    """
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    tables: Claims = tomllib.loads(text).get(study, {})
    return tables


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
    """The result with every claim on its study judged, or marked as not measured."""
    judged = check(result.study, result.rows) if result.rows else unmeasured(result.study)
    return replace(result, claims=judged)


def mark_unmeasured(name: str, wording: Wording) -> Claim:
    """A claim on what was not measured.

    >>> mark_unmeasured("toy.table.dp.recall", {"paper": 0.92, "tolerance": 0.02}).verdict
    'not measured: data missing'
    """
    return Claim(
        id=name,
        paper=wording["paper"],
        measured=None,
        spread=None,
        tolerance=wording["tolerance"],
        source=wording.get("source", "ours"),
        verdict="not measured: data missing",
        kind="missing",
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
    """One verdict: ``|ours - paper| <= tolerance + margin`` holds.

    >>> wording = {"paper": 0.92, "tolerance": 0.02}
    >>> claim = judge("toy.table.dp.recall", Measure(0.9, 0.03, 9), wording)
    >>> claim.verdict, round(claim.tolerance, 4)
    ('holds', 0.0431)
    """
    tolerance = round(wording["tolerance"] + ours.margin, 12)
    verdict, kind = _verdict(ours.mean, tolerance, wording)
    return Claim(
        id=name,
        paper=wording["paper"],
        measured=ours.mean,
        spread=ours.sd,
        tolerance=tolerance,
        source=wording.get("source", "ours"),
        verdict=verdict,
        kind=kind,
    )


def _verdict(mean: float, tolerance: float, wording: Wording) -> tuple[str, Kind]:
    """The verdict in words, and its kind."""

    def near(number: float) -> bool:
        return round(abs(mean - number), 12) <= tolerance

    if "not_judged" in wording:
        return f"not judged, {wording['not_judged']}", "not_judged"
    if "contested" in wording and near(wording["ours"]):
        return wording["contested"], "contested"
    if near(wording["paper"]) or (wording.get("lower_bound") and mean > wording["paper"]):
        return f"holds, {wording['caveat']}" if "caveat" in wording else "holds", "holds"
    return "fails", "fails"
