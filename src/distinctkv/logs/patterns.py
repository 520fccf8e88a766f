"""Patterns: keys with wildcards, found by comparing the keys of one length.

`find_patterns` finds them, `PatternIndex` matches a key with them, `group_keys` groups the keys
that they link; `NearestKeys` and `find_subsumed` compare the keys of templates.

A *wildcard position* is a position at which otherwise equal keys differ. Its words are values

- if they are at least ``min_values`` different words (else they are constant text), or
- if one of them is already a wildcard, or
- if they vary freely of the words at two other such positions, and ``2 (min_values - 1)`` keys show
  it: a program that prints three switches does not have eight messages. Two positions vary *freely*
  if two words of one and two of the other occur in all four combinations.

Two keys may differ in at most a part ``tau`` of their constants; this is the `novelty` of one to
the other (paper, eq. 1, with equal tokens for the cosine). With twice the evidence (each position
takes twice as many words, or varies freely of another one) they may differ in ``2 tau``, and short
keys in one word. Words of a message field (see `tokenizer`) may differ in at most a part ``tau`` of
the message; this does not close a position that ``min_values`` words outside of messages opened.

A *pattern* is a key with wildcards at such positions. More keys open more patterns, so keys that
share a template go on sharing it, with three exceptions, all for patterns with several new
wildcards: of the keys that share a block of words only the first ``MAX_COMPARED`` by text are
compared; keys longer than ``MAX_TOKENS`` open patterns with one new wildcard only; and if one of
three free positions later takes ``min_values`` words, the other two become constant text again.
"""

# K keys, L tokens in a key, P pairs, T templates

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import reduce
from itertools import combinations, pairwise
from operator import eq, itemgetter, ne, xor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tokenizer import MESSAGE_WORD, WILD, Key

MAX_TOKENS = 128  # in longer keys only patterns with one new wildcard are sought
MAX_COMPARED = 256  # keys of a block that are compared pairwise
FEW_KEYS = 32  # of templates, compared one by one
MORE = 2  # times tau, with so many times the evidence

Tokens = NDArray[np.int64]
Trie = dict[str, Any]  # keys by token; a complete key is at END
END = ""  # no token is empty


class _Table(NamedTuple):
    """Patterns with constants at the same positions, by their constants."""

    n_constants: int
    get: Callable[[Key], object]
    patterns: dict[object, Key]


class PatternIndex:
    """Patterns of one length; finds those that match a key with one lookup per table.

    >>> index = PatternIndex([("a", "<*>", "c"), ("a", "b", "<*>"), ("a", "<*>", "<*>")])
    >>> index.matches(("a", "x", "c"))
    [('a', '<*>', '<*>'), ('a', '<*>', 'c')]
    """

    def __init__(self, patterns: Iterable[Key] = ()) -> None:
        self._by_first: defaultdict[str, list[_Table]] = defaultdict(list)
        self._tables: dict[tuple[str, tuple[int, ...]], _Table] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Key) -> None:
        """Add a pattern."""
        positions = tuple(place for place, token in enumerate(pattern) if token != WILD)
        first = pattern[0] if pattern else WILD
        table = self._tables.get((first, positions))
        if table is None:
            get = itemgetter(*positions) if positions else len
            table = self._tables[first, positions] = _Table(len(positions), get, {})
            insort(self._by_first[first], table, key=itemgetter(0))
        table.patterns[table.get(pattern)] = pattern

    def __iter__(self) -> Iterator[Key]:
        """All patterns."""
        return (one for table in self._tables.values() for one in table.patterns.values())

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._tables)

    def matches(self, key: Key) -> list[Key]:
        """All patterns that match a key: those with most wildcards first, then by text."""
        found = [
            (table.n_constants, pattern)
            for tables in self._tables_for(key)
            for table in tables
            if (pattern := table.patterns.get(table.get(key)))
        ]
        if len(found) > 1:
            found.sort()
        return [pattern for _, pattern in found]

    def widest(self, key: Key) -> Key | None:
        """The first of `matches`, without the others."""
        found: tuple[int, Key] | None = None
        for tables in self._tables_for(key):
            for n_constants, get, patterns in tables:
                if found is not None and n_constants > found[0]:
                    break
                pattern = patterns.get(get(key))
                if pattern is not None and (found is None or (n_constants, pattern) < found):
                    found = n_constants, pattern
        return None if found is None else found[1]

    def _tables_for(self, key: Key) -> tuple[list[_Table], list[_Table]]:
        """Tables of patterns that begin with the first token of a key, or with a wildcard."""
        first = key[0] if key else WILD
        wild = [] if first == WILD else self._by_first.get(WILD, [])
        return self._by_first.get(first, []), wild


class Patterns(NamedTuple):
    """The patterns of one key length, by where they come from."""

    seeds: PatternIndex  # given by the user
    collapsed: PatternIndex  # opened by keys that are no longer held
    opened: PatternIndex  # opened by keys

    @classmethod
    def empty(cls) -> Patterns:
        """No patterns yet."""
        return cls(PatternIndex(), PatternIndex(), PatternIndex())

    def match(self, key: Key) -> Key | None:
        """The narrowest seed that matches a key, or else the widest other pattern."""
        if self.seeds and (seeds := self.seeds.matches(key)):
            return seeds[-1]
        return (self.collapsed and self.collapsed.widest(key)) or self.opened.widest(key)

    def keys_under(self, pattern: Key, keys: Iterable[Key]) -> list[Key]:
        """The keys that a pattern matches, without those that belong to another seed."""
        index = PatternIndex([pattern])
        found = [key for key in keys if index.widest(key)]
        if self.seeds:
            seed = [pattern] if pattern in self.seeds else []
            found = [key for key in found if self.seeds.matches(key)[-1:] == seed]
        return found


class Group(NamedTuple):
    """Keys that share a template, and the patterns that link them."""

    keys: list[Key]
    patterns: list[Key]


def group_keys(
    keys: Collection[Key],
    seeds: Iterable[Key],
    tau: float,
    min_values: int,
    collapsed: Mapping[Key, Iterable[Key]] | None = None,
) -> tuple[Patterns, list[Group]]:
    """The patterns and the groups of keys of one length.

    Keys that match a seed are grouped by seed and open no patterns. ``collapsed`` gives the
    patterns of keys that stand for many that are no longer held.
    """
    index = PatternIndex(seeds)
    seeded: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
    free: list[Key] = []
    for key in keys:
        found = index.matches(key)
        (seeded[found[-1]].keys if found else free).append(key)
    for seed, group in seeded.items():
        group.patterns.append(seed)
    links = {key: collapsed[key] for key in free if key in collapsed} if collapsed else {}
    opened = find_patterns(free, tau, min_values).union(*links.values())
    patterns = Patterns(index, PatternIndex(links), PatternIndex(opened))
    return patterns, [*seeded.values(), *link_keys(free, opened, links)]


def link_keys(
    keys: Collection[Key],
    patterns: Collection[Key],
    links: Mapping[Key, Iterable[Key]] | None = None,
) -> list[Group]:
    """Group keys: a pattern that matches two keys puts them into one group (union-find).

    ``links`` gives further patterns of a key, which need not match it.

    >>> link_keys([("a", "x"), ("b", "y"), ("a", "z")], [("a", "<*>")])[0]
    Group(keys=[('a', 'x'), ('a', 'z')], patterns=[('a', '<*>')])
    """
    index = PatternIndex(patterns)
    parent: dict[Key, Key] = {}

    def root(key: Key) -> Key:
        while (above := parent.setdefault(key, key)) != key:
            parent[key] = key = parent[above]
        return key

    for key in keys:
        for pattern in (*index.matches(key), *(links or {}).get(key, ())):
            parent[root(pattern)] = root(key)
    groups: defaultdict[Key, Group] = defaultdict(lambda: Group([], []))
    for key in keys:
        groups[root(key)].keys.append(key)
    for pattern in sorted(parent.keys() & set(patterns)):
        groups[root(pattern)].patterns.append(pattern)
    return list(groups.values())


def common_key(keys: Iterable[Key]) -> Key:
    """Keys of one length as one, with wildcards where they differ.

    >>> common_key([("a", "b", "c"), ("a", "x", "c")])
    ('a', '<*>', 'c')
    """
    columns = zip(*keys, strict=True)
    return tuple(
        first if all(token == first for token in rest) else WILD for first, *rest in columns
    )


def novelty(key: Key, template: Key) -> float:
    """Part of the constants of a template that a key of the same length does not match.

    >>> novelty(("session", "closed", "for", "root"), ("session", "opened", "for", "<*>"))
    0.3333333333333333
    """
    constants = len(template) - template.count(WILD)
    shared: int = sum(map(eq, key, template))
    if constants < len(template) and WILD in key:
        shared -= sum(a == b == WILD for a, b in zip(key, template, strict=True))
    if constants == 0:
        return float(key != template)
    return (constants - shared) / constants


class NearestKeys:
    """Template keys of one length; finds the nearest to a key by comparing it with all of them.

    Beyond ``FEW_KEYS``, keys are columns of token hashes (0 for a wildcard), compared at once; a
    new key waits until a distance is asked for.
    """

    def __init__(self, length: int) -> None:
        self._keys: dict[int, tuple[Key, int]] = {}  # by id, with the number of constants
        self._waiting: dict[int, None] = {}  # ids of keys without a column
        self._column: dict[int, int] = {}
        self._ids: list[int] = []  # by column
        self._hashes = np.zeros((length, 1), np.int64)  # (L, T)
        self._n_constants = np.ones(1, np.int64)  # (T,)

    def put(self, number: int, key: Key) -> None:
        """Set the key of the template with this id."""
        self._keys[number] = key, len(key) - key.count(WILD) or 1
        self._waiting[number] = None

    def remove(self, number: int) -> None:
        """Remove the key of a template."""
        del self._keys[number]
        self._waiting.pop(number, None)
        column = self._column.pop(number, None)
        if column is not None:
            last, end = self._ids.pop(), len(self._ids)
            if last != number:
                self._ids[column], self._column[last] = last, column
                self._hashes[:, column] = self._hashes[:, end]
                self._n_constants[column] = self._n_constants[end]

    def novelty(self, key: Key) -> float:
        """Least part of its constants that a template does not share with a key; 1 for none."""
        if len(self._keys) <= FEW_KEYS:
            tokens = [None if token == WILD else token for token in key]
            rows = self._keys.values()
            return min(((n - sum(map(eq, tokens, one))) / n for one, n in rows), default=1.0)
        self._write()
        n_keys = len(self._ids)
        hashes = np.array([*map(hash, key)], np.int64)
        equal = self._hashes[:, :n_keys] == hashes[:, None]
        shared = np.add.reduce(equal, axis=0, dtype=np.int32)
        nearest = (shared / self._n_constants[:n_keys]).argmax()
        return novelty(key, self._keys[self._ids[nearest]][0])

    def _write(self) -> None:
        for number in self._waiting:
            key, n_constants = self._keys[number]
            column = self._column.setdefault(number, len(self._ids))
            if column == len(self._ids):
                self._ids.append(number)
                if column == self._hashes.shape[1]:
                    self._hashes = np.concatenate([self._hashes, self._hashes], axis=1)
                    self._n_constants = np.concatenate([self._n_constants, self._n_constants])
            self._hashes[:, column] = [0 if token == WILD else hash(token) for token in key]
            self._n_constants[column] = n_constants
        self._waiting.clear()


def find_patterns(keys: Collection[Key], tau: float, min_values: int) -> set[Key]:
    """All patterns that keys of one length open.

    >>> names = "ann", "bob", "cas", "dee", "eve"
    >>> keys = [("user", name, "logged", verb) for name in names for verb in ("in", "out")]
    >>> sorted(find_patterns(keys, tau=0.3, min_values=5))
    [('user', '<*>', 'logged', 'in'), ('user', '<*>', 'logged', 'out')]
    """
    if tau == 0:
        return set()
    short = {key for key in keys if len(key) <= MAX_TOKENS}
    return _with_one_wildcard(set(keys), tau, min_values) | _with_several(short, tau, min_values)


def _with_one_wildcard(keys: set[Key], tau: float, min_values: int) -> set[Key]:
    """Patterns with one new wildcard."""
    words: dict[tuple[Key, int], set[str]] = defaultdict(set)
    for key, place in _alike_but_one(keys):
        words[(*key[:place], WILD, *key[place + 1 :]), place].add(key[place])
    opened = set()
    for (pattern, _), taken in words.items():
        in_message = _is_message_position(taken, min_values)
        constants = _message_words(pattern) if in_message else len(pattern) - pattern.count(WILD)
        near = tau * (constants + 1) >= 1
        least = min_values if near else _more(min_values)
        if (near or constants) and _is_value(taken, least):
            opened.add(pattern)
    return opened


def _alike_but_one(keys: set[Key]) -> Iterator[tuple[Key, int]]:
    """Keys that equal another one except at this position, and a few whose hashes collide.

    The hash of a key is the exclusive or over its tokens, so leaving out a token costs one step.
    One position at a time: memory does not grow with the length of the keys.
    """
    totals = [(key, reduce(xor, map(hash, enumerate(key)), 0)) for key in keys]
    for place in range(max(map(len, keys), default=0)):
        alike: dict[int, list[Key]] = defaultdict(list)
        for key, total in totals:
            alike[total ^ hash((place, key[place]))].append(key)
        for group in alike.values():
            if len(group) > 1:
                yield from ((key, place) for key in group)


def _with_several(keys: set[Key], tau: float, min_values: int) -> set[Key]:
    """Patterns with several new wildcards: where some pair of keys differs."""
    candidates = common_of_pairs(keys, _max_difference(tau), min_values - 1)
    matched: dict[Key, list[Key]] = {one: [] for one in candidates}
    index = PatternIndex(candidates)
    for key in keys:
        for pattern in index.matches(key):
            matched[pattern].append(key)
    return {pattern for pattern in candidates if _is_open(matched[pattern], tau, min_values)}


def _is_open(keys: list[Key], tau: float, min_values: int) -> bool:
    """Whether the keys that a candidate matches show enough values at its wildcards."""
    columns = list(zip(*keys, strict=True))
    words = [set(column) for column in columns]
    differing = [place for place, taken in enumerate(words) if len(taken) > 1]
    narrow = [place for place in differing if not _is_value(words[place], min_values)]
    many = len(keys) >= MORE * (min_values - 1)
    if not all(many and _is_free(place, narrow, columns, 2) for place in narrow):
        return False
    near = len(differing) <= tau * sum(taken != {WILD} for taken in words)
    if in_message := sum(_is_message_position(words[place], min_values) for place in differing):
        message = sum(_message_words(taken) > 0 for taken in words)
        near = near and in_message <= tau * message
        if in_message > _max_difference(tau) * message:
            return False
    return near or all(
        len(words[place]) >= _more(min_values) or _is_free(place, differing, columns, 1)
        for place in differing
    )


def _is_free(place: int, others: list[int], columns: list[Key], wanted: int) -> bool:
    """Whether a position varies freely of so many others: all four combinations of two words."""
    found = 0
    for other in others:
        if other != place and found < wanted:
            beside: defaultdict[str, set[str]] = defaultdict(set)
            for word, neighbour in zip(columns[place], columns[other], strict=True):
                beside[word].add(neighbour)
            found += any(len(one & two) > 1 for one, two in combinations(beside.values(), 2))
    return found == wanted


def _is_value(words: set[str], least: int) -> bool:
    """Whether the words at a position are values."""
    return len(words) >= least or (len(words) > 1 and WILD in words)


def _more(min_values: int) -> int:
    """Different words that a position needs where keys differ in more than ``tau``."""
    return MORE * (min_values - 1) + 1


def _message_words(tokens: Iterable[str]) -> int:
    """Words of a message field among these tokens."""
    return sum(token[:1] == MESSAGE_WORD for token in tokens)


def _is_message_position(words: set[str], min_values: int) -> bool:
    """Whether a position has words of a message, and fewer than ``min_values`` others."""
    n_message = _message_words(words)
    return n_message > 0 and len(words) - n_message - (WILD in words) < min_values


def _max_difference(tau: float) -> float:
    """The part of their constants in which keys may differ with any evidence."""
    return min(MORE * tau, (1 + tau) / 2)


def common_of_pairs(keys: Collection[Key], tau: float, min_pairs: int = 1) -> set[Key]:
    """What pairs of keys that differ in two or more tokens have in common, with wildcards.

    A pair differs in at most a part ``tau`` of its constants. ``min_pairs`` pairs must have the
    same in common; one is enough if one key has a wildcard where the other has none.

    A pair that may differ in n tokens agrees in one of n + 1 blocks: only keys that share a block
    are compared.

    >>> keys = [tuple("abcdefg"), tuple("xbydefg")]
    >>> common_of_pairs(keys, tau=0.3)
    {('<*>', 'b', '<*>', 'd', 'e', 'f', 'g')}
    """
    length = max(map(len, keys), default=0)
    most = int(tau * length)
    found: set[Key] = set()
    if most < 2:
        return found
    ordered = sorted(keys)
    for start, stop in pairwise(length * block // (most + 1) for block in range(most + 2)):
        blocks: defaultdict[Key, list[Key]] = defaultdict(list)
        for key in ordered:
            blocks[key[start:stop]].append(key)
        for sharing in blocks.values():
            if len(sharing) > 1:
                compare = _compare if len(sharing) <= 8 else _compare_many
                found |= compare(sharing[:MAX_COMPARED], tau, min_pairs)
    return found


def _compare(keys: list[Key], tau: float, min_pairs: int) -> set[Key]:
    """Compare pairs one by one: for few keys this is faster than arrays."""
    pairs: Counter[Key] = Counter()
    for one, two in combinations(keys, 2):
        differ: int = sum(map(ne, one, two))
        if 1 < differ <= tau * len(one):
            shared = tuple(a if a == b else WILD for a, b in zip(one, two, strict=True))
            if differ <= tau * (len(one) - shared.count(WILD) + differ):
                wild = one.count(WILD) + two.count(WILD) > 2 * (shared.count(WILD) - differ)
                pairs[shared] += min_pairs if wild else 1
    return {shared for shared, count in pairs.items() if count >= min_pairs}


def _compare_many(keys: list[Key], tau: float, min_pairs: int) -> set[Key]:
    """Compare all pairs with arrays of token numbers."""
    numbers: dict[str, int] = {WILD: 0}
    tokens = np.array([[numbers.setdefault(token, len(numbers)) for token in key] for key in keys])
    wild = tokens == 0
    both = wild.astype(np.int64) @ wild.T  # (K, K) positions where both are wild
    differ = (tokens[:, None] != tokens).sum(axis=2)
    constants = tokens.shape[1] - both
    one, two = np.nonzero(np.triu((differ > 1) & (differ <= tau * constants)))
    if len(one) == 0:
        return set()
    shared = np.where(tokens[one] == tokens[two], tokens[one], 0)  # (P, L)
    n_wild = wild.sum(axis=1)
    weight = np.where(n_wild[one] + n_wild[two] > 2 * both[one, two], min_pairs, 1)
    names = list(numbers)
    rows = _frequent_rows(shared, weight, min_pairs)
    return {tuple(names[number] for number in row) for row in rows.tolist()}


def _frequent_rows(rows: Tokens, weight: Tokens, least: int) -> Tokens:
    """Distinct rows of enough weight, by hashes: sums of random numbers per position and token."""
    random = np.random.default_rng(0)
    hashes = random.integers(1 << 62, size=(rows.shape[1], int(rows.max()) + 1))
    total = hashes[np.arange(rows.shape[1]), rows].sum(axis=1)
    _, first, same = np.unique(total, return_index=True, return_inverse=True)
    return rows[first[np.bincount(same, weight) >= least]]


def find_subsumed(
    counts: Mapping[Key, int], ratio: float, max_extra: int, kept: Collection[Key] = ()
) -> dict[Key, Key]:
    """Template keys that another one stands for, because a value may have several words.

    Of templates that differ only in the number of adjacent wildcards, the shortest stands for all.
    A rare template is subsumed by a shorter one with ``ratio`` times its lines if it is the same
    but for up to ``max_extra`` more words at wildcards that constant text follows. Keys in ``kept``
    are not subsumed.

    >>> often, rare = ("open", "<*>", "failed"), ("open", "my", "<*>", "failed")
    >>> find_subsumed({often: 20, rare: 1}, ratio=10, max_extra=4)
    {('open', 'my', '<*>', 'failed'): ('open', '<*>', 'failed')}
    """
    parents = _merge_adjacent_wildcards(key for key in counts if key not in kept)
    totals: Counter[Key] = Counter()
    for key, count in counts.items():
        totals[parents.get(key, key)] += count
    trie = _build_trie(key for key, count in totals.items() if count >= ratio and WILD in key[:-1])
    for key, count in totals.items():
        if key not in kept and WILD in key:
            shorter = ((totals[one], one) for one in _shorter_keys(trie, key, max_extra))
            total, parent = max(shorter, default=(0, key))
            if parent != key and total >= ratio * count:
                parents[key] = parent
    return {key: _root(parents, key) for key in parents}


def _merge_adjacent_wildcards(keys: Iterable[Key]) -> dict[Key, Key]:
    """The shortest key for each that has more wildcards beside a wildcard."""
    shortest: dict[Key, Key] = {}
    parents: dict[Key, Key] = {}
    for key in sorted(keys, key=lambda key: (len(key), key)):
        before = ("", *key)
        one = tuple(t for t, last in zip(key, before, strict=False) if t != WILD or last != WILD)
        if (first := shortest.setdefault(one, key)) != key:
            parents[key] = first
    return parents


def _root(parents: Mapping[Key, Key], key: Key) -> Key:
    while key in parents:
        key = parents[key]
    return key


def _build_trie(keys: Iterable[Key]) -> Trie:
    trie: Trie = {}
    for key in keys:
        node = trie
        for token in key:
            node = node.setdefault(token, {})
        node[END] = key
    return trie


def _shorter_keys(trie: Trie, key: Key, max_extra: int) -> Iterator[Key]:
    """Keys in the trie that are this key with fewer words at wildcards, except the last token.

    A step descends by one token. ``spare`` are the extra words that wildcards may still take;
    ``exact`` says that the last step took one token only.
    """
    length = len(key)
    todo = [(trie, 0, max_extra, True)]
    done = set()
    while todo:
        node, place, spare, exact = todo.pop()
        if place == length:
            if exact and spare < max_extra and END in node:
                yield node[END]
            continue
        token = key[place]
        if token != WILD and token in node:
            todo.append((node[token], place + 1, spare, True))
        if WILD in node:
            below = node[WILD]
            for more in range(min(spare, length - place - 1) + 1):
                state = (id(below), place + more, exact := more == 0 and token == WILD)
                if state not in done:
                    done.add(state)
                    todo.append((below, place + more + 1, spare - more, exact))
