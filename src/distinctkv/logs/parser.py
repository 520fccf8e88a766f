"""A log parser: the rule with lines for tokens, and templates for slots."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from .. import snapshot
from ..policy import Concentration, check_real
from ..slots import Ints
from . import saving
from .budget import Budget
from .intake import LONG, Intake, several
from .leaves import Leaf
from .lines import Key, Line
from .matches import LogMatch, LogTemplate, describe, tell
from .templates import Spot, Templates

KIND = "log parser"


class LogParser:
    """Finds the templates of log lines as they come, with one setting for every system.

    Lines that differ in values alone (numbers, ids, hosts, paths, ...) share a leaf, the slot of
    this memory. Leaves that differ in no more than a part ``tau`` of their words share a template
    if the words take more than ``few`` values; a template with ``1 / rare`` of the lines of a
    shorter one that it fits is counted with it. Lines longer than ``max_line`` are cut.

    >>> parser = LogParser()
    >>> parser.add("Took 25 ms to open /var/log/messages").opened
    True
    >>> match = parser.add("Took 3 ms to open /etc/hosts")
    >>> match.id, match.template, match.parameters
    (0, 'Took <*> ms to open <*>', ('3', '/etc/hosts'))
    >>> parser
    LogParser(tau=0.3, 1 template for 2 lines)
    """

    def __init__(
        self,
        concentration: Concentration | None = None,
        *,
        few: int = 4,
        rare: float = 10.0,
        max_line: int = 10_000,
    ) -> None:
        """Start empty; a budget in the concentration bounds the leaves."""
        self.concentration = Concentration.fixed(0.3) if concentration is None else concentration
        if not isinstance(self.concentration, Concentration):
            raise TypeError(
                f"expected a Concentration such as Concentration.fixed(0.3), got {concentration!r}"
            )
        if self.concentration.tau > 1:
            raise ValueError(
                f"tau must be at most 1 for lines, got {self.concentration.tau}; "
                "it is the part of the words that may differ"
            )
        for name, number in (("few", few), ("rare", rare), ("max_line", max_line)):
            check_real(name, number)
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
            if name != "rare" and number % 1:
                raise ValueError(f"{name} must be a whole number, got {number}")
        self.few, self.rare, self.max_line = int(few), float(rare), int(max_line)
        self.seen = 0
        self.note: dict[str, Any] = {}  # yours: JSON that is saved with the parser

        self._templates = Templates(self.concentration.tau, self.few, self.rare)
        self._intake = Intake(self.max_line, self._templates)
        self._budget = Budget(self.concentration, self._templates)
        self._bounded = self.concentration.bounded

    def add(self, line: str | bytes) -> LogMatch:
        """Take in one line; any text is a line, and bytes are read as UTF-8."""
        line, short, leaf = self._intake.recall(line)
        if leaf is not None:
            return tell(self._count(leaf), line)
        read = self._intake.read(short)
        spot = self._templates.find(read.key)
        before = None if spot.template is None else spot.template.final().text
        born = self._templates.born
        novelty = 0.0 if before is not None else self._templates.shelf.novelty(read.key)
        match = tell(self._count(self._place(line, short, read, spot)), line, before)
        match.novelty, match.opened = novelty, match.id >= born
        match.changed = match.changed and not match.opened
        return match

    def add_many(self, lines: Iterable[str | bytes]) -> Ints:
        """Take in lines, all or none; the id of each after the last, -1 if evicted by then."""
        templates = []
        for given in several(lines):
            line, short, leaf = self._intake.recall(given)
            if leaf is None:
                read = self._intake.read(short)
                leaf = self._place(line, short, read, self._templates.find(read.key))
            templates.append(self._count(leaf).template)
        finals = (template and template.final() for template in templates)
        return np.array([final.id if final and final.leaves else -1 for final in finals], np.int64)

    def match(self, line: str | bytes) -> LogMatch | None:
        """The template that a line belongs to, or None; nothing changes."""
        text, read = self._intake.read_whole(line)
        template = self._templates.find(read.key).template
        return None if template is None else LogMatch(template.leaves[0], text)

    def templates(self) -> list[LogTemplate]:
        """All templates, oldest first."""
        self._templates.settle()
        return sorted(map(describe, self._templates), key=lambda row: (row.first_seen, row.id))

    def resolve(self, number: int) -> int | None:
        """The id by which a template goes now that had this one; None if it was evicted."""
        return self._templates.resolve(number)

    def seed(self, templates: Iterable[str]) -> list[int]:
        """Know templates before their first line, and keep them for good; their ids."""
        keys = []
        for given in several(templates):
            text, read = self._intake.read_whole(given)
            self._templates.join(Leaf.of(read, text[:LONG], self.seen, seeded=True))
            keys.append(read.key)
        self._templates.regroup()
        self._budget.start()
        return [self._id(key) for key in keys]

    def absorb(self, other: LogParser) -> dict[int, int]:
        """Take in another parser, as if its lines had followed; the id here of each of its ids.

        The templates are those that one parser would have found in all the lines, while both keep
        all their leaves: words are no longer told apart once a template has 64, nor leaves that a
        budget evicted, and of very many like keys only some are compared (see `patterns`).
        """
        if not isinstance(other, LogParser):
            raise TypeError(f"only a LogParser can be absorbed, got {type(other).__name__}")
        if other is self:
            raise ValueError("a parser cannot absorb itself; to count lines twice, load it twice")
        fades = self._bounded and other._bounded  # only then both count usage
        if (ours := self._setting(fades)) != (theirs := other._setting(fades)):
            raise ValueError(f"parsers must share their setting: {ours} and {theirs}")
        other._templates.settle()
        firsts = {template.id: template.leaves[0].key for template in other._templates}
        for leaf in list(other._templates.leaves.values()):
            self._templates.join(self._budget.adopt(leaf, other._budget, self.seen))
        self._budget.join(other._budget, self.seen, other.seen)
        self.seen += other.seen
        self._intake.truncated += other.truncated
        self._templates.regroup()
        self._budget.start()
        self._budget.shrink(self.seen)
        self._templates.settle()
        ids = {number: self._id(key) for number, key in firsts.items()}
        return {number: here for number, here in ids.items() if here >= 0}

    def add_log_message(self, line: str | bytes) -> dict[str, Any]:
        """Take in one line and answer as Drain3's ``TemplateMiner`` does."""
        match = self.add(line)
        change = "cluster_template_changed" if match.changed else "none"
        return {
            "change_type": "cluster_created" if match.opened else change,
            "cluster_id": match.id,
            "cluster_size": self._templates.count(match.id),
            "template_mined": match.template,
            "cluster_count": len(self._templates),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parser to one file, whole or not at all; it knows the lines it has seen."""
        state = {
            "concentration": asdict(self.concentration),
            "setting": {"few": self.few, "rare": self.rare, "max_line": self.max_line},
            "counters": [self.seen, self.truncated],
            "budget": self._budget.state(),
            "born": self._templates.born,
            "note": self.note,
        }
        snapshot.save(path, KIND, saving.dump(self._templates), state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The parser that was saved; a damaged or foreign file is refused."""
        tensors, state = snapshot.load(path, KIND)
        try:
            parser = cls(Concentration(**state["concentration"]), **state["setting"])
            saving.restore(parser._templates, tensors, state["born"])
            parser.seen, parser._intake.truncated = map(int, state["counters"])
            parser._budget.restore(state["budget"])
            parser.note = dict(state["note"])
            saving.check(parser._templates, parser._budget, parser.seen)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise snapshot.SnapshotError(f"{path} does not describe a parser: {error!r}") from error
        return parser

    def __copy__(self) -> Self:
        """A parser of its own: two that share templates would not agree on what they have seen."""
        return copy.deepcopy(self)

    def __len__(self) -> int:
        """Templates held now."""
        return len(self._templates)

    def __repr__(self) -> str:
        """Policy and sizes in a line."""
        budget = f", budget {self.budget:.4g}" if self.concentration.bounded else ""
        templates = f"{len(self)} template{'s' * (len(self) != 1)}"
        return (
            f"LogParser(tau={self.concentration.tau:g}{budget}, {templates} for {self.seen} lines)"
        )

    @property
    def temperature(self) -> float:
        """How often leaves opened lately, in [0, 1] (paper, eq. 4)."""
        return self._budget.temperature(self.seen)

    @property
    def budget(self) -> float:
        """Leaves granted now (paper, eq. 5)."""
        return self._budget.slots(self.seen)

    @property
    def born(self) -> int:
        """Templates opened so far, with those that became one or were evicted since."""
        return self._templates.born

    @property
    def n_leaves(self) -> int:
        """Leaves held now: what the budget bounds."""
        return len(self._templates.leaves)

    @property
    def truncated(self) -> int:
        """Lines that were cut to ``max_line``."""
        return self._intake.truncated

    @property
    def forgotten(self) -> int:
        """Lines in templates that were evicted."""
        return self._budget.forgotten

    def _setting(self, fades: bool) -> dict[str, float]:
        setting = {"tau": self.concentration.tau, "few": self.few, "rare": self.rare}
        return setting | ({"decay": self.concentration.decay} if fades else {})

    def _id(self, key: Key) -> int:
        template = self._templates.find(key).template
        return -1 if template is None else template.final().id

    def _place(self, line: str, short: str, read: Line, spot: Spot) -> Leaf:
        leaf = self._templates.place(read, spot, line[:LONG], self.seen)
        self._intake.remember(short, leaf, spot.leaf is leaf)
        return leaf

    def _count(self, leaf: Leaf) -> Leaf:
        now = self.seen
        self.seen = now + 1
        leaf.last_seen = now
        leaf.count += 1
        if leaf.count == 1:
            self._budget.open(leaf, self.seen)
        return self._budget.use(leaf, self.seen) if self._bounded else leaf
