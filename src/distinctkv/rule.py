"""The paper's section 2, one token at a time: the reference; every engine gives the same ids.

Symbols: ``key`` k_t, ``slot.key`` kappa_i, ``slot.value`` nu_i, ``slot.usage`` u_i,
``temperature`` T_t, ``budget`` M_t, ``tau``, ``theta`` as in the text.

Two choices make the decisions the same on every machine. Novelty is computed from the squared
distance, which for rows of length one is twice 1 - cosine, and is exactly 0 for a repeat. Every sum
that a decision depends on runs from left to right in float64, whatever library adds it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .policy import Concentration, Merge, Metric, check_metric

Floats = NDArray[np.float64]
Keys = NDArray[np.float32]

# Instead of multiplying every usage by `decay` per token, a use at token t adds (1/decay)^t; the
# ranking is the same. Above this weight all usages are divided by it, which is exact.
MAX_USE_WEIGHT = 2.0**500


def unit(rows: NDArray[Any]) -> Floats:
    """Rows scaled to length one, in float64; a row of zeros has no direction and gives nan.

    >>> unit(np.array([[3.0, 4.0], [0.0, 2e300]]))
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    wide = np.array(rows, dtype=np.float64, order="C", ndmin=2)
    with np.errstate(all="ignore"):
        squares = _squares(wide)
        if not (ordinary := (squares > 1e-200) & (squares < 1e200)).all():
            # Squares have left float64's range, or nearly: bring such rows near one first.
            far = wide[~ordinary]
            far = np.ldexp(far, -np.frexp(np.abs(far).max(axis=1))[1][:, None])
            wide[~ordinary], squares[~ordinary] = far, _squares(far)
        wide /= np.sqrt(squares)[:, None]
    return wide


def _squares(rows: Floats) -> Floats:
    """Sum of squares of each row, the same wherever in an array the row stands."""
    # einsum is the faster sum, but it cuts rows longer than its buffer by their place.
    if rows.shape[1] <= 4096:
        return np.asarray(np.einsum("ij,ij->i", rows, rows))
    return np.asarray((rows * rows).sum(axis=1))


def distances(key: NDArray[Any], keys: NDArray[Any]) -> Floats:
    """Squared distance of ``key`` from each row of ``keys``, summed left to right.

    >>> distances(np.array([3.0, 4.0]), np.zeros((1, 2)))
    array([25.])
    """
    gaps = keys.astype(np.float64) - key.astype(np.float64)
    total: Floats = np.add.accumulate(gaps * gaps, axis=1)[:, -1]
    return total


def from_distance(squared: float, metric: Metric) -> float:
    """Novelty of a squared distance: itself, or 1 - cosine when both ends have length one."""
    return min(squared / 2, 2.0) if metric == "cosine" else squared


def novelty(key: NDArray[Any], keys: NDArray[Any], metric: Metric = "cosine") -> tuple[float, int]:
    """Novelty of ``key`` to the nearest slot, and that slot (eq. 1); the oldest wins a tie.

    >>> novelty(np.eye(3)[1], np.eye(3))
    (0.0, 1)
    >>> novelty(np.eye(3)[1], np.eye(3)[:0])  # no slot yet
    (inf, -1)
    """
    if len(keys) == 0:
        return inf, -1
    squared = distances(key, keys)
    nearest = int(squared.argmin())
    return from_distance(float(squared[nearest]), metric), nearest


def read(
    query: NDArray[Any],
    keys: NDArray[Any],
    values: NDArray[Any],
    theta: float,
    weight: NDArray[Any] | float = 1.0,
) -> Floats:
    """Attention over the slots, softmax(sim / theta) (eq. 3).

    With ``weight`` the number of tokens in each slot this is the mass-preserving form: attention
    over every token, when repeats are identical. -d^2/2 is the cosine less one for unit rows, so
    both metrics share the line.

    >>> read(np.array([1.0, 0.0]), np.eye(2), np.array([[1.0], [3.0]]), theta=1e-2)
    array([1.])
    """
    logits = -distances(query, keys) / (2 * theta) + np.log(weight)
    mass = np.exp(logits - logits.max())
    mean: Floats = (mass / mass.sum()) @ values
    return mean


@dataclass(eq=False)
class Slot:
    """One distinct item: its key, its value, and its usage."""

    id: int
    key: Keys
    value: Any
    first_seen: int
    last_seen: int
    usage: float = 0.0
    count: int = 0
    mean: Floats | None = None  # behind a key that moves


def move(slot: Slot, key: Keys, merge: Merge, metric: Metric) -> None:
    """Move the slot's key towards a repeat by the key policy; ``slot.count`` includes the repeat.

    The mean behind the key is kept in float64: in float32 small steps of a long mean would vanish.
    """
    if merge.key == "first":
        return
    new = key.astype(np.float64)
    if slot.mean is None:
        slot.mean = new
        return
    mean = slot.mean + (new - slot.mean) * (1 / slot.count if merge.key == "mean" else merge.pace)
    slot.mean = mean
    length = float(np.sqrt(np.add.accumulate(mean * mean)[-1])) if metric == "cosine" else 1.0
    if length >= 1e-6:  # opposite keys may cancel, which leaves no direction
        slot.key = (mean / length).astype(np.float32)


def bind(slot: Slot, value: Any, merge: Merge) -> None:  # noqa: ANN401
    """Merge a repeat's value; ``mean`` keeps the sum, and ``counts`` a count per label."""
    if merge.value == "last":
        slot.value = value
    elif merge.value == "mean":
        slot.value = slot.value + np.asarray(value, dtype=np.float64)
    elif merge.value == "counts":
        slot.value[value] = slot.value.get(value, 0) + 1


class Rule:
    """A memory that follows the paper token by token: slow, the reference for every engine.

    Keys come as a cache stores them: float32 rows, of length one under the cosine (`unit`).

    >>> rule = Rule(Concentration.fixed(tau=0.5))
    >>> [rule.write(key) for key in np.eye(3, dtype=np.float32)[[1, 0, 2, 0, 1, 2]]]
    [0, 1, 2, 1, 0, 2]
    """

    def __init__(
        self, concentration: Concentration, merge: Merge | None = None, metric: Metric = "cosine"
    ) -> None:
        """Start empty, with temperature 0."""
        check_metric(metric, concentration.tau)
        self.concentration = concentration
        self.merge = merge or Merge()
        self.metric: Metric = metric
        self.slots: list[Slot] = []
        self.temperature = 0.0
        self.tokens = 0
        self.n_opened = 0
        self.use_weight = 1.0

    def write(self, key: Keys, value: Any = None) -> int:  # noqa: ANN401
        """Open or merge one token (eq. 2), update the temperature, evict (eqs. 4-6)."""
        policy = self.concentration
        self._tick()
        nov, nearest = novelty(key, self.keys, self.metric)
        opened = not self.slots or nov > policy.tau
        slot = self._open(key) if opened else self.slots[nearest]
        slot.usage += self.use_weight
        slot.count += 1
        slot.last_seen = self.tokens
        move(slot, key, self.merge, self.metric)
        if opened and self.merge.value in ("first", "last"):
            slot.value = value
        bind(slot, value, self.merge)
        self.temperature = (1 - policy.rate) * self.temperature + policy.rate * opened
        while len(self.slots) > self.budget:
            self._evict(keep=slot if opened else None)
        self.tokens += 1
        return slot.id

    @property
    def keys(self) -> Keys:
        """Slot keys, oldest first."""
        if not self.slots:
            return np.empty((0, 0), dtype=np.float32)
        return np.stack([slot.key for slot in self.slots])

    @property
    def budget(self) -> float:
        """Slots granted now: M_0 + beta T_t (eq. 5)."""
        return self.concentration.base + self.concentration.gain * self.temperature

    def _open(self, key: Keys) -> Slot:
        empty: Any = {"mean": 0.0, "counts": {}}.get(self.merge.value)
        slot = Slot(self.n_opened, key, empty, self.tokens, self.tokens)
        self.slots.append(slot)
        self.n_opened += 1
        return slot

    def _evict(self, keep: Slot | None) -> None:
        """Drop the least used slot (eq. 6): of equals the one idle longest, then the oldest.

        ``keep``, the slot just opened, is spared. That is our choice: eq. 6 spares none.
        """
        others = [slot for slot in self.slots if slot is not keep]
        self.slots.remove(min(others, key=lambda slot: (slot.usage, slot.last_seen, slot.id)))

    def _tick(self) -> None:
        if self.tokens:
            self.use_weight *= 1 / self.concentration.decay
        if self.use_weight > MAX_USE_WEIGHT:
            self.use_weight /= MAX_USE_WEIGHT
            for slot in self.slots:
                slot.usage /= MAX_USE_WEIGHT
