"""The templates that a parser's leaves make up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .cover import Cover
from .grouping import Grouping
from .leaves import Leaf, Template
from .lines import Key, Line
from .naming import name
from .shelf import Shelf
from .spelling import Spelling
from .subsume import subsumed

SETTLED = 64  # leaves under a pattern, after which new values are counted and not kept
FITTED, LONG = 1 << 14, 1000  # shapes of lines remembered at most, and their characters
GAP = 4  # words that a value may be longer in a rare line


class Spot(NamedTuple):
    """Where a key belongs: to a leaf, or else to a template by one of its patterns."""

    leaf: Leaf | None = None
    template: Template | None = None
    pattern: Key | None = None


class Templates:
    """Templates by id, and the leaves they hold.

    The templates are a function of the set of leaves and of their counts: the order in which the
    lines came does not matter, nor whether they came through another parser, while all leaves are
    kept. Leaves that were folded or evicted open no patterns any more. Templates are worked out
    again when as many leaves of one length have opened as there were the last time, and whenever
    they are asked for.
    """

    def __init__(self, tau: float, few: int, rare: float) -> None:
        self.shelf = Shelf()
        self.leaves = self.shelf.leaves
        self.born = 0  # ids given so far
        self._tau, self._few, self._rare = tau, few, rare
        self._by_id: dict[int, Template] = {}
        self._lengths: dict[int, Grouping] = {}
        self._stale: set[int] = set()
        self._standing: int | None = 0
        self._fitted: dict[str, Leaf] = {}  # shapes of lines, by which leaf fits them
        self.folded: Callable[[Leaf], None] = lambda _: None  # told of each leaf made of others

    def __iter__(self) -> Iterator[Template]:
        """Templates that stand for themselves, oldest first."""
        held = (self._by_id[number] for number in sorted(self._by_id))
        return (template for template in held if template.final() is template)

    def __len__(self) -> int:
        """How many templates stand for themselves."""
        if self._standing is None:
            self._standing = sum(template.final() is template for template in self._by_id.values())
        return self._standing

    def held(self) -> list[Template]:
        """Templates with leaves, whether or not a wider one stands for them."""
        return [template for template in self._by_id.values() if template.leaves]

    def count(self, number: int) -> int:
        """Lines of the template with this id."""
        template = self._by_id[number]
        return template.count + sum(part.count for part in template.parts)

    def resolve(self, number: int) -> int | None:
        """The id that a template goes by now; None if it was evicted or never there."""
        template = self._by_id.get(number)
        return None if template is None else template.final().id

    def find(self, key: Key) -> Spot:
        """Where a key belongs."""
        leaf = self.leaves.get(key)
        if leaf is not None:
            return Spot(leaf, leaf.template)
        grouping = self._lengths.get(len(key))
        pattern = None if grouping is None else grouping.pattern(key)
        if grouping is None or pattern is None:
            return Spot()
        template = grouping.homes.get(pattern)
        return Spot() if template is None or template.dead else Spot(None, template, pattern)

    def place(self, line: Line, spot: Spot, example: str, now: int) -> Leaf:
        """The leaf of a line that belongs to this spot, opened if need be."""
        if spot.leaf is not None:
            if (shape := line.shape) != spot.leaf.shape:
                self._fit(spot.leaf, shape, line)
            return spot.leaf
        if (settled := self._settled(spot)) is not None:
            return settled
        leaf = Leaf.of(line, example, now)
        self.hold(leaf, spot.template)
        grouping = self._grouping(len(line.key))
        grouping.due -= 1
        if grouping.due <= 0:
            self._group(len(line.key))
        return leaf

    def join(self, leaf: Leaf) -> None:
        """Take in a leaf from elsewhere: of another parser, or a seed."""
        spot = self.find(leaf.key)
        ours = spot.leaf
        if ours is None and not leaf.seeded:
            ours = self._settled(spot)
        if ours is None:
            return self.hold(leaf, None if leaf.seeded else spot.template)
        self.shelf.n_seeds += leaf.seeded and not ours.seeded
        ours.add(leaf)
        self._learn(ours, ours.spelling)
        self._stale.add(len(leaf.key))
        return None

    def hold(self, leaf: Leaf, template: Template | None) -> None:
        """Hold one more leaf, in a template of its own if it is given none."""
        (template or self._open(leaf.key)).take(leaf)
        self.shelf.put(leaf)
        self._stale.add(len(leaf.key))

    def restore(self, template: Template) -> None:
        """Hold a template that was saved, before its leaves."""
        for number in template.aliases:
            self._by_id[number] = Template(number, template.key, into=template)
        self._by_id[template.id] = template
        self._standing = None

    def drop(self, leaf: Leaf) -> None:
        """Forget a leaf, and its template when that was its last."""
        template = leaf.template
        assert template is not None
        leaf.template = None
        self.shelf.remove(leaf)
        self._stale.add(len(leaf.key))
        stood = template.final() is template
        template.leaves.remove(leaf)
        if not template.leaves:
            for number in (template.id, *template.aliases):
                self._by_id.pop(number, None)
            template.into = None
            if template.parts:
                self._standing = None
            elif self._standing is not None:
                self._standing -= stood

    def fold(self, leaf: Leaf) -> Leaf | None:
        """Put a leaf and those that share its pattern into one; None if there are no others."""
        pattern = self._grouping(len(leaf.key)).pattern(leaf.key)
        if pattern is None or leaf.template is None:
            return None
        return self._fold(leaf.template, pattern)

    def settle(self) -> None:
        """Work out all templates from the leaves as they are now."""
        for length in sorted(self._stale):
            self._group(length)
        held = self.held()
        # Two templates may have one key, of different patterns: the one with more lines counts.
        held.sort(key=lambda template: (template.count, min(leaf.key for leaf in template.leaves)))
        by_key = {template.key: template for template in held}
        counts = dict.fromkeys(by_key, 0)
        for template in held:
            counts[template.key] += template.count
            template.stand_alone()
        seeds = {leaf.key for leaf in self.leaves.values() if leaf.seeded}
        into = subsumed(counts, self._rare, GAP, seeds)
        for template in held:
            if template.key in into:
                by_key[into[template.key]].stand_for(template)
        self._standing = None

    def _settled(self, spot: Spot) -> Leaf | None:
        """The leaf that counts new values under a pattern, once it has seen many."""
        if spot.pattern is None or spot.template is None:
            return None
        leaf = self.leaves.get(spot.pattern)
        if leaf is not None and leaf.folded:
            return leaf
        load = self._grouping(len(spot.pattern)).load
        load[spot.pattern] += 1
        return self._fold(spot.template, spot.pattern) if load[spot.pattern] > SETTLED else None

    def _fold(self, template: Template, pattern: Key) -> Leaf | None:
        cover = Cover([pattern])
        under = [leaf for leaf in template.leaves if cover.first(leaf.key)]
        if len(under) < 2:
            return None
        whole = template.fold(pattern, under)
        template.leaves.append(whole)  # so that the template outlives its other leaves
        for leaf in under:
            self.drop(leaf)
        template.leaves.remove(whole)
        self.hold(whole, template)
        self.folded(whole)
        return whole

    def _fit(self, leaf: Leaf, shape: str, line: Line) -> None:
        """Write a leaf so that it fits one more shape of line, once for each."""
        if self._fitted.get(shape) is not leaf:
            self._learn(leaf, Spelling.of(line))
            if len(self._fitted) >= FITTED:
                self._fitted.clear()
            if len(shape) <= LONG:
                self._fitted[shape] = leaf

    def _learn(self, leaf: Leaf, spelling: Spelling) -> None:
        leaf.spelling = leaf.spelling.meet(spelling)
        if leaf.template is not None:
            leaf.template.learn(leaf.spelling.under(leaf.key, leaf.template.key))

    def _grouping(self, length: int) -> Grouping:
        grouping = self._lengths.get(length)
        if grouping is None:
            grouping = self._lengths[length] = Grouping(self._few)
        return grouping

    def _group(self, length: int) -> None:
        leaves, grouping = self.shelf.lengths[length], self._grouping(length)
        seeds = [key for key, leaf in leaves.items() if leaf.seeded]
        known = [key for key, leaf in leaves.items() if leaf.folded]
        groups = grouping.work_out(leaves, seeds, self._tau, self._few, known)
        name([[self.leaves[key] for key in group.keys] for group in groups], self._open)
        self._standing = None
        grouping.homes = {
            pattern: template
            for group in groups
            for pattern in group.patterns
            if (template := self.leaves[group.keys[0]].template)
        }
        self._stale.discard(length)

    def _open(self, key: Key) -> Template:
        template = self._by_id[self.born] = Template(self.born, key)
        self.born += 1
        if self._standing is not None:
            self._standing += 1
        return template
