"""One study per table or figure of the paper; ``load`` imports one by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from ..result import Result, Setting
    from .runner import Scale

# In the order of the paper; a name is a module of this package.
NAMES = (
    "recall",
    "frontier",
    "real_frontier",
    "domains",
    "logs",
    "tau",
    "gates",
    "hybrid",
    "five_models",
    "mqar",
    "companion",
    "kmeans",
    "cost",
    "adaptive",
    "adaptive_real",
    "process",
    "stress",
)
# The real streams that a study reads, by the names that ``python -m reproduction.data get`` takes.
STREAMS: Mapping[str, tuple[str, ...]] = {
    "real_frontier": ("movielens",),
    "domains": ("movielens", "mimic", "synpuf", "loghub/HDFS", "loghub/BGL"),
    "logs": ("loghub",),
    "tau": ("movielens", "mimic", "synpuf"),
    "adaptive_real": ("movielens", "loghub/BGL"),
}
# Called as the run goes on, with how many of how many steps are done.
Progress = Callable[[int, int], None]


class Study(Protocol):
    """A module with these names."""

    TITLE: str
    QUESTION: str

    def settings(self, scale: Scale) -> Mapping[str, Setting]:
        """Every number that decides the result, the seeds apart."""

    def run(self, seeds: Sequence[int], scale: Scale, progress: Progress) -> Result:
        """Measure, and judge the claims."""


def load(name: str) -> Study:
    """The study of that name.

    >>> load("recall").TITLE
    'Recall at the cost of distinct items'
    """
    if name not in NAMES:
        raise ValueError(f"there is no study {name!r}; there are {', '.join(NAMES)}")
    return cast(Study, import_module(f".{name}", __name__))
