"""Patterns: keys with wildcards, and the evidence that opens them.

A key *covers* another if it has a wildcard wherever their tokens differ; then their lines share a
template. Some keys have wildcards from the start, as values are recognised by their form. Others
are opened by evidence: the more words are seen at one place between equal tokens, the likelier it
is that they are the values of one template rather than the words of several. This is the question
of a Dirichlet process with two hypotheses, asked of each place (see `Evidence`).

Evidence only grows with the set of keys, and so does the set of patterns. So neither the order of
the lines matters nor in which of several parsers they were.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import combinations, islice
from math import ceil
from operator import eq, xor
from typing import Any

from .rendering import REST
from .tokenizer import MESSAGE_WORD, WILD, Key, is_word

Node = dict[str | None, Any]  # a node of a trie: by token the next node; by None the key

MAX_TOKENS, MAX_WORDS = 80, 16  # longer keys open no pattern, or none with two wildcards at once
BEFORE_VALUES = frozenset((":", "is"))  # a word after one of these is more often a value
EMPTY = frozenset((":", "="))  # after one of these a value may be empty
MIN_EQUAL = 2  # words beside names of several parts, if two of these open a place
MANY_EQUAL = 5  # words beside which one different word less opens a place
# Words, and last parts of names, that say what happened rather than to what: alerts are for them.
# Past participles ("unpacked", "half-configured") and switches are never counted, outcomes not
# where few words are enough.
_participle = re.compile(r"[a-z]{2,}ed")
SWITCHES = frozenset("true false on off up down yes no ok enabled disabled".split())  # noqa: SIM905
OUTCOMES = frozenset(
    "pass fail failing failure fails success successful successfully error errors fatal critical "  # noqa: SIM905
    "warning timeout healthy unhealthy alive dead deny reject accept allow block drop valid "
    "invalid lost".split()
)
_MANY = (1 << 32) - 1
_NAMES = 1 << 32 | 1 << 64
_part = re.compile(r"[._-]")
# A name of several parts; the class of an exception says what happened.
_joined = re.compile(r"(?!.*(?:Error|Exception|Failed)$).*[^\W\d_][_.]\w")
MIN_HEAD = 2  # words before a colon after which any text may stand; one word names a component


class KeyTree:
    """A trie of keys; finds those that cover a key, and those that a key covers."""

    def __init__(self) -> None:
        self._root: Node = {}
        self._last: tuple[Key, list[Key]] = (), []  # a key, and those that cover it

    def add(self, key: Key) -> None:
        """Add a key."""
        node, self._last = self._root, ((), [])
        for token in key:
            node = node.setdefault(token, {})
        node[None] = key

    def remove(self, key: Key) -> None:
        """Remove a key that was added."""
        self._last = (), []
        path = [node := self._root]
        for token in key:
            path.append(node := node[token])
        del node[None]
        for above, token in zip(path[-2::-1], key[::-1], strict=True):
            if above[token]:
                return
            del above[token]

    def covering(self, key: Key) -> list[Key]:
        """The other keys that cover this one.

        >>> tree = KeyTree()
        >>> for known in ("a", "<*>"), ("<*>", "b"), ("a", "c"):
        ...     tree.add(known)
        >>> tree.covering(("a", "b"))
        [('<*>', 'b'), ('a', '<*>')]
        """
        if key == self._last[0]:
            return self._last[1]
        found: list[Key] = []
        length = len(key)
        todo: list[tuple[Node, int]] = [(self._root, 0)]
        while todo:
            node, place = todo.pop()
            while True:
                if REST in node and (place < length or key[-1] in EMPTY):
                    found.append(node[REST][None])
                if place == length:
                    if None in node:
                        found.append(node[None])
                    break
                token = key[place]
                place += 1
                same = node.get(token) if token != REST else None
                if token != WILD and WILD in node and is_word(token):
                    if same is not None:
                        todo.append((same, place))
                    node = node[WILD]
                elif same is not None:
                    node = same
                else:
                    break
        found = [other for other in found if other != key and _has_word(other)]
        self._last = key, found
        return found

    def covered(self, key: Key) -> list[Key]:
        """The other keys that this one covers."""
        found: list[Key] = []
        if (WILD not in key and REST not in key) or not _has_word(key):
            return found
        todo: list[tuple[Node, int]] = [(self._root, 0)]
        length = len(key)
        while todo:
            node, place = todo.pop()
            if place == length:
                if None in node:
                    found.append(node[None])
                continue
            token = key[place]
            if token == REST:
                found += _below(node, empty=key[place - 1] in EMPTY)
            elif token == WILD:
                after = key[place + 1] if place + 1 < length else None
                any_after = after in (WILD, REST)
                todo += [
                    (below, place + 1)
                    for other, below in node.items()
                    if other is not None
                    and (any_after or after in below)
                    and (other == WILD or is_word(other))
                ]
            elif token in node:
                todo.append((node[token], place + 1))
        return [other for other in found if other != key]


def _below(node: Node, *, empty: bool) -> list[Key]:
    """All keys below a node, and the one that ends there if so wanted."""
    found = []
    todo = [node]
    while todo:
        for token, value in todo.pop().items():
            if token is not None:
                todo.append(value)
            else:
                found.append(value)
    if not empty and None in node:
        found.remove(node[None])
    return found


def _has_word(key: Key) -> bool:
    return any(map(is_word, key))


class Evidence:
    """Counts the words seen at each place of the keys, and opens patterns.

    A place is a position in keys that are equal in all other tokens. k different words there are
    k templates that happen to be equal otherwise, or one template and k values. The first is the
    less likely the more words are equal: with n of them, each further word is worth
    ``tau (n + 1)`` of one that opens a pattern together with ``min_values - 1`` others (one less
    beside many words). Half of ``min_values`` is enough after a colon, "is" or an arrow, for the
    value of a field, and for names in capitals; a third of it for names of several parts
    (``door_key``). Past participles and words like "on" and "off" are not counted, nor outcomes in
    fields, after arrows, for names of several parts and beside many words. Two places may differ at
    once: then both need so many words, for which d = 2 places count as ``tau (n + d) / d``, or half
    of ``min_values`` that both have.

    Text of any length may stand after a colon at the end of a line: then the first words are
    counted, and those before the colon must be two or more, or one after a value (one word at the
    start is the name of a component).
    """

    def __init__(self, tree: KeyTree, tau: float, min_values: int) -> None:
        self._tree, self._tau, self._min_values = tree, tau, min_values
        self._few, self._fewest = ceil(min_values / 2), max(2, ceil(min_values / 3))
        self._words: dict[int, int] = {}  # by place, how many; names and those joined apart
        self._pairs: dict[int, int] = {}  # by pair of places, how many keys
        # By pair of places with enough keys, the words at each.
        self._pair_words: dict[int, tuple[Counter[str], Counter[str]]] = {}
        self._first: dict[int, dict[str, int]] = {}  # by text before a colon, the next tokens

    def add(self, key: Key) -> list[Key]:
        """Count a key; the patterns that it opens, or had opened before."""
        return self._update(key, 1)

    def remove(self, key: Key) -> None:
        """Count a key no longer; no pattern closes."""
        self._update(key, -1)

    def _update(self, key: Key, change: int) -> list[Key]:
        if not 0 < len(key) <= MAX_TOKENS or self._tau == 0:
            return []
        places, n_words = _places(key)
        hashes = [*map(hash, enumerate(key))]
        total = reduce(xor, hashes, len(key))
        others = [total ^ one for one in hashes]  # for each place a hash of all other tokens
        opened = self._count_words(key, places, n_words, others, change)
        if key[-1] != REST:
            for place, token in enumerate(key):
                if token in EMPTY:
                    opened += self._count_text(key, place, change)
        return opened + self._count_pairs(key, places, n_words, hashes, others, change)

    def _count_words(
        self, key: Key, places: Sequence[int], n_words: int, numbers: Sequence[int], change: int
    ) -> list[Key]:
        """Count the word at each of these places; the patterns with a wildcard there."""
        opened: list[Key] = []
        counts = self._words
        messages = n_words < len(places)
        for place in places:
            token = key[place]
            others = n_words - (not messages or token[0] == MESSAGE_WORD)
            if not others:
                continue
            number = numbers[place]
            weight = _kind(token)
            if weight & _NAMES and (not _in_text(key, place) or _names_component(key, place)):
                weight &= ~_NAMES  # a word as any other
            count = counts.get(number, 0) + change * weight
            if count:
                counts[number] = count
            else:
                counts.pop(number, None)
            n, names = count & _MANY, count >> 32 & _MANY
            needed = self._needed(1, others)
            if n >= self._fewest and (
                n >= needed
                or names >= self._few
                or (n >= self._few and place and key[place - 1] in BEFORE_VALUES)
                or (min(count >> 64 & _MANY, count >> 96) >= self._fewest and others >= MIN_EQUAL)
                or (count >> 96 >= needed - 1 and others >= MANY_EQUAL)
                or (
                    count >> 96 >= self._few
                    and (_is_field(key, place) or _follows_arrow(key, place))
                )
            ):
                opened.append((*key[:place], WILD, *key[place + 1 :]))
        return opened

    def _needed(self, differing: int, others: int) -> int:
        """Words that open so many places at once, beside so many equal ones."""
        part = differing / (self._tau * (differing + others))
        return 1 + (self._min_values - 1) * ceil(part)

    def _count_pairs(
        self,
        key: Key,
        places: Sequence[int],
        n_words: int,
        hashes: Sequence[int],
        others: Sequence[int],
        change: int,
    ) -> list[Key]:
        """Count the words at each two of these places; the patterns with wildcards at both."""
        opened: list[Key] = []
        if not 2 < n_words <= len(places) <= MAX_WORDS:
            return opened
        if n_words < len(places):  # of a message
            places = [place for place in places if key[place][:1] == MESSAGE_WORD]
        needed = self._needed(2, n_words - 2)
        pairs, pair_words = self._pairs, self._pair_words
        for one, two in combinations(places, 2):
            number = others[one] ^ hashes[two]
            count = pairs.get(number, 0) + change
            if count:
                pairs[number] = count
            else:
                del pairs[number]
            if number in pair_words or (change > 0 and count >= self._few):
                pattern = _opened(key, one, two)
                words = self._words_of(number, pattern, key, (one, two), change)
                if change > 0 and self._both_vary(words, needed):
                    opened.append(pattern)
        return opened

    def _both_vary(self, words: tuple[Counter[str], Counter[str]], needed: int) -> bool:
        """Whether each of two places has so many words, or they share some: from a to b, b to c."""
        many = min(map(len, words)) >= needed and all(_are_counted(part, needed) for part in words)
        return many or len(words[0].keys() & words[1].keys()) >= self._few

    def _words_of(
        self, number: int, pattern: Key, key: Key, places: tuple[int, int], change: int
    ) -> tuple[Counter[str], Counter[str]]:
        """The words at two places of keys that are equal otherwise, with the change of this one."""
        found = self._pair_words.get(number)
        if found is None:
            found = self._pair_words[number] = Counter(), Counter()
            keys = [key, *(other for other in self._tree.covered(pattern) if other != key)]
            keys = [
                other
                for other in keys
                if _opened(other, *places) == pattern
                and all(_is_marked(other[at]) == _is_marked(key[at]) for at in places)
            ]
        else:
            keys = [key]
        for words, place in zip(found, places, strict=True):
            for other in keys:
                words[other[place]] += change
                if not words[other[place]]:
                    del words[other[place]]
        if not found[0]:
            del self._pair_words[number]
        return found

    def _count_text(self, key: Key, place: int, change: int) -> list[Key]:
        """Count the token after a colon or "=", or none; the pattern for any text there."""
        head, rest = key[: place + 1], key[place + 1 :]
        n_words = _n_apart(head) + (WILD in head[:-2]) if key[place] == ":" else 0
        ends = rest in ((), (WILD,))
        if not (ends or n_words >= MIN_HEAD) or not _has_word(head):
            return []
        number = hash(head)
        first = self._first.setdefault(number, {})
        token = rest[0] if rest else ""
        if n_words >= MIN_HEAD:  # a quote or a bracket says nothing of the text in it
            token = next((one for one in rest if one == WILD or is_word(one)), token)
        count = first.get(token, 0) + change
        if count:
            first[token] = count
        else:
            del first[token]
            if not first:
                del self._first[number]
        least = self._min_values + (1 if n_words == MIN_HEAD else -1)
        any_text = n_words >= MIN_HEAD and len(first) - ("" in first) >= least
        maybe_empty = ends and "" in first and WILD in first
        return [(*head, REST)] if any_text or maybe_empty else []


def _places(key: Key) -> tuple[list[int], int]:
    """The places of words, and how many words are compared: those of a message, or all."""
    places = [place for place, token in enumerate(key) if is_word(token)]
    messages = sum([key[place][0] == MESSAGE_WORD for place in places])
    return places, messages or len(places)


def _opened(key: Key, one: int, two: int) -> Key:
    """The pattern with wildcards at two places of a key; the key itself if one is no word."""
    if not (is_word(key[one]) and is_word(key[two])):
        return key
    return (*key[:one], WILD, *key[one + 1 : two], WILD, *key[two + 1 :])


def _are_counted(words: Iterable[str], needed: int) -> bool:
    """Whether so many of these words are counted."""
    return len([*islice(filter(_kind, words), needed)]) == needed


@lru_cache(1 << 14)
def _kind(token: str) -> int:
    """1 for a word, with bit 32 for a name, 64 for one of several parts, 96 for no outcome."""
    word = token.replace(MESSAGE_WORD, "")
    last = _part.split(word)[-1]
    participle = _participle.fullmatch(last.lower()) is not None
    if last.lower() in SWITCHES or (participle and last.islower()):
        return 0
    joined = not word.isupper() and _joined.match(word) is not None
    name = word.isupper() or joined
    outcome = participle or last.lower() in OUTCOMES
    return 1 + (name << 32) + (joined << 64) + ((not outcome) << 96)


def _is_marked(token: str) -> bool:
    """Whether a token is a word of a message."""
    return token[:1] == MESSAGE_WORD


def _names_component(key: Key, place: int) -> bool:
    """Whether a place is that of the component in ``ERROR component: message``."""
    return key[place - 1].isupper() and place + 1 < len(key) and key[place + 1] == ":"


def _is_field(key: Key, place: int) -> bool:
    """Whether a place is that of a value before another field: ``name=value other=``."""
    return (
        1 < place < len(key) - 2
        and key[place - 1] in EMPTY
        and (key[place - 2] == WILD or is_word(key[place - 2]))
        and is_word(key[place + 1])
        and key[place + 2] in EMPTY
    )


def _follows_arrow(key: Key, place: int) -> bool:
    """Whether "->", "=>" or the like is before a place: what it points to is a value."""
    return place > 1 and key[place - 1] == ">" and key[place - 2][-1] in "-="


def _in_text(key: Key, place: int) -> bool:
    """Whether a word, a colon or "=" is before a place: not the start, a value or another mark."""
    before = key[place - 1] if place else ""
    return before in EMPTY or before.isspace() or is_word(before)


def _n_apart(head: Key) -> int:
    """Words that a blank or a value is before, in contrast to parts of one name."""
    pairs = zip((WILD, *head), head, strict=False)
    return sum([a == WILD or a.isspace() or is_word(a) for a, b in pairs if is_word(b)])


def novelty(key: Key, others: Iterable[tuple[Key, int]]) -> float:
    """Least part of its constants that another key of the same length does not share; or 1.

    The other keys come with the number of their constants.

    >>> novelty(tuple("abcd"), [(tuple("abxx"), 4), (tuple("xbcd"), 4)])
    0.25
    """
    words = [None if token == WILD else token for token in key]
    most = 0.0
    for other, constants in others:
        shared = sum(map(eq, words, other))
        if shared > most * constants:
            most = shared / constants
    return 1 - most
