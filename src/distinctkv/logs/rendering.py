"""The text of templates and the values of their wildcards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from itertools import chain, takewhile
from typing import NamedTuple

from .tokenizer import WILD, Key, is_word

REST = "\ufdd8"  # the last token of a key that any further tokens may replace
# A private character between the common prefix and the common suffix of separators that differ.
GAP = "\ufdd9"
_CLOSING = {"'": "'", '"': '"', "(": ")", "[": "]", "{": "}"}
_word = re.compile(r"<\*>|\w+|\W")


class Rendering(NamedTuple):
    """What a template shows: ``separators[0] literals[0] separators[1] ... separators[-1]``."""

    literals: tuple[str, ...]
    separators: tuple[str, ...]

    def under(self, own: Key, pattern: Key) -> Rendering:
        """This rendering with wildcards where a pattern has one and the own key has none.

        >>> Rendering(("a", "b", "c"), ("", " ", " ", "")).under(tuple("abc"), ("a", REST)).text()
        'a <*>'
        """
        if own == pattern:
            return self
        if pattern[-1] == REST:
            n = len(pattern) - 1
            if own[-1] == REST and len(own) == len(pattern):
                n += 1
            start = Rendering(self.literals[:n], self.separators[: n + 1])
            found = start._wild(own[:n], pattern[:n])
            if n == len(pattern):
                return found
            return Rendering((*found.literals, WILD), (*found.separators, ""))
        return self._wild(own, pattern)

    def _wild(self, own: Key, pattern: Key) -> Rendering:
        literals = tuple(
            [
                WILD if there == WILD != here else text
                for text, here, there in zip(self.literals, own, pattern, strict=True)
            ]
        )
        return Rendering(literals, self.separators)

    def merge(self, other: Rendering) -> Rendering:
        """What two renderings share, so that the text fits the lines of both.

        Associative and commutative: neither the order of the lines nor their division among parsers
        matters.
        """
        if self == other:
            return self
        literals, separators = self.literals, self.separators
        if literals != other.literals:
            literals = tuple(map(_common_literal, literals, other.literals))
        if separators != other.separators:
            separators = tuple(map(_common_separator, separators, other.separators))
        return Rendering(literals, separators)

    def joined(self, own: Key) -> Rendering:
        """This rendering with one literal for each of the `runs` of its key."""
        spans = runs(own)
        literals = []
        for start, stop in spans:
            rest = zip(
                self.separators[start + 1 : stop], self.literals[start + 1 : stop], strict=True
            )
            literals.append(reduce(_append, chain.from_iterable(rest), self.literals[start]))
        separators = (*(self.separators[start] for start, _ in spans), self.separators[-1])
        return Rendering(tuple(literals), separators)

    def text(self) -> str:
        """The text of the template.

        >>> Rendering(("a", "<*>"), ("[", "=", "]")).text()
        '[a=<*>]'
        """
        text = self._joined()
        if GAP not in text:
            return text
        literals = [_show(one) for one in self.literals]
        around = zip(self.separators, ("", *literals), (*literals, ""), strict=True)
        return Rendering(tuple(literals), tuple([_separator(*one) for one in around]))._joined()

    def _joined(self) -> str:
        first, *others = self.separators
        return first + "".join(map(str.__add__, self.literals, others))


def _separator(separator: str, before: str, after: str) -> str:
    """A separator between two literals.

    If it is not always the same, a wildcard beside it takes the part that is not common.
    """
    head, gap, tail = separator.partition(GAP)
    if not gap or after.startswith(WILD):
        return head
    # Prefix and suffix may overlap: of both only one is shown.
    return tail if before.endswith(WILD) else head + WILD


def common(renderings: Sequence[tuple[Key, Rendering]]) -> Rendering:
    """What all share; of keys of several lengths the first and the last tokens that are equal.

    >>> one = ("a", "b"), Rendering(("a", "b"), ("", " ", ""))
    >>> two = ("a", "x", "y", "b"), Rendering(("a", "x", "y", "b"), ("", " ", " ", " ", ""))
    >>> common([one, two]).text()
    'a <*>b'
    """
    keys = [key for key, _ in renderings]
    if len({len(key) for key in keys}) > 1:  # they may differ in adjacent values only
        renderings = [(joined(key), one.joined(key)) for key, one in renderings]
        keys = [key for key, _ in renderings]
    if len({len(key) for key in keys}) == 1:
        pattern = tuple([one[0] if len({*one}) == 1 else WILD for one in zip(*keys, strict=True)])
        return reduce(Rendering.merge, (one.under(key, pattern) for key, one in renderings))
    n_first = n_equal(keys)
    n_last = min(n_equal([key[::-1] for key in keys]), min(map(len, keys)) - n_first)
    return reduce(Rendering.merge, (_ends(one, n_first, n_last) for _, one in renderings))


def runs(key: Key) -> list[tuple[int, int]]:
    """Tokens of a key, from and to: values with only marks between them are together.

    >>> runs(("install", "<*>", ":", "<*>", "now"))
    [(0, 1), (1, 4), (4, 5)]
    """
    found: list[tuple[int, int]] = []
    value = -1  # the run of the last value, if only marks came since then
    for place, token in enumerate(key):
        if token == WILD and value >= 0:
            found[value:] = [(found[value][0], place + 1)]
            continue
        if token == WILD:
            value = len(found)
        elif token == REST or is_word(token):
            value = -1
        found.append((place, place + 1))
    return found


def joined(key: Key) -> Key:
    """The key with one wildcard for each of its `runs`.

    >>> joined(("install", "<*>", ":", "<*>")), joined(("<*>", "is", "<*>"))
    (('install', '<*>'), ('<*>', 'is', '<*>'))
    """
    return tuple([key[start] for start, _ in runs(key)]) if key.count(WILD) > 1 else key


def _ends(one: Rendering, n_first: int, n_last: int) -> Rendering:
    """The first and the last tokens with a wildcard between."""
    n = len(one.literals)
    literals = (*one.literals[:n_first], WILD, *one.literals[n - n_last :])
    after = one.separators[n - n_last :] if n_last else ("",)
    if n == n_first + n_last:  # nothing between: one separator for two
        after = ("", *after[1:])
    return Rendering(literals, (*one.separators[: n_first + 1], *after))


def n_equal(keys: Iterable[Key]) -> int:
    """How many first tokens of all keys are equal."""
    return sum(1 for _ in takewhile(lambda one: len({*one}) == 1, zip(*keys, strict=False)))


def align(template: str, line: str) -> tuple[str, ...] | None:
    """The values in a line, one for each wildcard of a template; None if the line does not fit.

    >>> align("open <*> at <*>", "open my door at 7"), align("open <*>", "shut 7")
    (('my door', '7'), None)
    """
    first, *rest = template.split(WILD)
    if not rest:
        return () if line == template else None
    last = rest.pop()
    place, end = len(first), len(line) - len(last)
    if place > end or not line.startswith(first) or not line.endswith(last):
        return None
    found = []
    for part in rest:
        start = line.find(part, place, end)
        if start < 0:
            return None
        found.append(line[place:start])
        place = start + len(part)
    return (*found, line[place:end])


@lru_cache(1 << 12)
def _common_literal(ours: str, theirs: str) -> str:
    """What two texts of a value begin and end with, in whole words, and their least length.

    >>> _show(_common_literal("ann [preauth]", "bob7 [preauth]"))
    '<*> [preauth]'
    """
    if ours == theirs:
        return ours
    head, tail, length = _parts(ours)
    other, end, size = _parts(theirs)
    first, last = n_equal((head, other)), n_equal((tail[::-1], end[::-1]))
    texts = "".join(head[:first]), "".join(tail[len(tail) - last :]), str(min(length, size))
    return GAP.join(texts)


def _append(literal: str, more: str) -> str:
    """A literal with a separator or another literal behind it.

    >>> _append("a b", "c"), _show(_append(_common_literal("a b", "a c"), ":d"))
    ('a bc', 'a <*>:d')
    """
    if GAP not in literal + more:
        return literal + more
    head, tail, length = _parts(literal)
    other, end, size = _parts(more + GAP + "0" if more.count(GAP) == 1 else more)
    first = head if GAP in literal else head + other
    last = end if GAP in more else tail + end
    return GAP.join(("".join(first), "".join(last), str(length + size)))


def _parts(literal: str) -> tuple[Key, Key, int]:
    """The first and the last words of a literal, and how many it has at least."""
    head, *rest = literal.split(GAP)
    words = tuple(_word.findall(head))
    return (
        (words, tuple(_word.findall(rest[0])), int(rest[1])) if rest else (words, words, len(words))
    )


def _show(literal: str) -> str:
    """A literal, with a wildcard for what differs.

    Its first and last words may overlap in the shortest text: then the first are shown. Brackets
    and quotes are shown if they end in what is shown.
    """
    if GAP not in literal:
        return literal
    head, tail, length = _parts(literal)
    tail = tail if len(head) + len(tail) <= length else ()
    if not _balanced((*head, *tail)):
        head = next(head[:n] for n in range(len(head), -1, -1) if _balanced(head[:n]))
        tail = next(tail[n:] for n in range(len(tail) + 1) if _balanced(tail[n:]))
    return "".join(head).removesuffix(WILD) + WILD + "".join(tail).removeprefix(WILD)


def _balanced(words: Key) -> bool:
    """Whether every bracket and quote is closed.

    >>> _balanced(("(", "<*>", ")")), _balanced(("a", ")")), _balanced(("'", "b"))
    (True, False, False)
    """
    still_open: list[str] = []
    for word in words:
        if still_open and word == still_open[-1]:
            still_open.pop()
        elif word in _CLOSING:
            still_open.append(_CLOSING[word])
        elif word in _CLOSING.values():
            return False
    return not still_open


def _common_separator(ours: str, theirs: str) -> str:
    """The common prefix and the common suffix of two separators, with `GAP` between them."""
    if ours == theirs:
        return ours
    head, ours_gap, tail = ours.partition(GAP)
    other, theirs_gap, end = theirs.partition(GAP)
    tail, end = tail if ours_gap else head, end if theirs_gap else other
    return _common_prefix(head, other) + GAP + _common_prefix(tail[::-1], end[::-1])[::-1]


def _common_prefix(ours: str, theirs: str) -> str:
    return "".join(
        a for a, b in takewhile(lambda two: two[0] == two[1], zip(ours, theirs, strict=False))
    )
