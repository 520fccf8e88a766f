"""Templates that are one, except that a value was several words long in some lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from .lines import Key
from .words import WILD

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
