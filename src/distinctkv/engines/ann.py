"""An approximate nearest-neighbour index names candidates, which the certificate verifies.

With very many slots the search of all of them dominates. An index of short codes (faiss IVF-PQ)
names a few candidate slots instead, whose scores are computed from the true keys. A score above
``ScoreBounds.certain_above`` belongs to the nearest slot, whatever the index has missed. All other
tokens, and so every novel token, are compared with all slots. The index changes no decision.
"""

from __future__ import annotations

import warnings
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..rule import Keys
from ..slots import Bools, Ints, Slots
from .bounds import ScoreBounds

# S slots, D key size
SEARCH_COST = 1 << 22  # elements of keys that can be compared in the time of one search
WARM_UP = 4096  # tokens to compare with all slots before an index is built
TRIAL = 1024  # tokens after which it must have paid
PAUSE = 16 * WARM_UP  # tokens to skip before trying again
PROBES = (16, 64)  # cells to search, and again for tokens without a certain slot
CANDIDATES = 4  # slots that a search names
SAMPLE = 8_192  # keys from which the codes are learned


@cache
def library() -> Any:  # noqa: ANN401
    """The faiss module, or None where it is not installed (``pip install 'distinctkv[ann]'``)."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss


class Searcher(NamedTuple):
    """What a search needs. Reads may share it: only a write adds to it or moves rows."""

    codes: Any
    place: NDArray[np.int32]  # the row of each key indexed, -1 if it is gone

    def search(self, rows: NDArray[Any], probes: int) -> NDArray[np.int32]:
        """Rows of candidate slots for each token, (L, CANDIDATES), -1 for none."""
        # Another thread may set this meanwhile: then this search covers more cells or fewer.
        self.codes.nprobe = min(probes, self.codes.nlist)
        numbers = self.codes.search(_padded(rows.astype(np.float32, copy=False)), CANDIDATES)[1]
        return np.where(numbers < 0, np.int32(-1), self.place[numbers])


class AnnIndex:
    """A faiss index over the keys of slots, kept while it saves time.

    Reads may come from many threads: one builds the index, and the others wait for it.
    """

    def __init__(self) -> None:
        """Start without an index."""
        self.waiting = 0  # tokens that were compared with all slots without an index
        self._lock = Lock()
        self._clear()

    def __reduce__(self) -> tuple[type[AnnIndex], tuple[()]]:
        """A copy starts without a faiss index, and builds its own."""
        return AnnIndex, ()

    def give_up(self) -> None:
        """Drop the index, and build none for a while."""
        with self._lock:
            self._start_pause()

    def _start_pause(self) -> None:
        self.waiting = -PAUSE
        self._clear()

    def _clear(self) -> None:
        self.index: Any = None
        self.place = np.empty(0, np.int32)  # the row now of each key indexed, -1 if it is gone
        self.known: int | None = 0  # rows before this one are indexed; None: rows have moved
        self.planned = 0  # slots the index was made for
        self.n_asked, self.n_certain = 0, 0

    @property
    def nbytes(self) -> int:
        """Bytes allocated: a code and a row number for each slot, and the cell centres."""
        if self.index is None:
            return 0
        cells = self.index.nlist * self.index.d * 4
        return int(self.place.nbytes + self.index.ntotal * (self.index.code_size + 8) + cells)

    def follow(self, rows: Ints, n_rows: int) -> None:
        """Of ``n_rows`` rows these were kept, in this order."""
        moved = np.full(n_rows, -1, np.int32)
        moved[rows] = np.arange(len(rows), dtype=np.int32)
        self.place = np.where(self.place < 0, np.int32(-1), moved[self.place])
        self.known = None

    def searcher(self, keys: Keys, n_tokens: int) -> Searcher | None:
        """The index over all these keys, made now if it is time; None if there is none."""
        with self._lock:
            if self.index is not None and self.index.ntotal != len(self.place):
                self._clear()  # a read was interrupted while adding keys
            if self.index is None:
                self.waiting += n_tokens
                if self.waiting < WARM_UP:
                    return None
            fresh = self._unknown(len(keys))
            if len(self.place) + len(fresh) > 2 * self.planned:
                self.index, self.place = _build(keys), np.empty(0, np.int32)
                self.planned, fresh = len(keys), np.arange(len(keys))
            if len(fresh):
                self.index.add(_padded(keys[fresh]))
                self.place = np.concatenate([self.place, fresh.astype(np.int32)])
            self.known = len(keys)
            return Searcher(self.index, self.place)

    def record(self, n_asked: int, n_certain: int, size: int) -> None:
        """Drop the index if it finds too few certain slots to pay for its searches."""
        with self._lock:
            self.n_asked, self.n_certain = self.n_asked + n_asked, self.n_certain + n_certain
            if self.n_asked >= TRIAL:
                if self.n_certain * size < self.n_asked * SEARCH_COST:
                    self._start_pause()
                self.n_asked, self.n_certain = 0, 0

    def _unknown(self, n_rows: int) -> Ints:
        """Rows that are not in the index yet."""
        if self.known is not None:
            return np.arange(self.known, n_rows)
        missing = np.ones(n_rows, bool)
        missing[self.place[self.place >= 0]] = False
        return np.flatnonzero(missing)


def certify(slots: Slots, bounds: ScoreBounds, todo: Ints) -> tuple[Ints, Ints, NDArray[Any]]:
    """Tokens of ``todo`` with a candidate that is certainly the nearest, its row and its score."""
    none = todo[:0], todo[:0], np.empty(0)
    size = slots.n * bounds.keys.shape[1]
    # Keys that move may come within tau of each other, and then no slot is certain.
    if size < SEARCH_COST or slots.merge.key != "first" or library() is None:
        return none
    index = slots.index(AnnIndex)
    try:
        searcher = index.searcher(slots["keys"], len(todo))
        if searcher is None:
            return none
        found = [none]
        left = todo
        for probes in PROBES:
            certain, row, score = _candidates(slots, bounds, searcher, left, probes)
            found.append((left[certain], row[certain], score[certain]))
            left = left[~certain]
            if len(left) == 0 or certain.mean() < 0.5:  # most of the others are novel
                break
    except RuntimeError as error:  # raised by faiss; a write must not fail for it
        warnings.warn(f"faiss failed ({error}); all slots are searched instead", stacklevel=2)
        index.give_up()
        return none
    index.record(len(todo), len(todo) - len(left), size)
    tokens, rows, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    return tokens, rows, scores


def _candidates(
    slots: Slots, bounds: ScoreBounds, searcher: Searcher, tokens: Ints, probes: int
) -> tuple[Bools, Ints, NDArray[Any]]:
    """For each token: is its best candidate certain, its row, its score."""
    likely = searcher.search(bounds.keys[tokens], probes)
    scores = np.stack(
        [bounds.paired_scores(tokens, slots["keys"][column]) for column in likely.T], axis=1
    )
    scores[likely < 0] = -np.inf
    best = scores.argmax(axis=1)
    every = np.arange(len(tokens))
    score = scores[every, best].astype(np.float64)
    return score > bounds.certain_above[tokens], likely[every, best].astype(np.int64), score


def _build(keys: Keys) -> Any:  # noqa: ANN401
    """An empty index with cells around some of the keys, and codes learned from some."""
    faiss, rng = library(), np.random.default_rng(0)
    n_cells = int(2 * np.sqrt(len(keys)))
    sample = _padded(keys[rng.permutation(len(keys))[: max(SAMPLE, n_cells)]])
    width = sample.shape[1]
    cells = faiss.IndexFlatL2(width)
    cells.add(sample[:n_cells])
    index = faiss.IndexIVFPQFastScan(cells, width, n_cells, width // _code_span(width), 4)
    index.by_residual = False
    index.train(sample)
    return index


def _code_span(width: int) -> int:
    """Elements of a key that share a code."""
    return 4 if width < 256 else 8


def _padded(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Keys padded with zeros to a multiple of the code span."""
    short = -keys.shape[1] % _code_span(keys.shape[1])
    return np.ascontiguousarray(np.pad(keys, ((0, 0), (0, short))) if short else keys)
