"""The templates that a parser's leaves make up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .grouping import Grouping, gather, work_out
from .leaves import Leaf, Template
from .lines import Key, Line
from .naming import name
from .patterns import patterns
from .shelf import Shelf
from .spelling import Spelling
from .subsume import subsumed

SETTLED = 64  # leaves under a pattern, after which new values are counted and not kept
FITTED, LONG = 1 << 14, 1000  # shapes of lines remembered at most, and their characters
TOKENS = 1 << 16  # known before those are looked for that are no longer held
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
        self.lengths: dict[int, Grouping] = {}
        self._stale: set[int] = set()
        self._standing: int | None = 0
        self._roomy = TOKENS
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
        grouping = self.lengths.get(len(key))
        pattern = None if grouping is None else grouping.shown.pattern(key)
        if grouping is None or pattern is None:
            return Spot()
        home = grouping.homes.get(pattern)
        template = None if home is None else home.heir()
        return Spot(None, template if template and template.leaves else None, pattern)

    def place(self, line: Line, spot: Spot, example: str, now: int) -> Leaf:
        """The leaf of a line that belongs to this spot, opened if need be."""
        if spot.leaf is not None:
            if (shape := line.shape) != spot.leaf.shape:
                self._fit(spot.leaf, shape, line)
            return spot.leaf
        grouping = self.grouping(len(line.key))
        same = grouping.fixed is grouping.shown
        pattern = spot.pattern if same else grouping.fixed.pattern(line.key)
        if pattern and (settled := self._settled(pattern)) is not None:
            return settled
        leaf = Leaf.of(line, example, now)
        self.hold(leaf, spot.template)
        if spot.pattern and spot.template is None and leaf.template:
            grouping.homes[spot.pattern] = leaf.template
        grouping.due -= 1
        if grouping.due <= 0:
            self._regroup(len(line.key))
        elif pattern is None and (latest := grouping.look(line.key)):
            self._open_patterns(grouping, latest)
        return leaf

    def join(self, leaf: Leaf) -> None:
        """Take in a leaf from elsewhere: of another parser, or a seed."""
        spot = self.find(leaf.key)
        ours = spot.leaf
        pattern = self.grouping(len(leaf.key)).fixed.pattern(leaf.key)
        if ours is None and pattern and not leaf.seeded:
            ours = self._settled(pattern)
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
        if len(self.shelf.tokens) > self._roomy:
            self._forget_tokens()
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
        self.shelf.remove(leaf)
        self._stale.add(len(leaf.key))
        stood = template.final() is template
        template.lose(leaf)
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
        pattern = self.grouping(len(leaf.key)).fixed.pattern(leaf.key)
        return None if pattern is None else self._fold(pattern)

    def regroup(self) -> None:
        """Work out all templates, and go on from there."""
        for length in self.shelf.lengths:
            self._regroup(length)
        self.settle()

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

    def _settled(self, pattern: Key) -> Leaf | None:
        """The leaf that counts new values under a pattern, once it has seen many."""
        leaf = self.leaves.get(pattern)
        if leaf is not None and leaf.folded:
            return leaf
        load = self.grouping(len(pattern)).load
        load[pattern] += 1
        return self._fold(pattern) if load[pattern] > SETTLED else None

    def _fold(self, pattern: Key) -> Leaf | None:
        known = self.grouping(len(pattern)).fixed
        under = [self.leaves[k] for k in known.under(pattern, self.shelf.lengths[len(pattern)])]
        if len(under) < 2:
            return None
        template = self._merge(under)
        covering = {one for leaf in under for one in known.opened.all(leaf.key)}
        whole = Leaf.whole(pattern, under, tuple(sorted({pattern} | covering)))
        template.leaves.append(whole)  # so that the template outlives its other leaves
        for leaf in under:
            self.drop(leaf)
        template.leaves.remove(whole)
        self.hold(whole, template)
        self.grouping(len(pattern)).age += 1
        known.folded.add(pattern)
        self.grouping(len(pattern)).shown.folded.add(pattern)
        self.folded(whole)
        return whole

    def _merge(self, leaves: list[Leaf]) -> Template:
        """One template for all that hold these leaves."""
        held = {leaf.template.id: leaf.template for leaf in leaves if leaf.template}
        if len(held) > 1:
            name([[leaf for template in held.values() for leaf in template.leaves]], self._open)
            self._standing = None
        template = leaves[0].template
        assert template is not None
        return template

    def _open_patterns(self, grouping: Grouping, keys: list[Key]) -> None:
        """Open what patterns there are among some keys, long before all are grouped anew."""
        pattern = grouping.fixed.pattern
        free = [key for key in keys if key in self.leaves and pattern(key) is None]
        for group in gather(free, patterns(free, self._tau, self._few)):
            if group.patterns:
                template = self._merge([self.leaves[key] for key in group.keys])
                grouping.open(group.patterns, template)
                grouping.load.update(filter(None, map(pattern, group.keys)))

    def _forget_tokens(self) -> None:
        """Know no tokens but those of leaves and patterns that are held."""
        tokens = self.shelf.tokens
        tokens.clear()
        tokens.update(*self.leaves)
        for grouping in self.lengths.values():
            tokens.update(*grouping.patterns())
        self._roomy = max(TOKENS, 2 * len(tokens))

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

    def grouping(self, length: int) -> Grouping:
        """What is known of the leaves of one length."""
        grouping = self.lengths.get(length)
        if grouping is None:
            grouping = self.lengths[length] = Grouping(self._few)
        return grouping

    def _regroup(self, length: int) -> None:
        self._group(length)
        self.lengths[length].fix(self.shelf.lengths[length])

    def _group(self, length: int) -> None:
        leaves, grouping = self.shelf.lengths[length], self.grouping(length)
        seeds = [key for key, leaf in leaves.items() if leaf.seeded]
        folded = {key: leaf.folded for key, leaf in leaves.items() if leaf.folded}
        grouping.shown, groups = work_out(leaves, seeds, self._tau, self._few, folded)
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
