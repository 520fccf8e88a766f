"""What a cache knows of its values: their kind, how slots store them, and the classes seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from .inputs import Kind, value_type
from .policy import ValuePolicy
from .slots import Ints, Slots


class Values:
    """The value side of a cache; the kind is fixed by the first token that is stored."""

    def __init__(self, policy: ValuePolicy) -> None:
        """Know nothing yet."""
        self.policy = policy
        self.kind: Kind | None = None
        self.size: tuple[int, ...] = ()
        self.codes: dict[int, int] = {}  # label -> column of its count
        self.room = 16  # labels at which to look for some that can go

    def admit(self, kind: Kind, given: NDArray[Any]) -> type[np.generic]:
        """The type such values are stored in; refuse what differs from the values before."""
        stored = value_type(kind, self.policy)
        if self.kind is not None and (kind, given.shape[1:]) != (self.kind, self.size):
            raise ValueError(
                f"values are now {_words(kind, given.shape[1:])}, before they were "
                f"{_words(self.kind, self.size)}; use one cache for each kind"
            )
        return stored

    def fix(self, kind: Kind, given: NDArray[Any]) -> NDArray[Any] | None:
        """Settle the kind for good; an empty column for slots to store such values in."""
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
        self._forget(slots, labels)
        for label in labels.tolist():
            self.codes.setdefault(label, len(self.codes))
        slots.widen(len(self.codes))
        return np.array([self.codes[label] for label in labels.tolist()], np.int64)[places]

    def _forget(self, slots: Slots, labels: Ints) -> None:
        """Drop labels that no slot holds any more, before new ones would widen the table."""
        if len(self.codes) < self.room or all(label in self.codes for label in labels.tolist()):
            return
        used = np.asarray(slots["values"].any(axis=0))
        kept = [label for label, code in self.codes.items() if used[code]]
        slots.narrow([self.codes[label] for label in kept])
        self.codes = {label: code for code, label in enumerate(kept)}
        self.room = 2 * len(kept) + 16

    def classes(self, slots: Slots) -> Ints:
        """Labels that slots have counted, in rising order; not those of slots that are gone."""
        if not self.codes:
            return np.empty(0, np.int64)
        used = np.asarray(slots["values"].any(axis=0))
        held = (label for label, code in self.codes.items() if used[code])
        return np.array(sorted(held), np.int64)

    def table(self, slots: Slots, order: Ints) -> NDArray[Any] | None:
        """Values of these slot rows as a reader wants them: means, labels, or counts by class."""
        if self.kind == "none":
            return None
        raw = slots["values"][order]
        if self.policy == "mean":
            return np.asarray(raw / slots["count"][order][:, None])
        return self.sorted(slots, raw)

    def spread(self, slots: Slots) -> tuple[Ints, Callable[[NDArray[Any]], NDArray[Any]]]:
        """Labels in rising order, and what turns weights (Q, S) into their masses (Q, C)."""
        if self.policy == "counts":
            counts = self.table(slots, np.arange(slots.n))
            assert counts is not None
            share = counts / counts.sum(axis=1, keepdims=True)
            return self.classes(slots), lambda weights: weights @ share
        order = np.argsort(slots["values"], kind="stable")
        classes, starts = np.unique(slots["values"][order], return_index=True)
        return classes, lambda weights: np.add.reduceat(weights[:, order], starts, axis=1)

    def example(self) -> tuple[Kind, NDArray[Any]]:
        """The kind and an array with no rows, as `fix` was told them."""
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
        """Take up a state that was saved."""
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


def _words(kind: Kind, size: tuple[int, ...]) -> str:
    return {"none": "missing", "label": "labels", "vector": f"vectors of {sum(size)}"}[kind]
