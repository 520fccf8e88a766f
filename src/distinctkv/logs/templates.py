"""The templates that a parser's leaves make up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain, islice
from math import exp, inf, log1p
from typing import Any, NamedTuple, Self

from .patterns import Cover, novelty, patterns
from .rendering import Spelling
from .tokenizer import WILD, Key, Line

# Usage that decays with every line, stored so that nothing is touched while it decays.


def both(one: float, two: float) -> float:
    """Two stored usages together.

    >>> both(0.0, 0.0), both(-inf, 3.0), both(900.0, 0.0)
    (0.6931471805599453, 3.0, 900.0)
    """
    low, high = (one, two) if one < two else (two, one)
    return high if low == -inf else high + log1p(exp(low - high))


# What a log parser remembers: a leaf for each distinct key, and templates that hold leaves.


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


# Leaves of one length, and the patterns that gather them into templates.

LATEST = 16  # times the fewest leaves: no more of the latest are looked at


class Group(NamedTuple):
    """Keys that share a template, and the patterns by which they do."""

    keys: list[Key]
    patterns: list[Key]


class Known(NamedTuple):
    """The patterns of one length: those that were given as seeds, and those that keys opened."""

    seeds: Cover
    folded: Cover  # opened by keys that are no longer held
    opened: Cover

    def pattern(self, key: Key) -> Key | None:
        """The widest pattern that covers a key, or the narrowest of those given as seeds."""
        if self.seeds and (seeds := self.seeds.all(key)):
            return seeds[-1]
        return (self.folded and self.folded.first(key)) or self.opened.first(key)

    def under(self, pattern: Key, keys: Iterable[Key]) -> list[Key]:
        """The keys that a pattern covers; a seed, before all others, those it is narrowest for."""
        cover = Cover([pattern])
        found = [key for key in keys if cover.first(key)]
        if self.seeds:
            seed = [pattern] if pattern in self.seeds else []
            found = [key for key in found if self.seeds.all(key)[-1:] == seed]
        return found


def gather(
    keys: Collection[Key], opened: Collection[Key], links: Mapping[Key, Iterable[Key]] | None = None
) -> list[Group]:
    """Keys by the template they share: a pattern that covers two of them links them.

    ``links`` are patterns that covered what a key stands for, and may not cover the key.

    >>> gather([("a", "x"), ("b", "y"), ("a", "z")], [("a", "<*>")])[0]
    Group(keys=[('a', 'x'), ('a', 'z')], patterns=[('a', '<*>')])
    """
    cover = Cover(opened)
    parent: dict[Key, Key] = {}

    def root(key: Key) -> Key:
        while (above := parent.setdefault(key, key)) != key:
            parent[key] = key = parent[above]
        return key

    for key in keys:
        for pattern in (*cover.all(key), *(links or {}).get(key, ())):
            parent[root(pattern)] = root(key)
    groups: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
    for key in keys:
        groups[root(key)].keys.append(key)
    for pattern in sorted(parent.keys() & set(opened)):
        groups[root(pattern)].patterns.append(pattern)
    return list(groups.values())


def common(keys: Iterable[Key]) -> Key:
    """What keys of one length have in common, with wildcards where they differ.

    >>> common([("a", "b", "c"), ("a", "x", "c")])
    ('a', '<*>', 'c')
    """
    places = zip(*keys, strict=True)
    return tuple(
        first if all(token == first for token in rest) else WILD for first, *rest in places
    )


def work_out(
    keys: Collection[Key],
    seeds: Iterable[Key],
    tau: float,
    few: int,
    links: Mapping[Key, Iterable[Key]] | None = None,
) -> tuple[Known, list[Group]]:
    """The patterns of keys of one length, and their groups; what fits a seed is kept out of others.

    Keys with ``links`` stand for keys that are no longer held, and which opened those patterns.
    """
    known = Cover(seeds)
    given: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
    free: list[Key] = []
    for key in keys:
        covering = known.all(key)
        (given[covering[-1]].keys if covering else free).append(key)
    for seed, group in given.items():
        group.patterns.append(seed)
    links = {key: links[key] for key in free if key in links} if links else {}
    opened = patterns(free, tau, few).union(*links.values())
    return Known(known, Cover(links), Cover(opened)), [
        *given.values(),
        *gather(free, opened, links),
    ]


class Grouping:
    """What was worked out for the leaves of one length, and when to do so again.

    Templates are made by the patterns in ``shown``, which are worked out anew whenever someone asks
    for templates. Values are given up by those in ``fixed``, which change with the lines alone, so
    that to ask changes no leaf that comes later; only ids may become one sooner.
    """

    def __init__(self, few: int) -> None:
        self.due = self._least = 4 * few  # leaves that may open before all is worked out again
        self.shown = self.fixed = Known(Cover(), Cover(), Cover())
        self.age = 0  # how often what is fixed has changed
        self.homes: dict[Key, Template] = {}  # by pattern that is shown
        self.load: Counter[Key] = Counter()  # leaves by the pattern that is fixed
        self.latest: list[Key] = []  # keys since then that no pattern covers

    def fix(self, keys: Collection[Key]) -> None:
        """Go on with what is shown for these keys."""
        self.fixed, self.latest = self.shown, []
        self.age += 1
        self.due = max(self._least, len(keys))
        self.load = Counter(pattern for key in keys if (pattern := self.fixed.pattern(key)))

    def patterns(self) -> Iterator[Key]:
        """All patterns, fixed and shown."""
        return chain(*self.fixed, *self.shown)

    def look(self, key: Key) -> list[Key]:
        """One more key that no pattern covers; if it is time to, the latest to look at together.

        Of every 16 (four times ``few``) the 16, of every 64 the 64, and so on.
        """
        self.latest.append(key)
        rounds, rest = divmod(len(self.latest), self._least)
        if rest:
            return []
        size = 1
        while size < LATEST and rounds % (4 * size) == 0:
            size *= 4
        return self.latest[-size * self._least :]

    def state(self) -> list[Any]:
        """What a snapshot keeps; the seeds are known from their leaves."""
        fixed, shown = (
            [[*patterns] for patterns in known[1:]] for known in (self.fixed, self.shown)
        )
        heirs = ((pattern, home.heir()) for pattern, home in self.homes.items())
        homes = [[pattern, heir.id] for pattern, heir in heirs if heir.leaves]
        counts = [*self.load.items()]
        return [self.due, *fixed, counts, self.latest, fixed != shown and shown, homes]

    def restore(
        self, state: list[Any], seeds: list[Key], length: int, held: Mapping[int, Template]
    ) -> None:
        """Go on from a snapshot."""
        due, folded, opened, load, latest, shown, homes = state
        read = partial(_key, length=length)

        def known(folded: list[Any], opened: list[Any]) -> Known:
            return Known(Cover(seeds), Cover(map(read, folded)), Cover(map(read, opened)))

        self.fixed = self.shown = known(folded, opened)
        if shown:
            self.shown = known(*shown)
        self.homes = {read(pattern): held[number] for pattern, number in homes}
        if any(len(home.key) != length for home in self.homes.values()):
            raise ValueError(f"a pattern of {length} words is of a template of another length")
        self.load = Counter({read(key): int(count) for key, count in load})
        self.due, self.latest = int(due), [*map(read, latest)]

    def open(self, patterns: Iterable[Key], template: Template) -> None:
        """Know patterns of this template from now on."""
        self.age += 1
        for pattern in patterns:
            self.homes[pattern] = template
            self.fixed.opened.add(pattern)
            self.shown.opened.add(pattern)


def _key(words: list[str], length: int) -> Key:
    if len(words) != length:
        raise ValueError(f"a pattern for keys of {length} words has {len(words)}")
    return tuple(map(str, words))


# Which template keeps its id when leaves are grouped anew.


def name(groups: list[list[Leaf]], open_: Callable[[Key], Template]) -> None:
    """Put each group of leaves into one template: the oldest of those they are in, or a new one.

    A template that is left without leaves becomes part of the one that its first leaf went to.
    """
    for leaves in groups:
        leaves.sort(key=lambda leaf: leaf.first_seen)
    groups.sort(key=lambda leaves: leaves[0].first_seen)
    homes = (leaf.template for leaves in groups for leaf in leaves)
    free = {template.id: template for template in homes if template}
    firsts = {number: template.leaves[0] for number, template in free.items()}
    for leaves in groups:
        ids = [leaf.template.id for leaf in leaves if leaf.template]
        oldest = min((number for number in ids if number in free), default=None)
        key = common(leaf.key for leaf in leaves)
        template = open_(key) if oldest is None else free.pop(oldest)
        template.reshape(key, leaves)
    for number, template in free.items():
        heir = firsts[number].template
        assert heir is not None
        heir.inherit(template)


# Where a parser keeps its leaves: by key, by length, and by what a new one may be near to.

NEAR = 32  # keys among which the novelty of a new one is sought


class Shelf:
    """Leaves by key, in the order in which they came."""

    def __init__(self) -> None:
        self.leaves: dict[Key, Leaf] = {}
        self.lengths: defaultdict[int, dict[Key, Leaf]] = defaultdict(dict)
        self.tokens: set[str] = set()  # of all keys, and of some that are gone
        self.n_seeds = 0
        self._near: defaultdict[tuple[int, str], dict[Key, None]] = defaultdict(dict)

    def put(self, leaf: Leaf) -> None:
        """Keep one more leaf."""
        key = leaf.key
        self.leaves[key] = self.lengths[len(key)][key] = leaf
        self.tokens.update(key)
        self.n_seeds += leaf.seeded
        self._near[_nearby(key)][key] = None

    def remove(self, leaf: Leaf) -> None:
        """Keep a leaf no longer."""
        key = leaf.key
        del self.leaves[key], self.lengths[len(key)][key]
        self.n_seeds -= leaf.seeded
        del (near := self._near[_nearby(key)])[key]
        if not near:
            del self._near[_nearby(key)]

    def novelty(self, key: Key) -> float:
        """Distance of a key from the nearest of its length and first word; 1 if there is none.

        Of very many only the oldest are looked at.
        """
        near = islice(self._near.get(_nearby(key), ()), NEAR)
        return min((novelty(key, other) for other in near), default=1.0)


def _nearby(key: Key) -> tuple[int, str]:
    return len(key), key[0] if key else ""


# Templates that are one, except that a value was several words long in some lines.

Tree = dict[str, Any]  # the templates that go on with each token; one that ends is at END
END = ""  # no token is empty


def subsumed(
    counts: Mapping[Key, int], rare: float, gap: int, kept: Collection[Key] = ()
) -> dict[Key, Key]:
    """Templates that another stands for, as one of its values may be several words long.

    Of templates that differ in how many wildcards stand side by side, the shortest is for all. A
    rare one may also have other words there, up to ``gap`` more, at a wildcard that constant text
    follows, if the frequent one has ``rare`` times its lines. Those in ``kept`` stay what they are.

    >>> often, seldom = ("open", "<*>", "failed"), ("open", "my", "<*>", "failed")
    >>> subsumed({often: 20, seldom: 1}, rare=10, gap=4)
    {('open', 'my', '<*>', 'failed'): ('open', '<*>', 'failed')}
    """
    into = _side_by_side(key for key in counts if key not in kept)
    totals: Counter[Key] = Counter()
    for key, count in counts.items():
        totals[into.get(key, key)] += count
    tree = _tree(key for key, count in totals.items() if count >= rare and WILD in key[:-1])
    for key, count in totals.items():
        if key not in kept and WILD in key:
            wider = ((totals[one], one) for one in _shorter(tree, key, gap))
            most = max(wider, default=(0, key))
            if most[1] != key and most[0] >= rare * count:
                into[key] = most[1]
    return {key: _last(into, key) for key in into}


def _side_by_side(keys: Iterable[Key]) -> dict[Key, Key]:
    """Keys that are another with more wildcards beside a wildcard."""
    shortest: dict[Key, Key] = {}
    into: dict[Key, Key] = {}
    for key in sorted(keys, key=lambda key: (len(key), key)):
        before = ("", *key)
        one = tuple(t for t, last in zip(key, before, strict=False) if t != WILD or last != WILD)
        if (first := shortest.setdefault(one, key)) != key:
            into[key] = first
    return into


def _last(into: Mapping[Key, Key], key: Key) -> Key:
    while key in into:
        key = into[key]
    return key


def _tree(keys: Iterable[Key]) -> Tree:
    tree: Tree = {}
    for key in keys:
        node = tree
        for token in key:
            node = node.setdefault(token, {})
        node[END] = key
    return tree


def _shorter(tree: Tree, key: Key, gap: int) -> Iterator[Key]:
    """Templates that are this key with fewer words at wildcards other than the last token.

    A step goes down by a token; ``spare`` are the extra words that wildcards may still take, and
    ``whole`` says that the last step took just the token of the template.
    """
    length = len(key)
    todo = [(tree, 0, gap, True)]
    done = set()
    while todo:
        node, place, spare, whole = todo.pop()
        if place == length:
            if whole and spare < gap and END in node:
                yield node[END]
            continue
        token = key[place]
        if token != WILD and token in node:
            todo.append((node[token], place + 1, spare, True))
        if WILD in node:
            below = node[WILD]
            for more in range(min(spare, length - place - 1) + 1):
                state = (id(below), place + more, whole := more == 0 and token == WILD)
                if state not in done:
                    done.add(state)
                    todo.append((below, place + more + 1, spare - more, whole))


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
