"""What the kernels take, and how wrong their arithmetic can be: what it may decide alone.

For rows that stray from length one the kernels add what `halves.prepare` found.
"""

from __future__ import annotations

WIDTHS = (16, 32, 64, 128, 256)  # key and value sizes that the kernels take


def rough(width: int) -> float:
    """Similarities in float16, as a mark of `nearest` gives them.

    Each factor is wrong by 2**-11 of itself, the sum of D terms by D 2**-23, the mark by 2**-16.

    >>> rough(128) < 2**-9
    True
    """
    return 2.0**-10 + width * 2.0**-22 + 2.0**-15


def fine(width: int) -> float:
    """Similarities of rows given as two halves: 22 bits, the sum, and the lengths."""
    return 2.0**-19 + width * 2.0**-22


def single(width: int) -> float:
    """Half a squared distance in float32, a sum of D terms."""
    return (width + 8) * 2.0**-22
