"""Usage that decays with every line, stored so that nothing is touched while it decays.

A leaf that was seen at lines ``t`` has usage ``sum(decay ** (now - t))``. Stored is the logarithm
of ``sum(decay ** -t)``, which stays the same between its lines and puts leaves in the same order.
"""

from __future__ import annotations

from math import exp, inf, log1p


def both(one: float, two: float) -> float:
    """Two stored usages together.

    >>> both(0.0, 0.0), both(-inf, 3.0), both(900.0, 0.0)
    (0.6931471805599453, 3.0, 900.0)
    """
    low, high = (one, two) if one < two else (two, one)
    return high if low == -inf else high + log1p(exp(low - high))
