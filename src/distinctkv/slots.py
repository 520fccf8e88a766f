"""The state of a cache: one row per slot in columns, running numbers, and the slot values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from .policy import Merge, Metric, ValuePolicy
from .rule import MAX_USE_WEIGHT, Floats, Keys

# L tokens of a chunk, S slots before it, D key size, C classes. Column c < S is slot row c; column
# S + t is the slot that token t of the chunk opened.
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Kind = Literal["none", "label", "vector"]  # of values

MAX_TOKENS = 2**62  # that can be counted
SEARCHED_WINDOW = 512  # tokens over which the share of slots searched is averaged
SIGNED = ("keys", "mean", "values")  # columns that may hold negative numbers


@dataclass(slots=True)
class Decision:
    """What an engine decided for a chunk, before the slots change."""

    columns: Ints  # (L,) the slot of each token
    opened: Bools  # (L,) whether the token opened it
    temperature: float
    alive: Bools | None = None  # (S + L,) columns not evicted by the end; None: all
    moved: tuple[Keys, Floats] | None = None  # keys and means of all columns, if keys move


class KeyIndex(Protocol):
    """A search index over the keys of slots; the slots own it and tell it when rows move."""

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        ...

    def follow(self, rows: Ints, n_rows: int) -> None:
        """Of ``n_rows`` rows these were kept, in this order."""
        ...


Index = TypeVar("Index", bound=KeyIndex)


class Slots:
    """Growing columns ``ids, keys, values, usage, count, first_seen, last_seen``.

    Rows are in no special order (engines move frequently used slots to the front). Slot ids number
    the slots in the order in which they opened.
    """

    NUMBERS = ("temperature", "use_weight", "tokens", "n_opened")

    def __init__(self, merge: Merge, metric: Metric) -> None:
        """Start with no slot; the widths of keys and values are known at the first write."""
        self.merge, self.metric = merge, metric
        self.n = 0
        self.columns: dict[str, NDArray[Any]] = {}
        self.temperature, self.use_weight = 0.0, 1.0
        self.tokens, self.n_opened = 0, 0
        self.n_pairs = 0  # comparisons of tokens with slots so far
        self.searched = 0.0  # share of the slots that a token was compared with lately
        self._sorted_at = 0  # tokens when rows were last sorted by use
        self.max_norm = 1 + 1e-6 if metric == "cosine" else 0.0  # no key is longer than this
        self._indexes: dict[type[Any], KeyIndex] = {}

    def index(self, kind: type[Index]) -> Index:
        """The index of this kind over the keys, made at the first call; safe between threads."""
        found = self._indexes.get(kind) or self._indexes.setdefault(kind, kind())
        assert isinstance(found, kind)
        return found

    def set_shape(self, width: int, values: NDArray[Any] | None) -> None:
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
        """Load what was saved after ``seen`` rows of a stream; raise if it is inconsistent."""
        for name in self.NUMBERS:
            setattr(self, name, type(getattr(self, name))(numbers[name]))
        if not 0 <= self.n_opened <= self.tokens <= seen:
            raise ValueError(f"{self.n_opened} slots opened by {self.tokens} tokens, {seen} rows")
        if not (0 <= self.temperature <= 1 and 0 < self.use_weight <= MAX_USE_WEIGHT):
            raise ValueError(f"temperature {self.temperature}, use weight {self.use_weight}")
        if not columns:
            return
        self.set_shape(columns["keys"].shape[1], values)
        self.n = len(columns["ids"])
        for name, empty in self.columns.items():
            saved = columns[name]
            if (saved.dtype, saved.shape) != (empty.dtype, (self.n, *empty.shape[1:])):
                raise ValueError(f"column {name} is {saved.dtype} {saved.shape}")
        self._check(columns, seen)
        self.columns = columns
        self.update_max_norm(columns["keys"])

    def _check(self, columns: dict[str, NDArray[Any]], seen: int) -> None:
        """Raise if no stream can have left these numbers."""
        ids, keys = columns["ids"], columns["keys"]
        lengths = np.sqrt((keys.astype(np.float64) ** 2).sum(axis=1))
        unit_rows = self.metric != "cosine" or bool((np.abs(lengths - 1) < 1e-3).all())
        if set(columns) != set(self.columns):
            raise ValueError(f"columns {sorted(columns)}")
        if (np.diff(ids) <= 0).any() or (ids < 0).any() or (ids >= self.n_opened).any():
            raise ValueError(f"ids {ids[:3]}... of {self.n_opened} opened")
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
        indexes = sum(index.nbytes for index in self._indexes.values())
        return int(sum(column.nbytes for column in self.columns.values()) + indexes)

    def reserve(self, n: int) -> None:
        """Make room for ``n`` rows; the columns grow by a twelfth, so little memory is unused."""
        room = len(self.columns["ids"])
        if n > room:
            self._resize(max(n, room + room // 12))

    def compact(self) -> None:
        """Free memory that evicted slots have left."""
        if len(self.columns["ids"]) > self.n + self.n // 8:
            self._resize(self.n + self.n // 12)

    def take(self, rows: Ints) -> None:
        """Keep these rows, in this order; rows that stay in place are not copied."""
        for index in self._indexes.values():
            index.follow(rows, self.n)
        moved = np.flatnonzero(rows != np.arange(len(rows)))
        for column in self.columns.values():
            column[moved] = column[rows[moved]]
        self.n = len(rows)

    def sort_by_use(self, interval: int) -> None:
        """Sort rows by use, most used first, at intervals that grow with the stream."""
        if self.tokens > 1.5 * self._sorted_at + interval:
            self.take(np.argsort(-self["count"], kind="stable"))
            self._sorted_at = self.tokens

    def count_pairs(self, n_tokens: int, n_pairs: int) -> None:
        """Count comparisons of tokens with slots, of which an engine may spare most."""
        self.n_pairs += n_pairs
        share = n_pairs / (n_tokens * self.n)
        self.searched += (share - self.searched) * n_tokens / (n_tokens + SEARCHED_WINDOW)

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
        self.update_max_norm(keys)

    def update_max_norm(self, keys: Keys) -> None:
        """Raise ``max_norm`` for keys that slots hold, or may come to hold by moving to them."""
        if self.metric == "euclidean":
            wide = keys.astype(np.float64)
            longest = float(np.sqrt((wide * wide).sum(axis=1).max(initial=0.0))) * (1 + 1e-9)
            self.max_norm = max(self.max_norm, longest)

    def commit(
        self,
        keys: Keys,
        values: NDArray[Any] | None,
        times: Ints,
        use_weights: Floats,
        decision: Decision,
    ) -> Ints:
        """Apply a decided chunk and return the id of each token's slot."""
        columns, opened, before = decision.columns, decision.opened, self.n
        number = np.cumsum(opened) - 1
        fresh = columns >= before
        old, joined = ~fresh, number[columns[fresh] - before]
        ids = np.empty(len(columns), np.int64)
        ids[old] = self.columns["ids"][columns[old]]
        ids[fresh] = self.n_opened + joined
        openers, rows = np.flatnonzero(opened), columns.copy()
        order = None
        if decision.alive is None:
            rows[fresh] = before + joined
        else:
            openers = openers[decision.alive[before + openers]]
            kept = _fill_holes(decision.alive[:before])
            order = np.concatenate([kept, before + openers])
            place = np.full(len(decision.alive), -1)
            place[order] = np.arange(len(order))
            rows = place[columns]
            if len(kept) < before:
                self.take(kept)
        if len(openers):
            start = self.n
            self.append(keys[openers], times[openers], None if values is None else values[openers])
            self["ids"][start:] = self.n_opened + number[openers]
        self._merge(rows, values, times, use_weights)
        if decision.moved is not None:
            if order is None:
                order = np.concatenate([np.arange(before), before + openers])
            self["keys"][:], self["mean"][:] = (table[order] for table in decision.moved)
            self.update_max_norm(keys)
        if decision.alive is not None:
            self.compact()
        self.n_opened += int(np.count_nonzero(opened))
        self.tokens += len(columns)
        self.use_weight = float(use_weights[-1])
        self.temperature = decision.temperature
        return ids

    def use_weights(self, n: int, growth: float) -> Floats:
        """Weight of a use at each of the next tokens, up to the next rescaling or ``n``."""
        first = self.use_weight * growth if self.tokens else self.use_weight
        if first > MAX_USE_WEIGHT:
            first /= MAX_USE_WEIGHT
            self["usage"][:] /= MAX_USE_WEIGHT
        factors = np.full(n, growth)
        factors[0] = first
        weights = np.multiply.accumulate(factors)
        return weights[weights <= MAX_USE_WEIGHT]

    def _merge(
        self, rows: Ints, values: NDArray[Any] | None, times: Ints, use_weights: Floats
    ) -> None:
        if not (alive := rows >= 0).all():
            rows, times, use_weights = rows[alive], times[alive], use_weights[alive]
            values = None if values is None else values[alive]
        # add.at and repeated assignment go through the tokens in order, as the rule does.
        np.add.at(self["usage"], rows, use_weights)
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

    def fade(self, factor: float) -> None:
        """Multiply all usage by a factor; a use counts 1 from now on."""
        self["usage"][:] *= factor / self.use_weight
        self.use_weight = 1.0

    def open(self, keys: Keys, times: Ints, values: NDArray[Any] | None) -> None:
        """Add slots for keys, with the next ids and nothing counted."""
        start = self.n
        self.append(keys, times, values)
        self["ids"][start:] = self.n_opened + np.arange(len(keys))
        self.n_opened += len(keys)

    def merge_slots(
        self,
        rows: Ints,
        opened: Bools,
        theirs: dict[str, NDArray[Any]],
        values: NDArray[Any] | None,
        last: Ints,
    ) -> None:
        """Merge another cache's slots into these rows: one slot at a time where keys move."""
        if self.merge.key != "first":
            self._move(theirs, int(rows[0]), fresh=bool(opened[0]))
        np.add.at(self["usage"], rows, theirs["usage"])
        np.add.at(self["count"], rows, theirs["count"])
        if values is not None:
            if self.merge.value == "last":
                # Of several slots that join one, the value seen last stays.
                late = np.argsort(last, kind="stable")
                late = late[last[late] >= self["last_seen"][rows[late]]]
                self["values"][rows[late]] = values[late]
            elif self.merge.value in ("mean", "counts"):
                np.add.at(self["values"], rows, values)
        np.maximum.at(self["last_seen"], rows, last)

    def follow_stream(self, n_tokens: int, temperature: float) -> None:
        """Count the tokens of an absorbed stream and take over its temperature."""
        self.tokens += n_tokens
        self.temperature = temperature

    def _move(self, theirs: dict[str, NDArray[Any]], row: int, fresh: bool) -> None:
        """Average two means weighted by their tokens; an ema key moves to the later stream."""
        new = theirs["mean"][0]
        if fresh:
            self["mean"][row] = new
            return
        n_ours, n_new = int(self["count"][row]), int(theirs["count"][0])
        ema = self.merge.key == "ema"
        part = 1 - (1 - self.merge.pace) ** n_new if ema else n_new / (n_ours + n_new)
        mean = self["mean"][row] + part * (new - self["mean"][row])
        self["mean"][row] = mean
        length = float(np.sqrt((mean * mean).sum())) if self.metric == "cosine" else 1.0
        if length >= 1e-6:
            self["keys"][row] = mean / length
            self.update_max_norm(self["keys"][row : row + 1])

    def _resize(self, room: int) -> None:
        for name, column in self.columns.items():
            self.columns[name] = np.empty((room, *column.shape[1:]), column.dtype)
            self.columns[name][: self.n] = column[: self.n]


def _fill_holes(alive: Bools) -> Ints:
    """Rows to keep, where the last ones move to the places of those that are dropped."""
    n = int(alive.sum())
    rows = np.arange(n)
    rows[~alive[:n]] = n + np.flatnonzero(alive[n:])
    return rows


def value_type(kind: Kind, policy: ValuePolicy) -> type[np.generic]:
    """How values of a kind are stored under a policy; raise for meaningless pairs."""
    if kind == "label" and policy == "mean":
        raise ValueError(
            "class labels have no mean; use Merge(value='counts'), or give one-hot vectors"
        )
    if kind == "vector" and policy == "counts":
        raise ValueError(
            "counts are of class labels, got vectors; give whole numbers (L,) or "
            "Merge(value='mean')"
        )
    if kind == "label":
        return np.int64
    return np.float64 if policy == "mean" else np.float32


class Values:
    """How slots hold the values of a cache; the first token stored fixes the kind."""

    def __init__(self, policy: ValuePolicy) -> None:
        """Start with the kind unknown."""
        self.policy = policy
        self.kind: Kind | None = None
        self.size: tuple[int, ...] = ()
        self.codes: dict[int, int] = {}  # label -> column of its count
        self.max_codes = 16  # labels at which unused ones are dropped

    def check(self, kind: Kind, given: NDArray[Any]) -> type[np.generic]:
        """The type such values are stored in; raise if they differ from the values before."""
        stored = value_type(kind, self.policy)
        if self.kind is not None and (kind, given.shape[1:]) != (self.kind, self.size):
            raise ValueError(
                f"values are now {_describe(kind, given.shape[1:])}, before they were "
                f"{_describe(self.kind, self.size)}; use one cache for each kind"
            )
        return stored

    def fix(self, kind: Kind, given: NDArray[Any]) -> NDArray[Any] | None:
        """Fix the kind; return an empty column for slots to store such values in."""
        self.kind, self.size = kind, given.shape[1:]
        return self.column()

    def column(self) -> NDArray[Any] | None:
        """An empty column as slots store values in; None for none."""
        if self.kind is None or self.kind == "none":
            return None
        tail = (len(self.codes),) if self.policy == "counts" else self.size
        return np.empty((0, *tail), value_type(self.kind, self.policy))

    def encode(self, slots: Slots, given: NDArray[Any]) -> NDArray[Any] | None:
        """Values as slots take them: for counts, the column of each label."""
        if self.kind is None or self.kind == "none":
            return None
        if self.policy != "counts":
            return given.astype(value_type(self.kind, self.policy))
        labels, places = np.unique(given, return_inverse=True)
        self._drop_unused(slots, labels)
        for label in labels.tolist():
            self.codes.setdefault(label, len(self.codes))
        slots.widen(len(self.codes))
        return np.array([self.codes[label] for label in labels.tolist()], np.int64)[places]

    def _drop_unused(self, slots: Slots, labels: Ints) -> None:
        """Drop labels that no slot holds, before new labels widen the table."""
        if len(self.codes) < self.max_codes or all(
            label in self.codes for label in labels.tolist()
        ):
            return
        used = np.asarray(slots["values"].any(axis=0))
        kept = [label for label, code in self.codes.items() if used[code]]
        slots.narrow([self.codes[label] for label in kept])
        self.codes = {label: code for code, label in enumerate(kept)}
        self.max_codes = 2 * len(kept) + 16

    def classes(self, slots: Slots) -> Ints:
        """Labels counted by the slots held now, in rising order."""
        if not self.codes:
            return np.empty(0, np.int64)
        used = np.asarray(slots["values"].any(axis=0))
        counted = (label for label, code in self.codes.items() if used[code])
        return np.array(sorted(counted), np.int64)

    def table(self, slots: Slots, order: Ints) -> NDArray[Any] | None:
        """Values of these slot rows as users see them: means, labels, or counts by class."""
        if self.kind == "none":
            return None
        raw = slots["values"][order]
        if self.policy == "mean":
            return np.asarray(raw / slots["count"][order][:, None])
        return self.sorted(slots, raw)

    def label_masses(self, slots: Slots) -> tuple[Ints, Callable[[NDArray[Any]], NDArray[Any]]]:
        """Labels in rising order, and a function from weights (Q, S) to label masses (Q, C)."""
        if self.policy == "counts":
            counts = self.table(slots, np.arange(slots.n))
            assert counts is not None
            share = counts / counts.sum(axis=1, keepdims=True)
            return self.classes(slots), lambda weights: weights @ share
        order = np.argsort(slots["values"], kind="stable")
        classes, starts = np.unique(slots["values"][order], return_index=True)
        return classes, lambda weights: np.add.reduceat(weights[:, order], starts, axis=1)

    def example(self) -> tuple[Kind, NDArray[Any]]:
        """The kind and an array with no rows, as `fix` takes them."""
        assert self.kind is not None
        return self.kind, np.empty((0, *self.size))

    def sorted(self, slots: Slots, raw: NDArray[Any]) -> NDArray[Any]:
        """Rows of stored values with one column of counts for each of `classes`, in that order."""
        if self.policy != "counts":
            return raw
        return raw[:, [self.codes[label] for label in self.classes(slots).tolist()]]

    def state(self, slots: Slots) -> dict[str, Any]:
        """What a snapshot must hold beside the slots."""
        return {"kind": self.kind, "size": self.size, "classes": self.classes(slots).tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Load a state that was saved."""
        self.kind, self.size = state["kind"], tuple(state["size"])
        if self.kind not in (None, *get_args(Kind)):
            raise ValueError(f"values of kind {self.kind!r}")
        sized = len(self.size) == (self.kind in ("none", "vector"))
        if not (sized and all(isinstance(n, int) and n >= 0 for n in self.size)):
            raise ValueError(f"values of size {self.size}")
        self.codes = {int(label): code for code, label in enumerate(state["classes"])}
        if np.array(sorted(self.codes), np.int64).tolist() != state["classes"]:
            raise ValueError("classes out of order")
        if self.codes and (self.policy, self.kind) != ("counts", "label"):
            raise ValueError("classes where nothing is counted")

    def translate(self, slots: Slots, other: Values, theirs: Slots) -> NDArray[Any] | None:
        """Another cache's stored values, in the columns that our slots use."""
        if self.kind == "none":
            return None
        raw = theirs["values"]
        if self.policy != "counts":
            return raw
        labels = other.classes(theirs).tolist()
        for label in labels:
            self.codes.setdefault(label, len(self.codes))
        slots.widen(len(self.codes))
        wide = np.zeros((len(raw), slots["values"].shape[1]), np.int64)
        for label in labels:
            wide[:, self.codes[label]] = raw[:, other.codes[label]]
        return wide


def _describe(kind: Kind, size: tuple[int, ...]) -> str:
    return {"none": "missing", "label": "labels", "vector": f"vectors of {sum(size)}"}[kind]
