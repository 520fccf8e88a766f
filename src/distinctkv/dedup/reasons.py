"""Why records were left out, for a summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice

ASKED = 1000  # records of a run whose reason is found out


class Reasons:
    """The reasons of the first records that were left out, those of one kind together.

    >>> reasons = Reasons()
    >>> reasons.add_all(["it is no JSON: line 1", "it is empty", "it is no JSON: line 7"])
    >>> reasons.told()
    'most often because it is no JSON'
    """

    def __init__(self) -> None:
        self._found = Counter[str]()

    def add_all(self, found: Iterable[str]) -> None:
        """Some more; those that are not needed are not asked for."""
        for why in islice(found, ASKED - self._found.total()):
            self._found[re.split("[:;] ", why)[0]] += 1

    def told(self) -> str:
        """The commonest of them, in words; nothing if there is none."""
        if not self._found:
            return ""
        [(why, _)] = self._found.most_common(1)
        return f"because {why}" if len(self._found) == 1 else f"most often because {why}"
