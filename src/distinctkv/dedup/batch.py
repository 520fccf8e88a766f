"""A list of records without its near-repeats, at any similarity, with the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import OnBad
from ..inputs import faults
from .deduplicator import Deduplicator
from .records import Encoder, several
from .verdict import Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Deduplication:
    """Records parted in kept and dropped; their vectors are held, so that it can be done again."""

    similarity: float
    records: list[Any]
    verdicts: list[Verdict]  # one for each record
    rows: NDArray[Any]

    @property
    def kept(self) -> list[Any]:
        """Records that were kept, in order."""
        return [self.records[verdict.number] for verdict in self.verdicts if verdict.kept]

    @property
    def dropped(self) -> list[tuple[Any, Verdict]]:
        """Records that were not, each with the reason: `Verdict.of` and `Verdict.similarity`."""
        return [(self.records[one.number], one) for one in self.verdicts if not one.kept]

    def rethreshold(self, similarity: float) -> Deduplication:
        """The same at another similarity, higher or lower; nothing is encoded again."""
        bad = {one.number: one for one in self.verdicts if one.bad}
        seen = Deduplicator(similarity, on_bad="skip")  # what was not to be skipped is refused
        told = [
            bad.get(one.number, one)
            if one.of is None
            else one._replace(record=self.records[one.of])
            for one in seen.add_many(self.rows)
        ]
        return Deduplication(float(similarity), self.records, told, self.rows)


def deduplicate(
    records: Iterable[Any],
    similarity: float = 0.9,
    *,
    encode: Encoder | None = None,
    field: str | None = None,
    on_bad: OnBad = "raise",
) -> Deduplication:
    """Part records in those to keep and those that repeat one of them.

    With ``on_bad="skip"`` those that cannot be compared are dropped as well, with their reason.

    >>> found = deduplicate(["the door is open", "the door is open!", "no such file"], 0.7)
    >>> found.kept
    ['the door is open', 'no such file']
    >>> [(record, one.of, round(one.similarity, 2)) for record, one in found.dropped]
    [('the door is open!', 0, 0.8)]
    >>> len(found.rethreshold(0.9).kept)
    3
    """
    given = [*several(records)]
    seen = Deduplicator(similarity, encode=encode, field=field, on_bad=on_bad)
    rows = seen._rows(given) if given else np.empty((0, 1))
    bad = [
        seen._why(Verdict(False, number), given[number], rows.shape[1])
        for number in np.flatnonzero(faults(rows, "cosine")).tolist()
    ]
    return Deduplication(float(similarity), given, bad, rows).rethreshold(similarity)
