"""Build a cache, or anything mergeable, from many shards: one part for each, then merged.

Parts travel between workers as snapshot files, whole and checked, and never as a pickle.
"""

from .build import Mergeable, Processes, ShardError, build, on_dask, on_ray
from .loaders import files, lines, records, rows

__all__ = [
    "Mergeable",
    "Processes",
    "ShardError",
    "build",
    "files",
    "lines",
    "on_dask",
    "on_ray",
    "records",
    "rows",
]
