"""Everything a memory remembers: one row per slot, in columns, and a few running numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .policy import Merge, Metric
from .repeats import Repeats
from .rule import LARGEST_WORTH, Floats, Keys

# L tokens of a chunk, S slots before it. Column c < S is slot row c; column S + t is the slot that
# token t of the chunk opened.
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST = 2**62  # tokens that can be counted
SIGNED = ("keys", "mean", "values")  # columns that may hold negative numbers


@dataclass(slots=True)
class Decision:
    """What an engine decided for a chunk, before anything is written down."""

    columns: Ints  # (L,) the slot of each token
    opened: Bools  # (L,) whether the token opened it
    temperature: float
    kept: Bools | None = None  # (S + L,) columns alive at the end; None: nothing was evicted
    moved: tuple[Keys, Floats] | None = None  # keys and means of all columns, if keys move


class Slots:
    """Growing columns ``ids, keys, values, usage, count, first_seen, last_seen``.

    Rows are in no special order (engines bring hot slots to the front); ids are birth numbers.
    """

    NUMBERS = ("temperature", "worth", "tokens", "born")

    def __init__(self, merge: Merge, metric: Metric) -> None:
        """Start with no slot; the widths of keys and values are known at the first write."""
        self.merge, self.metric = merge, metric
        self.n = 0
        self.columns: dict[str, NDArray[Any]] = {}
        self.temperature, self.worth = 0.0, 1.0
        self.tokens, self.born = 0, 0
        self.repeats = Repeats()
        self.proposer: Any = None  # an engine's index over the keys, told when rows move
        self.sorted_at = 0  # tokens when rows were last put in order of use
        self.reach = 1 + 1e-6 if metric == "cosine" else 0.0  # no key is longer than this

    def start(self, width: int, values: NDArray[Any] | None) -> None:
        """Fix the shape of a key and of a value; ``values`` is an example with no rows."""
        long, double = np.dtype(np.int64), np.dtype(np.float64)
        shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "ids": (long, ()),
            "keys": (np.dtype(np.float32), (width,)),
            "usage": (double, ()),
            "count": (long, ()),
            "first_seen": (long, ()),
            "last_seen": (long, ()),
        }
        if self.merge.key != "first":
            shapes["mean"] = (double, (width,))
        if values is not None:
            shapes["values"] = (values.dtype, values.shape[1:])
        self.columns = {name: np.empty((0, *tail), kind) for name, (kind, tail) in shapes.items()}

    def restore(
        self,
        columns: dict[str, NDArray[Any]],
        numbers: dict[str, Any],
        values: NDArray[Any] | None,
        seen: int,
    ) -> None:
        """Take up what was saved after ``seen`` rows of a stream; refuse what cannot be ours."""
        for name in self.NUMBERS:
            setattr(self, name, type(getattr(self, name))(numbers[name]))
        if not 0 <= self.born <= self.tokens <= seen:
            raise ValueError(f"{self.born} slots born of {self.tokens} tokens in {seen} rows")
        if not (0 <= self.temperature <= 1 and 0 < self.worth <= LARGEST_WORTH):
            raise ValueError(f"temperature {self.temperature}, worth {self.worth}")
        if not columns:
            return
        self.start(columns["keys"].shape[1], values)
        self.n = len(columns["ids"])
        for name, empty in self.columns.items():
            got = columns[name]
            if (got.dtype, got.shape) != (empty.dtype, (self.n, *empty.shape[1:])):
                raise ValueError(f"column {name} is {got.dtype} {got.shape}")
        self._check(columns, seen)
        self.columns = columns
        if self.metric == "euclidean":
            self.reach = longest(columns["keys"])

    def _check(self, columns: dict[str, NDArray[Any]], seen: int) -> None:
        """Refuse numbers that no stream can have left."""
        ids, keys = columns["ids"], columns["keys"]
        lengths = np.sqrt((keys.astype(np.float64) ** 2).sum(axis=1))
        unit_rows = self.metric != "cosine" or bool((np.abs(lengths - 1) < 1e-3).all())
        if set(columns) != set(self.columns):
            raise ValueError(f"columns {sorted(columns)}")
        if (np.diff(ids) <= 0).any() or (ids < 0).any() or (ids >= self.born).any():
            raise ValueError(f"ids {ids[:3]}... of {self.born} ever born")
        for name, column in columns.items():
            if not (np.isfinite(column).all() and (name in SIGNED or (column >= 0).all())):
                raise ValueError(f"column {name} has numbers out of range")
        first, last, count = columns["first_seen"], columns["last_seen"], columns["count"]
        if not (unit_rows and ((count >= 1) & (count <= self.tokens)).all()):
            raise ValueError("keys or counts out of range")
        if self.merge.value == "counts" and "values" in columns:
            table = columns["values"]
            if (table < 0).any() or (table.sum(axis=1) != count).any():
                raise ValueError("labels that do not add up to the tokens of their slots")
        if not ((first <= last) & (last < seen)).all():
            raise ValueError(f"slots used before they opened, or after {seen} rows")

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The rows in use of a column, as a view."""
        return self.columns[name][: self.n]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        return self.n

    @property
    def nbytes(self) -> int:
        """Bytes allocated, the room for growth included."""
        proposer = 0 if self.proposer is None else self.proposer.nbytes
        columns = sum(column.nbytes for column in self.columns.values())
        return int(columns + self.repeats.nbytes + proposer)

    def reserve(self, n: int) -> None:
        """Make room for ``n`` rows in steps of a twelfth, so little is ever held in vain."""
        room = len(self.columns["ids"])
        if n > room:
            self._resize(max(n, room + room // 12))

    def compact(self) -> None:
        """Give back what is left over when slots are gone."""
        if len(self.columns["ids"]) > self.n + self.n // 8:
            self._resize(self.n + self.n // 12)

    def take(self, rows: Ints | Bools) -> None:
        """Keep these rows, in this order."""
        self.repeats.forget()
        if self.proposer is not None:
            self.proposer.follow(rows, self.n)
        for column in self.columns.values():
            kept = column[: self.n][rows]
            column[: len(kept)] = kept
        self.n = len(kept)

    def widen(self, width: int) -> None:
        """Give the table of label counts more columns."""
        old = self.columns["values"]
        if width > old.shape[1]:
            self.columns["values"] = np.zeros((len(old), width), old.dtype)
            self.columns["values"][:, : old.shape[1]] = old

    def narrow(self, columns: list[int]) -> None:
        """Keep these columns of the table of label counts, in this order."""
        self.columns["values"] = self.columns["values"][:, columns]

    def append(self, keys: Keys, times: Ints, values: NDArray[Any] | None) -> None:
        """Add slots that no token has used yet; new ids must be set by the caller."""
        old, new = self.n, self.n + len(keys)
        self.reserve(new)
        self.n = new
        self["keys"][old:] = keys
        for name in ("usage", "count"):
            self[name][old:] = 0
        for name in ("first_seen", "last_seen"):
            self[name][old:] = times
        if "mean" in self:
            self["mean"][old:] = keys
        if values is not None:
            self["values"][old:] = values if self.merge.value in ("first", "last") else 0
        self.stretch(keys)

    def stretch(self, keys: Keys) -> None:
        """Take note of keys that slots hold, or may come to hold by moving towards them."""
        if self.metric == "euclidean":
            self.reach = max(self.reach, longest(keys))

    def commit(
        self,
        keys: Keys,
        values: NDArray[Any] | None,
        times: Ints,
        worths: Floats,
        decision: Decision,
    ) -> Ints:
        """Write a decided chunk down and return the id of each token's slot."""
        columns, opened, before = decision.columns, decision.opened, self.n
        number = np.cumsum(opened) - 1
        fresh = columns >= before
        ids = np.empty(len(columns), np.int64)
        ids[~fresh] = self.columns["ids"][columns[~fresh]]
        ids[fresh] = self.born + number[columns[fresh] - before]
        births, rows = np.flatnonzero(opened), columns.copy()
        if decision.kept is None:
            rows[fresh] = before + number[columns[fresh] - before]
        else:
            place = np.where(decision.kept, np.cumsum(decision.kept) - 1, -1)
            rows = place[columns]
            births = births[decision.kept[before + births]]
            if not decision.kept[:before].all():
                self.take(decision.kept[:before])
        start = self.n
        self.append(keys[births], times[births], None if values is None else values[births])
        self["ids"][start:] = self.born + number[births]
        self._merge(rows, values, times, worths)
        if decision.moved is not None:
            self._move(decision, before)
            self.stretch(keys)
        if decision.kept is not None:
            self.compact()
        self.born += int(opened.sum())
        self.tokens += len(columns)
        self.worth = float(worths[-1])
        self.temperature = decision.temperature
        return ids

    def worths(self, n: int, growth: float) -> Floats:
        """What a use is worth at each of the next tokens, up to the next scaling down or ``n``."""
        first = self.worth * growth if self.tokens else self.worth
        if first > LARGEST_WORTH:
            first /= LARGEST_WORTH
            self["usage"][:] /= LARGEST_WORTH
        with np.errstate(over="ignore"):
            all_worths = np.multiply.accumulate(np.r_[first, np.full(n - 1, growth)])
        return all_worths[all_worths <= LARGEST_WORTH]

    def _merge(self, rows: Ints, values: NDArray[Any] | None, times: Ints, worths: Floats) -> None:
        if not (alive := rows >= 0).all():
            rows, times, worths = rows[alive], times[alive], worths[alive]
            values = None if values is None else values[alive]
        # add.at and repeated assignment go through the tokens in order, as the rule does.
        np.add.at(self["usage"], rows, worths)
        np.add.at(self["count"], rows, 1)
        self["last_seen"][rows] = times
        if values is None:
            return
        if self.merge.value == "last":
            self["values"][rows] = values
        elif self.merge.value == "mean":
            np.add.at(self["values"], rows, values)
        elif self.merge.value == "counts":
            np.add.at(self["values"], (rows, values), 1)

    def _move(self, decision: Decision, before: int) -> None:
        assert decision.moved is not None
        keys, means = decision.moved
        alive = np.zeros(len(keys), bool)
        alive[:before] = True
        alive[before:] = decision.opened
        if decision.kept is not None:
            alive &= decision.kept
        self["keys"][:] = keys[alive]
        self["mean"][:] = means[alive]

    def _resize(self, room: int) -> None:
        for name, column in self.columns.items():
            self.columns[name] = np.empty((room, *column.shape[1:]), column.dtype)
            self.columns[name][: self.n] = column[: self.n]


def longest(keys: Keys) -> float:
    """An upper bound on the length of these rows."""
    wide = keys.astype(np.float64)
    return float(np.sqrt((wide * wide).sum(axis=1).max(initial=0.0))) * (1 + 1e-9)
