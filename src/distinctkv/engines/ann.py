"""An index proposes the slot of a repeat, and the half-angle certificate proves it.

With very many slots the search of all of them is what costs. An index of short codes (faiss: cells
around some slots, four bits for every few numbers of a key) names a few likely slots instead.
Their scores are taken from the true keys. One above ``Geometry.sure`` is the nearest slot, whatever
the index has missed; everything else, and every novel token, is still compared with all slots.
So the index saves time or does not, and decides nothing.
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
from .bounds import Geometry

# S slots, D key size
WORTH = 1 << 22  # numbers of keys that can be compared in the time of one search
PATIENCE = 4096  # tokens to compare with all slots before an index is built
TRIAL = 1024  # tokens after which it must have paid
REST = 16 * PATIENCE  # tokens to pass over before trying again
PROBES = (16, 64)  # cells to look into, and again for what was not found
LIKELY = 4  # slots that a search names
SAMPLE = 8_192  # keys from which the codes are learned
FIRST = Lock()  # held while slots get their proposer


@cache
def library() -> Any:  # noqa: ANN401
    """The faiss module, or None where it is not installed (``pip install 'distinctkv[ann]'``)."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss


class Index(NamedTuple):
    """What a search needs. Reads may share it, for only a write adds to it or moves rows."""

    codes: Any
    place: NDArray[np.int32]  # the row of each key indexed, -1 if it is gone

    def search(self, rows: NDArray[Any], probes: int) -> NDArray[np.int32]:
        """Rows of likely slots for each token, (L, LIKELY), -1 for none."""
        # Another thread may set this meanwhile: it then looks into more cells or fewer.
        self.codes.nprobe = min(probes, self.codes.nlist)
        numbers = self.codes.search(_padded(rows.astype(np.float32, copy=False)), LIKELY)[1]
        return np.where(numbers < 0, np.int32(-1), self.place[numbers])


class Proposer:
    """An index over the keys of slots, built while it pays; the slots keep it and tell it moves.

    Reads may come from many threads: one builds, and the others wait for it.
    """

    def __init__(self) -> None:
        """Start without an index."""
        self.waiting = 0  # tokens that an index might have spared
        self._lock = Lock()
        self._clear()

    def __reduce__(self) -> tuple[type[Proposer], tuple[()]]:
        """A copy begins without an index, and makes its own if that pays."""
        return Proposer, ()

    def give_up(self) -> None:
        """Let the index go, and make none for a while."""
        with self._lock:
            self._rest()

    def _rest(self) -> None:
        self.waiting = -REST
        self._clear()

    def _clear(self) -> None:
        self.index: Any = None
        self.place = np.empty(0, np.int32)  # the row now of each key indexed, -1 if it is gone
        self.known: int | None = 0  # rows before this one are indexed; None: rows have moved
        self.planned = 0  # slots the index was made for
        self.asked, self.proven = 0, 0

    @property
    def nbytes(self) -> int:
        """Bytes held: a code and a number for each slot, the keys that cells lie around."""
        if self.index is None:
            return 0
        cells = self.index.nlist * self.index.d * 4
        return int(self.place.nbytes + self.index.ntotal * (self.index.code_size + 8) + cells)

    def follow(self, rows: Ints | Bools, n_rows: int) -> None:
        """Note that of ``n_rows`` rows these were kept, in this order."""
        moved = np.full(n_rows, -1, np.int32)
        kept = np.flatnonzero(rows) if rows.dtype == bool else rows
        moved[kept] = np.arange(len(kept), dtype=np.int32)
        self.place = np.where(self.place < 0, np.int32(-1), moved[self.place])
        self.known = None

    def ready(self, keys: Keys, n_tokens: int) -> Index | None:
        """The index over all these keys, made now if it is time; None if there is none."""
        with self._lock:
            if self.index is not None and self.index.ntotal != len(self.place):
                self._clear()  # a read was interrupted while it grew
            if self.index is None:
                self.waiting += n_tokens
                if self.waiting < PATIENCE:
                    return None
            fresh = self._unknown(len(keys))
            if len(self.place) + len(fresh) > 2 * self.planned:
                self.index, self.place = _made(keys), np.empty(0, np.int32)
                self.planned, fresh = len(keys), np.arange(len(keys))
            if len(fresh):
                self.index.add(_padded(keys[fresh]))
                self.place = np.concatenate([self.place, fresh.astype(np.int32)])
            self.known = len(keys)
            return Index(self.index, self.place)

    def judge(self, n_asked: int, n_proven: int, size: int) -> None:
        """Let the index go if it proves too few tokens to be worth its searches."""
        with self._lock:
            self.asked, self.proven = self.asked + n_asked, self.proven + n_proven
            if self.asked >= TRIAL:
                if self.proven * size < self.asked * WORTH:
                    self._rest()
                self.asked, self.proven = 0, 0

    def _unknown(self, n_rows: int) -> Ints:
        """Rows that are not in the index yet."""
        if self.known is not None:
            return np.arange(self.known, n_rows)
        missing = np.ones(n_rows, bool)
        missing[self.place[self.place >= 0]] = False
        return np.flatnonzero(missing)


def prove(slots: Slots, space: Geometry, todo: Ints) -> tuple[Ints, Ints, NDArray[Any]]:
    """Tokens of ``todo`` whose slot an index found and the certificate proved, row and score."""
    none = todo[:0], todo[:0], np.empty(0)
    size = slots.n * space.keys.shape[1]
    # Keys that move may come within tau of each other, and then no slot is certain.
    if size < WORTH or slots.merge.key != "first" or library() is None:
        return none
    with FIRST:
        proposer = slots.proposer = slots.proposer or Proposer()
    try:
        index = proposer.ready(slots["keys"], len(todo))
        if index is None:
            return none
        found = [none]
        left = todo
        for probes in PROBES:
            proven, row, score = _certified(slots, space, index, left, probes)
            found.append((left[proven], row[proven], score[proven]))
            left = left[~proven]
            if len(left) == 0 or proven.mean() < 0.5:  # the rest are novel, most likely
                break
    except RuntimeError as error:  # faiss refuses what it cannot take, which must stop no stream
        warnings.warn(f"faiss gave up ({error}); all slots are searched instead", stacklevel=2)
        proposer.give_up()
        return none
    proposer.judge(len(todo), len(todo) - len(left), size)
    tokens, rows, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    return tokens, rows, scores


def _certified(
    slots: Slots, space: Geometry, index: Index, tokens: Ints, probes: int
) -> tuple[Bools, Ints, NDArray[Any]]:
    """For each token: is its best proposal certain, its row, its score."""
    likely = index.search(space.keys[tokens], probes)
    scores = np.stack([space.beside(tokens, slots["keys"][column]) for column in likely.T], axis=1)
    scores[likely < 0] = -np.inf
    best = scores.argmax(axis=1)
    every = np.arange(len(tokens))
    score = scores[every, best].astype(np.float64)
    return score > space.sure[tokens], likely[every, best].astype(np.int64), score


def _made(keys: Keys) -> Any:  # noqa: ANN401
    """An empty index with cells around some of the keys, and codes learned from some."""
    faiss, rng = library(), np.random.default_rng(0)
    n_cells = int(2 * np.sqrt(len(keys)))
    sample = _padded(keys[rng.permutation(len(keys))[: max(SAMPLE, n_cells)]])
    width = sample.shape[1]
    cells = faiss.IndexFlatL2(width)
    cells.add(sample[:n_cells])
    index = faiss.IndexIVFPQFastScan(cells, width, n_cells, width // _span(width), 4)
    index.by_residual = False
    index.train(sample)
    return index


def _span(width: int) -> int:
    """Numbers of a key that share a code."""
    return 4 if width < 256 else 8


def _padded(keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Keys with zeros after them, so that codes come out even."""
    short = -keys.shape[1] % _span(keys.shape[1])
    return np.ascontiguousarray(np.pad(keys, ((0, 0), (0, short))) if short else keys)
