"""A log parser: the rule with lines for tokens, and templates for slots."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass
from heapq import heapify, heappop, heappush
from math import expm1, log
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .. import snapshot
from ..policy import Concentration, check_real
from ..slots import Ints
from .rendering import Spelling, aligned, gives_back, values
from .templates import Leaf, Spot, Template, Templates, both
from .tokenizer import CALENDAR, MEANT, NAMES, Key, Line, Reader, collapse, glue, uncoloured

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
        snapshot.save(path, KIND, dump(self._templates), state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The parser that was saved; a damaged or foreign file is refused."""
        tensors, state = snapshot.load(path, KIND)
        try:
            parser = cls(Concentration(**state["concentration"]), **state["setting"])
            restore(parser._templates, tensors, state["born"])
            parser.seen, parser._intake.truncated = map(int, state["counters"])
            parser._budget.restore(state["budget"])
            parser.note = dict(state["note"])
            check(parser._templates, parser._budget, parser.seen)
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


# What a parser says about a line, and about a template.

EXAMPLES = 3


class LogMatch:
    """The template of a line under its id, and whether the line opened it or changed its text.

    ``novelty`` is the distance of the line from what was known before, 0 for a repeat.
    """

    __slots__ = ("_line", "_spelling", "changed", "id", "novelty", "opened", "template")

    def __init__(self, leaf: Leaf, line: str, novelty: float = 0.0) -> None:
        own = leaf.template
        assert own is not None
        template = own if own.into is None else own.final()
        self.id, self.template = template.id, template.text
        self.novelty, self.opened, self.changed = novelty, False, False
        self._line, self._spelling = line, own.spelling

    @property
    def parameters(self) -> tuple[str, ...]:
        """The values in the line, in the order of the wildcards of the template.

        A line that `match` sees for the first time may have more of them than the template shows.
        """
        line = uncoloured(self._line)
        found = values(self._spelling, Reader().read(line))
        if gives_back(self.template, found, line):
            return found
        # With its numbers a line may be cut in another way than without, as templates are.
        fitting = aligned(self.template, " ".join(line.split()))
        return found if fitting is None else fitting

    def __repr__(self) -> str:
        """All fields in a line."""
        return (
            f"LogMatch(id={self.id}, template={self.template!r}, parameters={self.parameters}, "
            f"novelty={self.novelty:.3g}, opened={self.opened}, changed={self.changed})"
        )


def tell(leaf: Leaf, line: str, before: str | None = None) -> LogMatch:
    """The match of a line; its template changed if it was told of with another text."""
    match = LogMatch(leaf, line)
    template = leaf.template
    assert template is not None
    if template.told is match.template and template.into is None:
        return match  # as almost all
    template = template.final()
    told = before if template.told is None else template.told
    match.changed, template.told = told not in (None, match.template), match.template
    return match


@dataclass(frozen=True, slots=True)
class LogTemplate:
    """A template: its text, its lines, the first and the last of them, and some as examples."""

    id: int
    template: str
    count: int
    first_seen: int
    last_seen: int
    examples: tuple[str, ...]


def describe(template: Template) -> LogTemplate:
    """A template and what it stands for, in numbers."""
    leaves = template.all_leaves
    return LogTemplate(
        template.id,
        template.text,
        sum(leaf.count for leaf in leaves),
        leaves[0].first_seen,
        max(leaf.last_seen for leaf in leaves),
        tuple(leaf.example for leaf in leaves[:EXAMPLES]),
    )


# The door of a parser: lines as text of bounded length, and the leaves of lines seen before.

MEMO = 1 << 15  # lines remembered at most
LONG = 1000  # characters: longer lines are not remembered, nor kept whole as examples


def several(lines: Iterable[str | bytes]) -> list[str | bytes]:
    """Lines as they are, unless one was given where there should be several, or one is no line."""
    if isinstance(lines, (str, bytes, bytearray)):
        kind = type(lines).__name__
        raise TypeError(f"lines are given one by one, got {kind}; put it in a list: [line]")
    rows = [*lines]
    for number, line in enumerate(rows):
        if not isinstance(line, (str, bytes)):
            raise TypeError(f"a line is str or bytes, got {type(line).__name__} at {number}")
    return rows


class Intake:
    """Lines on their way in; those that collapse to the same text are read once."""

    def __init__(self, max_line: int, templates: Templates) -> None:
        self.max_line = max_line
        self.truncated = 0  # lines that were cut
        self._reader = Reader()
        self._memo: dict[str, Leaf] = {}
        self._ages: dict[str, int] = {}  # of those in leaves that stand for values, see `Skeletons`
        self._skeletons = Skeletons(templates, self._reader.words)
        self.bones: str | None = None  # of the line that was last not remembered

    def enter(self, line: str | bytes) -> tuple[str, bool]:
        """The line as text of bounded length, and whether it was cut."""
        if isinstance(line, bytes):
            line = line[: 4 * self.max_line + 4].decode("utf-8", "replace")
        elif not isinstance(line, str):
            raise TypeError(f"a line is str or bytes, got {type(line).__name__}")
        return str(line[: self.max_line]), len(line) > self.max_line

    def recall(self, line: str | bytes) -> tuple[str, str, Leaf | None]:
        """The line as text, what it collapses to, and its leaf if that was seen before."""
        if type(line) is not str or len(line) > self.max_line:
            line, cut = self.enter(line)
            self.truncated += cut
        short = collapse(line)
        leaf, self.bones = self._held(short), None
        if leaf is None:
            loose, short = short, glue(short)
            if (leaf := self._held(short)) is not None:
                self._keep(loose, leaf)
            elif bones := self._skeletons.of(short):
                leaf, self.bones = self._skeletons.recall(bones), bones
        return line, short, leaf

    def _held(self, short: str) -> Leaf | None:
        leaf = self._memo.get(short)
        if leaf is None or leaf.template is None:
            return None
        known = not leaf.folded or self._ages.get(short) == self._skeletons.age(leaf)
        return leaf if known else None

    def read(self, short: str) -> Line:
        """A collapsed line cut into tokens."""
        return self._reader.read(short)

    def read_whole(self, line: str | bytes) -> tuple[str, Line]:
        """A line as text and cut into tokens; nothing is counted."""
        text, _ = self.enter(line)
        return text, self._reader.read(glue(collapse(text)))

    def remember(self, short: str, leaf: Leaf, found: bool) -> None:
        """Know the leaf of the line last recalled and of those like it; found, or opened for it."""
        if self.bones and (found or leaf.folded):
            self._skeletons.remember(self.bones, leaf)
        else:
            self._keep(short, leaf)

    def _keep(self, short: str, leaf: Leaf) -> None:
        if len(short) <= LONG:
            if len(self._memo) >= MEMO:
                self._memo.clear()
                self._ages.clear()
            self._memo[short] = leaf
            if leaf.folded:
                self._ages[short] = self._skeletons.age(leaf)


# Lines without the words that were never seen: what is left says where a line belongs.

BLANKED = "\ue003"  # a private character, as those of `words`
SKELETONS = 1 << 14  # remembered at most
# A word of letters alone: after the name that it is assigned to and before a mark, or with a port.
_fresh = re.compile(r"([A-Za-z_]+[=:]|[(\[])?([A-Za-z]{4,})([)\],;:.]?)")
_host = re.compile(r"()([A-Za-z]{4,})(:00)")


class Skeletons:
    """The leaves of lines that are known but for some fresh words.

    A word of letters that is in no key is like any other such word: it can only be a value. So
    lines that are alike but for such words share a leaf, if theirs was there before, or is one that
    counts values and does not keep them. ``words`` are those that a reader has cut.
    """

    def __init__(self, templates: Templates, words: Container[str]) -> None:
        self._known, self._lengths, self._words = templates.shelf.tokens, templates.lengths, words
        self._leaves: dict[str, tuple[Leaf, int]] = {}

    def of(self, text: str) -> str | None:
        """A collapsed line with its fresh words blanked; None if it has none.

        Nor has a line that is too long, or one with quotes: all that they enclose is one word.
        """
        if len(text) > LONG or '"' in text or "'" in text or BLANKED in text:
            return None
        words = self._words
        bones = " ".join([p if p in words else self._blank(p) for p in text.split(" ")])
        return bones if BLANKED in bones else None

    def recall(self, bones: str) -> Leaf | None:
        """The leaf of such lines, unless the patterns of their length have changed since."""
        leaf, age = self._leaves.get(bones, (None, 0))
        return leaf if leaf and leaf.template and self.age(leaf) == age else None

    def remember(self, bones: str, leaf: Leaf) -> None:
        """Know the leaf of all such lines."""
        if len(self._leaves) >= SKELETONS:
            self._leaves.clear()
        self._leaves[bones] = leaf, self.age(leaf)

    def age(self, leaf: Leaf) -> int:
        """How often patterns of a leaf's length have changed."""
        return self._lengths[len(leaf.key)].age

    def _blank(self, part: str) -> str:
        found = _fresh.fullmatch(part) or _host.fullmatch(part)
        if found is None:
            return part
        before, word, after = found.groups("")
        name = before.rstrip("=:([")
        if word in self._known or _special(word) or (name and name not in self._known):
            return part
        if name in NAMES:  # its words are marked, so no key has them as they stand here
            return part
        return before + BLANKED + after


def _special(word: str) -> bool:
    """Whether the words around it may be read in another way for this word."""
    return word.isupper() or word in MEANT or word[:3] in CALENDAR


# A bound on the leaves of a parser, fixed or moving with surprise (paper, eqs. 4-6).

SPARE = 64  # leaves that are gone, beside as many as are held, may be in the order of eviction


class Budget:
    """The temperature, and the order in which leaves are evicted.

    Evicting from a template of several leaves folds them into one; evicting the last leaf of a
    template forgets it. Templates that were given as seeds are kept, and do not count.
    """

    def __init__(self, concentration: Concentration, templates: Templates) -> None:
        self.concentration = concentration
        self.forgotten = 0  # lines in evicted leaves
        self.heat, self.heat_after = 0.0, 0  # the temperature, and the number of lines it is after
        self.pace = -log(concentration.decay)  # see `usage`
        self._templates = templates
        self._order: list[tuple[float, int, int, Leaf]] = []
        self._pushed = 0
        templates.folded = self._admit

    def temperature(self, lines: int) -> float:
        """How often leaves opened lately, after so many lines (paper, eq. 4)."""
        return self.heat * (1 - self.concentration.rate) ** (lines - self.heat_after)

    def slots(self, lines: int) -> float:
        """Leaves granted after so many lines (paper, eq. 5)."""
        return self.concentration.base + self.concentration.gain * self.temperature(lines)

    def open(self, leaf: Leaf, lines: int) -> None:
        """The last of these lines opened a leaf, or was the first of a seed."""
        self.heat, self.heat_after = self.temperature(lines) + self.concentration.rate, lines
        self._admit(leaf)

    def join(self, other: Budget, lines: int, theirs: int) -> None:
        """Go on from the temperature of another parser, whose lines came after ours."""
        cooled = self.temperature(lines) * (1 - self.concentration.rate) ** theirs
        self.heat, self.heat_after = min(1.0, cooled + other.temperature(theirs)), lines + theirs
        self.forgotten += other.forgotten

    def adopt(self, leaf: Leaf, other: Budget, lines: int) -> Leaf:
        """A copy of a leaf of another parser, as if its lines had come so many lines later.

        Without a budget usage is not counted: the lines are then taken to be evenly spread.
        """
        copied = leaf.later(lines, self.pace)
        if copied.count and not other.concentration.bounded:
            step = (copied.last_seen - copied.first_seen) / max(1, copied.count - 1)
            fades = self.pace * step  # from one line of the leaf to the next
            whole = expm1(-fades * copied.count) / expm1(-fades) if fades else copied.count
            copied.usage = (copied.last_seen + 1) * self.pace + log(whole)
        return copied

    def start(self) -> None:
        """Put all leaves into the order of eviction anew."""
        self._order.clear()
        for leaf in self._templates.leaves.values():
            self._admit(leaf)

    def _admit(self, leaf: Leaf) -> None:
        if self.concentration.bounded and not leaf.seeded:
            if len(self._order) > 2 * len(self._templates.leaves) + SPARE:
                self._order = [one for one in self._order if one[-1].template is not None]
                heapify(self._order)
            self._pushed += 1
            heappush(self._order, (leaf.usage, leaf.last_seen, self._pushed, leaf))

    def state(self) -> list[float]:
        """What a snapshot keeps."""
        return [self.heat, self.heat_after, self.forgotten]

    def restore(self, state: list[float]) -> None:
        """Go on from a snapshot, once the leaves are there."""
        heat, after, forgotten = state
        self.heat, self.heat_after, self.forgotten = float(heat), int(after), int(forgotten)
        if not 0 <= self.heat <= 1:
            raise ValueError(f"the temperature is {heat}, not in [0, 1]")
        self.start()

    def use(self, leaf: Leaf, lines: int) -> Leaf:
        """Count the last line as usage and evict; the leaf that holds the line after that."""
        leaf.usage = both(leaf.usage, lines * self.pace)
        return self.shrink(lines, leaf) or leaf

    def shrink(self, lines: int, spared: Leaf | None = None) -> Leaf | None:
        """Evict the least used until the budget holds; what the spared leaf was folded into."""
        room = self.slots(lines) + self._templates.shelf.n_seeds
        aside = []
        while len(self._templates.leaves) > room and self._order:
            usage, _, _, worst = heappop(self._order)
            template = worst.template
            if template is None:
                continue
            if worst.usage != usage:
                self._admit(worst)
            elif (whole := self._templates.fold(worst)) is not None:
                spared = whole if spared is not None and spared.template is None else spared
            elif worst is spared:
                aside.append(worst)
            else:
                self.forgotten += worst.count
                self._templates.drop(worst)
        for leaf in aside:
            self._admit(leaf)
        return spared


# The state of a parser as arrays and JSON, and back.

_NUMBERS = {"count": np.int64, "first_seen": np.int64, "last_seen": np.int64, "usage": np.float64}


def dump(templates: Templates) -> dict[str, NDArray[Any]]:
    """Leaves in the order in which they came, and the templates that hold them."""
    leaves, held = list(templates.leaves.values()), templates.held()
    homes = {leaf.key: [one.id, n] for one in held for n, leaf in enumerate(one.leaves)}
    columns: dict[str, NDArray[Any]] = {
        name: np.array([getattr(leaf, name) for leaf in leaves], kind)
        for name, kind in _NUMBERS.items()
    }
    columns["seeded"] = np.array([leaf.seeded for leaf in leaves], np.bool_)
    texts = {
        "leaves": [
            [leaf.key, *leaf.spelling, leaf.shape, leaf.example, leaf.folded] for leaf in leaves
        ],
        "homes": [homes[leaf.key] for leaf in leaves],  # the template, and the place in it
        "templates": [[one.id, one.key, one.aliases, one.told] for one in held],
        "standing": [[one.id, [part.id for part in one.parts]] for one in held if one.parts],
        "into": [[one.id, one.final().id] for one in held if one.final() is not one],
        "lengths": [[length, grouping.state()] for length, grouping in templates.lengths.items()],
    }
    columns["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    return columns


def restore(templates: Templates, columns: dict[str, NDArray[Any]], born: int) -> None:
    """Fill an empty set of templates with what was dumped."""
    templates.born = int(born)
    texts = json.loads(columns["texts"].tobytes())
    held = {int(number): _template(int(number), *row) for number, *row in texts["templates"]}
    ids = [number for one in held.values() for number in (one.id, *one.aliases)]
    if len(set(ids)) < len(ids) or not all(0 <= number < templates.born for number in ids):
        raise ValueError("an id was never given, or given twice")
    if held.keys() != {home for home, _ in texts["homes"]}:
        raise ValueError("a template has no leaves, or a leaf no template")
    if (columns["count"] < 0).any() or np.isnan(columns["usage"]).any():
        raise ValueError("a leaf was used less than never")
    for template in held.values():
        templates.restore(template)
    places = {}
    for row, (saved, (home, place)) in enumerate(zip(texts["leaves"], texts["homes"], strict=True)):
        leaf = _leaf(*saved)
        for name in (*_NUMBERS, "seeded"):
            setattr(leaf, name, columns[name][row].item())
        if leaf.key in templates.leaves or len(leaf.key) != len(held[home].key):
            raise ValueError("two leaves have one key, or a leaf is not as long as its template")
        templates.hold(leaf, held[home])
        places[leaf.key] = int(place)
    for template in held.values():
        template.leaves.sort(key=lambda leaf: places[leaf.key])
    _stand(held, texts["standing"], dict(texts["into"]))
    for length, state in texts["lengths"]:
        leaves = templates.shelf.lengths[int(length)].values()
        seeds = [leaf.key for leaf in leaves if leaf.seeded]
        grouping = templates.grouping(int(length))
        grouping.restore(state, seeds, int(length), held)
        templates.shelf.tokens.update(*grouping.patterns())


def check(templates: Templates, budget: Budget, seen: int) -> None:
    """Every line is in a leaf or forgotten, and the last of them is not yet to come."""
    known = sum(leaf.count for leaf in templates.leaves.values()) + budget.forgotten
    if seen != known or budget.heat_after > seen:
        raise ValueError(f"{seen} lines were seen, {known} are accounted for")


def _stand(held: dict[int, Template], standing: list[Any], into: dict[int, int]) -> None:
    """Let templates stand for others as they did; some of those may have no leaves any more."""
    if into.keys() & into.values():
        raise ValueError("a template is part of one that is itself part of another")
    for number, wider in into.items():
        held[number].into = held[wider]
    for number, parts in standing:
        held[number].parts = [held.get(part) or Template(int(part), ()) for part in parts]


def _template(number: int, key: list[str], aliases: list[int], told: str | None) -> Template:
    told = None if told is None else str(told)
    return Template(number, _words(key), aliases=[*map(int, aliases)], told=told)


def _leaf(
    key: list[str],
    places: list[int],
    spelt: list[str],
    marks: list[str],
    shape: str,
    example: str,
    folded: list[list[str]],
) -> Leaf:
    spelling = Spelling(tuple(map(int, places)), _words(spelt), _words(marks))
    if not len(places) == len(spelt) == len(marks) - 1 or not _within(places, len(key)):
        raise ValueError("a leaf is not spelt as its key says")
    if any(len(pattern) != len(key) for pattern in folded):
        raise ValueError("a leaf stands for a pattern of another length")
    patterns = tuple(map(_words, folded))
    return Leaf(_words(key), spelling, str(shape), str(example), 0, folded=patterns)


def _within(places: list[int], length: int) -> bool:
    return all(-1 <= place < length for place in places)


def _words(words: list[str]) -> tuple[str, ...]:
    return tuple(map(str, words))
