"""A key-value memory that costs what is distinct, not what is long."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cache import Cache, Memory, SlotTable
    from .policy import Concentration, Merge
    from .rule import Rule
    from .snapshot import SnapshotError

try:
    __version__ = version("distinctkv")
except PackageNotFoundError:  # a source tree that was not installed
    __version__ = "0+unknown"

__all__ = ["Cache", "Concentration", "Memory", "Merge", "Rule", "SlotTable", "SnapshotError"]

# Names are brought in when first used, so that `distinctkv --help` need not wait for NumPy.
_HOMES = {
    "Cache": "cache",
    "Concentration": "policy",
    "Memory": "cache",
    "Merge": "policy",
    "Rule": "rule",
    "SlotTable": "cache",
    "SnapshotError": "snapshot",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
