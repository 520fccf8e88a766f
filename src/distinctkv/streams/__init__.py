"""Uses of the rule on streams: log lines, records, rows to cluster, things never seen before."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import OnlineDPMeans
    from .dedup import Deduplication, Deduplicator, NGrams, RecordError, Verdict, deduplicate
    from .logs import LogParser
    from .novelty import Known, NoveltyDetector, Sighting
    from .parsing.matches import LogMatch, LogTemplate

__all__ = [
    "Deduplication",
    "Deduplicator",
    "Known",
    "LogMatch",
    "LogParser",
    "LogTemplate",
    "NGrams",
    "NoveltyDetector",
    "OnlineDPMeans",
    "RecordError",
    "Sighting",
    "Verdict",
    "deduplicate",
]

# Brought in when first used: a log parser need not wait for scikit-learn.
_HOMES = {
    "Known": "novelty",
    "LogMatch": "parsing.matches",
    "LogParser": "logs",
    "LogTemplate": "parsing.matches",
    "NoveltyDetector": "novelty",
    "OnlineDPMeans": "cluster",
    "Sighting": "novelty",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{_HOMES.get(name, 'dedup')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
