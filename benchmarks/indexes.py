"""Vector indexes in the place of the slots: search a batch, settle it in order, add what opened.

All are told to use one thread, and have M 16, ef at construction 80, ef at search 48.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .baselines import settle
from .common import Ints, Rows, Timing

BATCH, LINKS, BUILD, SEARCH = 256, 16, 80, 48


class Index(Protocol):
    """What a search for the nearest slot must do."""

    def nearest(self, rows: Rows) -> tuple[Ints, NDArray[np.float32]]:
        """Slot and similarity for each row."""
        ...

    def add(self, keys: Rows, ids: Ints) -> None:
        """Take in slots."""
        ...


class Faiss:
    """faiss, flat or HNSW."""

    def __init__(self, width: int, flat: bool) -> None:
        """Start empty."""
        import faiss

        faiss.omp_set_num_threads(1)
        if flat:
            self.index: Any = faiss.IndexFlatIP(width)
        else:
            self.index = faiss.IndexHNSWFlat(width, LINKS, faiss.METRIC_INNER_PRODUCT)
            self.index.hnsw.efConstruction, self.index.hnsw.efSearch = BUILD, SEARCH

    def nearest(self, rows: Rows) -> tuple[Ints, NDArray[np.float32]]:
        """Slot and similarity for each row."""
        score, best = self.index.search(rows, 1)
        return best[:, 0], score[:, 0]

    def add(self, keys: Rows, ids: Ints) -> None:
        """Take in slots."""
        self.index.add(keys)


class Hnswlib:
    """hnswlib, which must be told to grow."""

    def __init__(self, width: int) -> None:
        """Start empty."""
        import hnswlib

        self.index = hnswlib.Index(space="ip", dim=width)
        self.index.init_index(max_elements=1024, M=LINKS, ef_construction=BUILD)
        self.index.set_ef(SEARCH)
        self.index.set_num_threads(1)

    def nearest(self, rows: Rows) -> tuple[Ints, NDArray[np.float32]]:
        """Slot and similarity for each row."""
        best, distance = self.index.knn_query(rows, k=1, num_threads=1)
        return best[:, 0].astype(np.int64), 1 - distance[:, 0]

    def add(self, keys: Rows, ids: Ints) -> None:
        """Take in slots."""
        if ids[-1] >= self.index.get_max_elements():
            self.index.resize_index(2 * int(ids[-1] + 1))
        self.index.add_items(keys, ids, num_threads=1)


class Usearch:
    """usearch."""

    def __init__(self, width: int) -> None:
        """Start empty."""
        from usearch.index import Index as Graph

        self.index = Graph(
            ndim=width,
            metric="ip",
            dtype="f32",
            connectivity=LINKS,
            expansion_add=BUILD,
            expansion_search=SEARCH,
        )

    def nearest(self, rows: Rows) -> tuple[Ints, NDArray[np.float32]]:
        """Slot and similarity for each row."""
        found = self.index.search(rows, 1, threads=1)
        best = np.asarray(found.keys).reshape(len(rows)).astype(np.int64)
        return best, 1 - np.asarray(found.distances).reshape(len(rows))

    def add(self, keys: Rows, ids: Ints) -> None:
        """Take in slots."""
        self.index.add(ids.astype(np.uint64), keys, threads=1)


class Outcome(NamedTuple):
    """Tokens written before the time was over, the time, and the slots opened."""

    tokens: int
    time: Timing
    slots: int


def available() -> dict[str, Callable[[int], Index]]:
    """How to make each index that is installed, by name."""
    makers: dict[str, tuple[str, Callable[[int], Index]]] = {
        "faiss-flat": ("faiss", lambda width: Faiss(width, flat=True)),
        "faiss-HNSW": ("faiss", lambda width: Faiss(width, flat=False)),
        "hnswlib": ("hnswlib", Hnswlib),
        "usearch": ("usearch", Usearch),
    }
    return {name: make for name, (module, make) in makers.items() if find_spec(module)}


def run(index: Index, rows: Rows, similarity: float, seconds: float) -> Outcome:
    """Write a stream, or as much of it as the time allows."""
    n_slots, done = 0, 0
    wall, cpu = time.perf_counter(), time.process_time()
    while done < len(rows) and time.perf_counter() - wall < seconds:
        batch = rows[done : done + BATCH]
        best, score = np.full(len(batch), -1), np.full(len(batch), -np.inf, np.float32)
        if n_slots:
            best, score = index.nearest(batch)
        opened = settle(batch, best, score, n_slots, similarity)
        if len(opened):
            index.add(batch[opened], n_slots + np.arange(len(opened)))
        n_slots, done = n_slots + len(opened), done + len(batch)
    spent = Timing(time.perf_counter() - wall, time.process_time() - cpu)
    return Outcome(done, spent, n_slots)
