"""A key-value memory that costs what is distinct, not what is long."""

from importlib.metadata import PackageNotFoundError, version

from .memory import Cache, Memory, SlotTable
from .policy import Concentration, Merge
from .rule import Rule
from .snapshot import SnapshotError

try:
    __version__ = version("distinctkv")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = ["Cache", "Concentration", "Memory", "Merge", "Rule", "SlotTable", "SnapshotError"]
