"""One study per table or figure of the paper; ``load`` brings one in by its name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from .study import Study

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
    "kmeans",
    "cost",
    "adaptive",
    "adaptive_real",
    "process",
    "stress",
)


def load(name: str) -> Study:
    """The study of that name.

    >>> load("recall").TITLE
    'Recall at the cost of distinct items'
    """
    if name not in NAMES:
        raise ValueError(f"there is no study {name!r}; there are {', '.join(NAMES)}")
    return cast(Study, import_module(f".{name}", __name__))
