"""Lines without the words that were never seen: what is left says where a line belongs."""

from __future__ import annotations

import re
from collections.abc import Container

from .leaves import Leaf
from .lines import CALENDAR, MEANT
from .messages import NAMES
from .templates import Templates

BLANKED = "\ue003"  # a private character, as those of `words`
MEMO, LONG = 1 << 14, 1000  # skeletons remembered at most, and their characters
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
        if len(self._leaves) >= MEMO:
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
