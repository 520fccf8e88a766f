"""Inside language models: a cache for transformers that is smaller where the text repeats itself.

Needs ``pip install 'distinctkv[hf]'``. Nothing of transformers is changed by importing this.
"""

from __future__ import annotations

from ..extras import install

try:
    import transformers  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(f"transformers is needed here: {install('hf')}") from error

from .cache import DistinctCache, calibrate, distinct_cache
from .config import (
    CAREFUL,
    BrokenForwardError,
    Care,
    CropError,
    MaskError,
    PositionError,
    UnsupportedModelError,
    WrongModelError,
)
from .cuda_graph import captured
from .metric import Metric

__all__ = [
    "CAREFUL",
    "BrokenForwardError",
    "Care",
    "CropError",
    "DistinctCache",
    "MaskError",
    "Metric",
    "PositionError",
    "UnsupportedModelError",
    "WrongModelError",
    "calibrate",
    "captured",
    "distinct_cache",
]
