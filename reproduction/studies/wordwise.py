"""The bare rule on log lines: the paper's parser, as far as it says what that is.

A line is a key and a template is a slot; there is nothing else. The paper names no similarity, so
there are three: the share of words that are equal, place by place; the same, with all words that
have a digit taken for one word; and the cosine between bags of words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain

import numpy as np

from distinctkv.cache import Cache
from distinctkv.logs.tokenizer import WILD
from distinctkv.policy import Concentration

Groups = list[tuple[int, int]]  # words in the line where they count, and the id of its slot


def in_place(lines: Sequence[str], tau: float) -> Groups:
    """Groups by the share of words that differ; lines of other lengths are never alike.

    >>> in_place(["open a", "open b", "shut all doors"], tau=0.5)
    [(2, 0), (2, 0), (3, 0)]
    """
    words = [line.split() for line in lines]
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for place, line in enumerate(words):
        by_length[len(line)].append(place)
    groups: Groups = [(0, 0)] * len(lines)
    for length, places in by_length.items():
        ids = _slots([Counter(enumerate(words[place])) for place in places], tau)
        for place, slot in zip(places, ids, strict=True):
            groups[place] = (length, slot)
    return groups


def numbers_alike(lines: Sequence[str], tau: float) -> Groups:
    """The same, where all words that have a digit are one word.

    >>> numbers_alike(["open a1", "open b2", "open c"], tau=0.3)
    [(2, 0), (2, 0), (2, 1)]
    """
    return in_place([masked(line) for line in lines], tau)


def bags(lines: Sequence[str], tau: float) -> Groups:
    """Groups by one less the cosine between the words of two lines, whatever their places.

    >>> bags(["open a door", "a door open", "shut"], tau=0.3)
    [(0, 0), (0, 0), (0, 1)]
    """
    return [(0, slot) for slot in _slots([Counter(line.split()) for line in lines], tau)]


SIMILARITIES: Mapping[str, Callable[[Sequence[str], float], Groups]] = {
    "numbers_alike": numbers_alike,
    "in_place": in_place,
    "bags": bags,
}


def masked(line: str) -> str:
    """The line with a wildcard for each word that has a digit.

    >>> masked("took 3 ms at 10:20")
    'took <*> ms at <*>'
    """
    return " ".join(WILD if any(map(str.isdigit, word)) else word for word in line.split())


def texts(lines: Sequence[str], groups: Groups) -> list[str]:
    """The template of each line: the words that all lines of its group share, place by place.

    >>> texts(["open a", "open b"], [(2, 0), (2, 0)])
    ['open <*>', 'open <*>']
    """
    shared: dict[tuple[int, int], list[str]] = {}
    for line, group in zip(lines, groups, strict=True):
        words = line.split()
        kept = shared.setdefault(group, words)
        shared[group] = [a if a == b else WILD for a, b in zip(kept, words, strict=True)]
    return [" ".join(shared[group]) for group in groups]


def _slots(lines: Sequence[Counter[Hashable]], tau: float) -> list[int]:
    """The slot of each line, in a cache under keys that count its words; no words are one word."""
    counts = [line or Counter([None]) for line in lines]
    columns = {word: column for column, word in enumerate(dict.fromkeys(chain(*counts)))}
    keys = np.zeros((len(counts), len(columns)), dtype=np.float32)
    for row, line in enumerate(counts):
        keys[row, [columns[word] for word in line]] = [*line.values()]
    ids: list[int] = Cache(Concentration.fixed(tau)).write(keys).tolist()
    return ids
