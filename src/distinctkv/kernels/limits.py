"""What the kernels take, and how wrong their arithmetic can be: what they may decide alone.

The torch references share these numbers.
"""

from __future__ import annotations

LENGTHS = (0.9, 1.1)  # a key may be as short or as long as this: bfloat16 keys are unit to 0.4 %
FURTHEST = 2.0  # novelty of opposite keys, and of anything in an empty memory
TIE = 2.0**-18  # of the reach and the token's squared length: more than float32 is off
OFF = 2.0**-21  # of the place times the root of the reach: more than the rounding of two places
BLOCK = 512  # tokens whose products are summed in float32, before sums are in float64
WIDTHS = (16, 32, 64, 128, 256)  # key and value sizes that the kernels of `nn` take
# The longest row that a kernel of `hf` takes; others take any. `allocate`: a power of two, and the
# place.
WIDEST = {"read": 256, "features": 128, "moments": 128, "allocate": 513}


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
