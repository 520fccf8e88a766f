"""A PCA prefilter rules out most slots, so that few are compared in full: exact for the cosine.

A key x is split by an orthonormal basis R into its projection h = R'x and a residual of norm t. By
Cauchy-Schwarz x.k <= h.h' + t t', so a slot whose bound is below the threshold cannot be a repeat.
R is made of the principal directions of the slot keys, as few as the keys allow. Where most tokens
are distinct, comparing them with all slots dominates, and this short product spares most of it.
The pairs that pass are decided by exact distances.
"""

# L tokens of a chunk, S slots before it, D key size, H length of a projection with its residual.
# A pair is a token, what it is compared with, and their cosine.

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..policy import Concentration
from ..rule import Floats, Keys
from ..slots import Bools, Decision, Ints, Slots
from . import blocked
from .bounds import SINGLE, certain_cosine, float32_suffices, paired_novelty

Projections = NDArray[np.float32]

CHUNK = 1024
LENGTHS = (15, 31, 63, 127, 255)  # of projections without the residual
MIN_SLOTS = 256  # from which a prefilter can pay
MIN_PAIRS = 1 << 23  # comparisons from which on a fit can pay
MIN_SEARCHED = 0.25  # share of the slots that tokens must be compared with for it to pay
REFIT = 4  # fit again when so many times more slots have opened
SAMPLE = 1024  # slots that the basis is fitted to
PAIR_COST = 12  # a pair compared in full costs as much as so many per element of the short product
OVERHEAD = 16  # a short product takes as long as one of so many elements more
MAX_COST = 0.5  # of the short product and the pairs left, as a share of a full comparison
MEASURE = 64  # of so many chunks one goes to the blocked engine, which measures its own cost
PAIRS = 4096  # gathered at a time
MAX_PAIRS = 256  # per token on average, beyond which the blocked engine is faster
CELLS = 1 << 18  # bounds at a time, so that they stay in the L2 cache


class Prefilter:
    """Projections of the slot keys; they are computed again after rows have moved."""

    def __init__(self) -> None:
        self.cost = np.inf  # of a comparison with the prefilter, as a share of one without
        self.threshold = 0.0  # bounds below it rule a pair out
        self._margin = 0.0  # more than a float32 bound can be wrong by
        self._fitted_at = 0  # slots ever opened when it was fitted
        self._basis = np.empty((0, 0), np.float32)  # (D, H - 1)
        self._table = np.empty((0, 0), np.float32)  # (H, room for slots)
        self._n_known = 0  # slots in the table

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._basis.nbytes + self._table.nbytes

    @property
    def ready(self) -> bool:
        """Whether there is a basis that pays."""
        return self._basis.size > 0

    def follow(self, rows: Ints, n_rows: int) -> None:
        """Rows have moved: compute the projections again at the next use."""
        self._n_known = 0

    def fit_if_due(self, slots: Slots, tau: float) -> None:
        """Fit the basis once there are enough slots, and again after many more have opened."""
        due = slots.n >= MIN_SLOTS and slots.n_opened >= REFIT * self._fitted_at
        if due and float32_suffices(slots["keys"].shape[1], tau):
            self._fit(slots["keys"], tau)
            self._fitted_at, self._n_known = slots.n_opened, 0

    def update(self, keys: Keys) -> None:
        """Add the projections of new slots."""
        start, stop = self._n_known, len(keys)
        if start == stop:
            return
        if stop > self._table.shape[1]:
            table = np.empty((self._basis.shape[1] + 1, stop + stop // 4), np.float32)
            table[:, :start] = self._table[:, :start]
            self._table = table
        self._table[:, start:stop] = self.project(keys[start:]).T
        self._n_known = stop

    def project(self, keys: Keys) -> Projections:
        """Projections (L, H) of keys, with the residual norm as last column."""
        return self._split(keys, self._basis)

    def bounds(self, projections: Projections, slots: slice) -> Projections:
        """Upper bounds (L, S) of the cosine of each token with each of these slots."""
        bounds: Projections = projections @ self._table[:, slots]
        return bounds

    def _fit(self, keys: Keys, tau: float) -> None:
        """Find the principal directions of the keys by two steps of subspace iteration."""
        width = keys.shape[1]
        self._margin = 16 * (width + LENGTHS[-1]) * SINGLE
        self.threshold = float(np.float32(1 - tau - self._margin))
        sample = keys[:: -(-len(keys) // SAMPLE)]
        most = min(LENGTHS[-1], width // 2 + 1)  # longer projections would spare too little
        basis = np.random.default_rng(0).standard_normal((width, most)).astype(np.float32)
        for _ in range(2):
            product = sample.T @ (sample @ basis)
            basis = np.linalg.qr(product.astype(np.float64))[0].astype(np.float32)
        within = (sample @ basis).astype(np.float64)
        order = np.linalg.eigh(within.T @ within)[1][:, ::-1]
        basis = (basis.astype(np.float64) @ order).astype(np.float32)
        self.cost, length = min(self._costs(basis, sample))
        self._basis = np.ascontiguousarray(basis[:, : length if self.cost < MAX_COST else 0])
        self._table = np.empty((length + 1, 0), np.float32)

    def _costs(self, basis: Projections, keys: Keys) -> Iterator[tuple[float, int]]:
        """Cost of a comparison, as a share of a full one, for each length of the projection."""
        width, most = basis.shape
        for length in sorted({most, *(n for n in LENGTHS if n < most)}):
            projections = self._split(keys, np.ascontiguousarray(basis[:, :length]))
            left = float((projections[:256] @ projections.T >= self.threshold).mean())
            yield (length + OVERHEAD) / width + PAIR_COST * left, length

    def _split(self, keys: Keys, basis: Projections) -> Projections:
        """Projections and residual norms; rounding never makes a residual too short."""
        split = np.empty((len(keys), basis.shape[1] + 1), np.float32)
        np.matmul(keys, basis, out=split[:, :-1])
        squares = np.einsum("ij,ij->i", split[:, :-1], split[:, :-1])
        np.maximum(1 - squares, 0, out=squares)
        split[:, -1] = np.sqrt(squares + np.float32(self._margin))
        return split


class Pairs(NamedTuple):
    """Tokens, the places of what they are paired with, and their cosines in float32."""

    tokens: Ints
    others: Ints
    scores: NDArray[np.float32]

    def where(self, chosen: Bools) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.tokens[chosen], self.others[chosen], self.scores[chosen])


def pays(slots: Slots, concentration: Concentration) -> bool:
    """Whether the prefilter is exact here and costs less than the blocked engine did lately."""
    if slots.metric != "cosine" or slots.searched < MIN_SEARCHED:
        return False
    if slots.tokens // CHUNK % MEASURE == 0:
        return False
    prefilter = slots.index(Prefilter)
    prefilter.fit_if_due(slots, concentration.tau)
    return prefilter.ready and prefilter.cost < MAX_COST * slots.searched


def chunk(slots: Slots) -> int:
    """Tokens per chunk."""
    return CHUNK if slots.index(Prefilter).ready else blocked.chunk(slots)


def decide(slots: Slots, concentration: Concentration, keys: Keys, use_weights: Floats) -> Decision:
    """Slots of a chunk of tokens, as `rule.Rule` chooses them one by one."""
    prefilter = slots.index(Prefilter)
    prefilter.fit_if_due(slots, concentration.tau)
    if not prefilter.ready:
        return blocked.decide(slots, concentration, keys, use_weights)
    prefilter.update(slots["keys"])
    columns = slots.index(blocked.HashIndex).find(slots["keys"], keys, always=True)
    assert columns is not None
    rest = np.flatnonzero(columns < 0)
    projections = prefilter.project(keys[rest])
    if (passing := _passing_slots(prefilter, projections, slots.n)) is None:
        return blocked.decide(slots, concentration, keys, use_weights)
    search = _Search(keys, concentration.tau, columns)
    certain = search.among_slots(slots["keys"], slots["ids"], rest[passing[0]], passing[1])
    left = ~certain[rest]
    if (columns < 0).any():
        search.within_chunk(prefilter.threshold, projections[left], rest[left])
        inner = columns < 0
        columns[inner] = slots.n - 1 - columns[inner]
    opened = search.opened
    temperature = blocked.update_temperature(slots.temperature, opened, concentration.rate)
    return Decision(columns, opened, temperature)


class _Search:
    """The nearest slot found so far of each token of a chunk.

    ``columns`` has a slot row, -1 if there is none, or -1 - t for the slot that token t opens.
    """

    def __init__(self, keys: Keys, tau: float, columns: Ints) -> None:
        self.keys, self.tau, self.columns = keys, tau, columns
        self.novelty = np.full(len(keys), np.inf)
        self.opened = np.zeros(len(keys), bool)
        self.error = (keys.shape[1] + 16) * SINGLE
        self.certain = certain_cosine(tau) + self.error

    def among_slots(self, slots: Keys, ids: Ints, tokens: Ints, rows: Ints) -> Bools:
        """Assign tokens to the slots that they repeat; which tokens no other slot can change."""
        pairs = _scored(self.keys, slots, tokens, rows)
        best = np.full(len(self.keys), -1.0)
        np.maximum.at(best, pairs.tokens, pairs.scores)
        pairs = pairs.where(pairs.scores >= self._floor(best)[pairs.tokens])
        certain = pairs.scores > self.certain
        self.columns[pairs.tokens[certain]] = pairs.others[certain]
        pairs = pairs.where(~certain)
        novelty, order = self._repeats(slots, pairs, ids[pairs.others])
        again, first = np.unique(pairs.tokens[order], return_index=True)
        first = order[first]
        self.columns[again], self.novelty[again] = pairs.others[first], novelty[first]
        return np.asarray(best > self.certain)

    def within_chunk(self, threshold: float, projections: Projections, rest: Ints) -> None:
        """Open slots in order; assign tokens to slots opened before them if these are nearer."""
        new = self.columns[rest] < 0
        openers = rest[new]
        self.columns[openers], self.opened[openers] = -1 - openers, True
        token, other = _passing(projections @ projections[new].T, threshold)
        token, other = rest[token], openers[other]
        before = other < token
        pairs = _scored(self.keys, self.keys, token[before], other[before])
        pairs = pairs.where(pairs.scores >= self._floor(1 - self.novelty)[pairs.tokens])
        novelty, order = self._repeats(self.keys, pairs, pairs.others)
        columns = (pairs.tokens[order], pairs.others[order], novelty[order])
        # Tokens come in order, so it is known by then whether an earlier one has opened.
        for t, earlier, nov in zip(*(column.tolist() for column in columns), strict=True):
            if self.opened[earlier] and nov < self.novelty[t]:
                self.columns[t], self.novelty[t], self.opened[t] = -1 - earlier, nov, False

    def _floor(self, best: Floats) -> Floats:
        """Cosines below it can not be the nearest slot of a repeat."""
        return np.asarray(np.maximum(best, 1 - self.tau) - 2 * self.error)

    def _repeats(self, others: Keys, pairs: Pairs, ids: Ints) -> tuple[Floats, Ints]:
        """Novelty of the pairs; the repeats among them by token, nearest and then oldest first."""
        novelty = np.empty(len(pairs.tokens))
        for part in _parts(len(novelty)):
            keys = self.keys[pairs.tokens[part]]
            novelty[part] = paired_novelty(keys, others[pairs.others[part]], "cosine")
        order = np.lexsort((ids, novelty, pairs.tokens))
        return novelty, order[novelty[order] <= self.tau]


def _passing_slots(
    prefilter: Prefilter, projections: Projections, n_slots: int
) -> tuple[Ints, Ints] | None:
    """Tokens and slots that may be repeats of each other; None if they are too many."""
    tokens, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    room = MAX_PAIRS * len(projections)
    step = max(256, CELLS // max(1, len(projections)))
    for start in range(0, n_slots, step):
        bounds = prefilter.bounds(projections, slice(start, min(start + step, n_slots)))
        token, row = _passing(bounds, prefilter.threshold)
        tokens.append(token)
        rows.append(row + start)
        room -= len(token)
        if room < 0:
            return None
    return np.concatenate(tokens), np.concatenate(rows)


def _passing(bounds: Projections, threshold: float) -> tuple[Ints, Ints]:
    """Rows and columns of the bounds that reach the threshold."""
    row, column = np.divmod(np.flatnonzero(bounds >= threshold), bounds.shape[1])
    return row, column


def _scored(keys: Keys, others: Keys, tokens: Ints, places: Ints) -> Pairs:
    """Pairs with their cosines in float32."""
    scores = np.empty(len(tokens), np.float32)
    for part in _parts(len(tokens)):
        scores[part] = np.einsum("ij,ij->i", keys[tokens[part]], others[places[part]])
    return Pairs(tokens, places, scores)


def _parts(n_pairs: int) -> Iterator[slice]:
    return (slice(start, start + PAIRS) for start in range(0, n_pairs, PAIRS))
