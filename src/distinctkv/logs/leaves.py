"""What a log parser remembers: a leaf for each distinct key, and templates that hold leaves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf
from typing import Self

from .lines import Key, Line
from .spelling import Spelling
from .usage import both
from .words import WILD


@dataclass(slots=True, eq=False)
class Leaf:
    """A slot: the lines that have one key. Its key never changes."""

    key: Key
    spelling: Spelling
    shape: str  # of one of its lines
    example: str
    first_seen: int
    last_seen: int = -1
    count: int = 0
    usage: float = -inf  # see `usage`
    seeded: bool = False  # a template that was given, and is never evicted
    folded: tuple[Key, ...] = ()  # the patterns of values that it stands for and that are not kept
    template: Template | None = None  # None once evicted

    @classmethod
    def of(cls, line: Line, example: str, now: int, seeded: bool = False) -> Self:
        """A leaf with no lines yet, for the key of this one."""
        return cls(line.key, Spelling.of(line), line.shape, example, now, seeded=seeded)

    @classmethod
    def whole(cls, key: Key, leaves: list[Leaf], patterns: tuple[Key, ...]) -> Self:
        """A leaf with a key that covers these leaves, which counts the lines of them all."""
        eldest = min(leaves, key=lambda leaf: leaf.first_seen)
        spelling = eldest.spelling.under(eldest.key, key)
        whole = cls(key, spelling, "", eldest.example, eldest.first_seen, folded=patterns)
        for leaf in leaves:
            whole.add(leaf)
        return whole

    def later(self, lines: int, pace: float) -> Leaf:
        """A copy of this leaf, in no template, as if its lines had come so many lines later."""
        copied = replace(self, template=None, usage=self.usage + lines * pace)
        copied.first_seen += lines
        copied.last_seen += lines if self.count else 0
        return copied

    def add(self, other: Leaf) -> None:
        """Count the lines of another leaf as well."""
        self.spelling = self.spelling.meet(other.spelling.under(other.key, self.key))
        self.count += other.count
        self.usage = both(self.usage, other.usage)
        self.last_seen = max(self.last_seen, other.last_seen)
        if other.first_seen < self.first_seen:
            self.first_seen, self.example = other.first_seen, other.example
        self.seeded = self.seeded or other.seeded
        self.folded = tuple(sorted({*self.folded, *other.folded}))


@dataclass(slots=True, eq=False)
class Template:
    """Leaves that differ in parameters only, under an id that is theirs for life."""

    id: int
    key: Key
    leaves: list[Leaf] = field(default_factory=list)
    into: Template | None = None  # the template that this one is part of now
    parts: list[Template] = field(default_factory=list)  # those that this one stands for
    aliases: list[int] = field(default_factory=list)  # ids of templates that became this one
    told: str | None = None  # the text when a line was last told of it
    _spelling: Spelling | None = None
    _text: str | None = None

    def take(self, leaf: Leaf) -> None:
        """Hold one more leaf."""
        self.leaves.append(leaf)
        leaf.template = self
        self.learn(leaf.spelling.under(leaf.key, self.key))

    def lose(self, leaf: Leaf) -> None:
        """Hold a leaf no longer, and be written as those that are left."""
        self.leaves.remove(leaf)
        leaf.template = self._spelling = self._text = None

    def learn(self, spelling: Spelling) -> None:
        """Write the template so that it fits one more spelling."""
        if self._spelling is not None and (met := self._spelling.meet(spelling)) != self._spelling:
            self._spelling, self._text = met, None

    def reshape(self, key: Key, leaves: list[Leaf]) -> None:
        """Hold these leaves, and no others, under this key."""
        if key == self.key and leaves == self.leaves:
            return
        self.key, self.leaves, self._spelling, self._text = key, [], None, None
        for leaf in leaves:
            self.take(leaf)

    def stand_alone(self) -> None:
        """Be part of no other, and stand for none."""
        if self.parts:
            self._text = None
        self.into, self.parts = None, []

    def stand_for(self, other: Template) -> None:
        """Count the lines of another, which goes on having its leaves."""
        other.into, self._text = self, None
        self.parts.append(other)

    def inherit(self, other: Template) -> None:
        """Stand for a template whose leaves went elsewhere."""
        if self.final() is other:
            self.into = None
        other.leaves, other.into = [], self
        self.aliases += [other.id, *other.aliases]

    @property
    def spelling(self) -> Spelling:
        """How the template is written; it has at least one leaf."""
        if self._spelling is None:
            spellings = (leaf.spelling.under(leaf.key, self.key) for leaf in self.leaves)
            self._spelling = reduce(Spelling.meet, spellings)
        return self._spelling

    @property
    def text(self) -> str:
        """The template as people read it."""
        if self._text is None:
            whole = self.spelling
            if self.parts:
                # In some lines a value has several words; a name that was written out is a value.
                whole = whole.gathered()
                spelt = (
                    WILD if self.key[p] == WILD else t for p, t in zip(*whole[:2], strict=True)
                )
                whole = whole._replace(spelt=tuple(spelt))
            self._text = whole.write()
        return self._text

    @property
    def count(self) -> int:
        """Lines in the leaves."""
        return sum(leaf.count for leaf in self.leaves)

    @property
    def all_leaves(self) -> list[Leaf]:
        """Its leaves and those of the templates it stands for, oldest first."""
        leaves = [leaf for template in (self, *self.parts) for leaf in template.leaves]
        return sorted(leaves, key=lambda leaf: leaf.first_seen)

    @property
    def dead(self) -> bool:
        """Whether all its leaves were evicted."""
        return not self.leaves and self.into is None

    def heir(self) -> Template:
        """The template that has the leaves of this one now, or itself."""
        template = self
        while template.into is not None and not template.leaves:
            template = template.into
        return template

    def final(self) -> Template:
        """The template that this one is part of now, or itself."""
        template = holder = self
        while template.into is not None:
            template = template.into
            holder = template if template.leaves else holder
        if template.dead:  # all that stood for the holder of the leaves was evicted
            template, holder.into = holder, None
        return template
