"""A comparison in words, for study ``real_frontier``."""

from __future__ import annotations

from ..result import Measure


def compared(gain: Measure) -> str:
    """More or less than, or as much as, by the margin of the mean.

    >>> compared(Measure(0.02, 0.01, 4)), compared(Measure(0.005, 0.01, 4))
    ('more than', 'as much as')
    """
    if abs(gain.mean) <= gain.margin:
        return "as much as"
    return "more than" if gain.mean > 0 else "less than"
