"""A cache for transformers that merges repeated content: one slot for each distinct token.

Needs ``pip install 'distinctkv[hf]'``. Importing it changes nothing in transformers.
"""

from __future__ import annotations

from ..extras import install

try:
    import transformers  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(f"transformers is needed here: {install('hf')}") from error

from .cache import DistinctCache, calibrate, distinct_cache
from .config import (
    FAST,
    BrokenForwardError,
    CropError,
    MaskError,
    MergePolicy,
    PositionError,
    UnsupportedModelError,
    WrongModelError,
)
from .cuda_graph import captured
from .metric import Metric

__all__ = [
    "FAST",
    "BrokenForwardError",
    "CropError",
    "DistinctCache",
    "MaskError",
    "MergePolicy",
    "Metric",
    "PositionError",
    "UnsupportedModelError",
    "WrongModelError",
    "calibrate",
    "captured",
    "distinct_cache",
]
