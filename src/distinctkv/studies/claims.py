"""The paper's numbers, and whether ours agree with them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TypedDict

from .result import Claim, Measure, Row


class Wording(TypedDict, total=False):
    """A line of ``claims.toml``: ``paper`` and ``within`` always, a qualification sometimes."""

    paper: float
    within: float
    but: str
    instead: str
    ours: float


# table -> row -> measure -> wording
Claims = Mapping[str, Mapping[str, Mapping[str, Wording]]]


def claims_for(study: str) -> Claims:
    """What the paper claims of a study.

    >>> claims_for("recall")["table"]["dp"]["slots"]
    {'paper': 64, 'within': 0.5}
    """
    text = files(__package__).joinpath("claims.toml").read_text(encoding="utf-8")
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
    claimed = {
        f"{study}.{table}.{row}.{name}": wording
        for table, named in claims.items()
        for row, wordings in named.items()
        for name, wording in wordings.items()
    }
    if absent := sorted(claimed.keys() - measured.keys()):
        raise ValueError(
            f"claims.toml speaks of {absent[0]}, which was not measured; "
            f"there are {', '.join(measured)}"
        )
    return tuple(judge(name, measured[name], wording) for name, wording in claimed.items())


def judge(name: str, ours: Measure, wording: Wording) -> Claim:
    """One verdict: ``|ours - paper| <= within + 2 standard errors`` holds.

    >>> judge("recall.table.h2o.recall", Measure(0.9, 0.03, 9), {"paper": 0.92, "within": 0.02})
    Claim(id='recall.table.h2o.recall', paper=0.92, measured=0.9, spread=0.03, tolerance=0.04, \
verdict='holds', holds=True)
    """
    tolerance = round(wording["within"] + 2 * ours.error, 12)
    agrees = round(abs(ours.mean - wording["paper"]), 12) <= tolerance
    verdict = "holds" if agrees else "fails"
    if agrees and "but" in wording:
        verdict = f"holds, {wording['but']}"
    gap = round(abs(ours.mean - wording.get("ours", ours.mean)), 12)
    contested = "instead" in wording and gap <= tolerance
    if contested:
        verdict = wording["instead"]
    return Claim(
        id=name,
        paper=wording["paper"],
        measured=ours.mean,
        spread=ours.sd,
        tolerance=tolerance,
        verdict=verdict,
        holds=agrees or contested,
    )
