"""Templates that are one, except that a value was several words long in a few lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from .lines import Key
from .words import WILD


def subsumed(
    counts: Mapping[Key, int], rare: float, gap: int, kept: Collection[Key] = ()
) -> dict[Key, Key]:
    """Rare templates that a frequent one covers if one of its values is several words long.

    The longer one has up to ``gap`` words more, at a wildcard that constant text follows, and the
    frequent one has ``rare`` times its lines. Templates in ``kept`` stay what they are.

    >>> often, seldom = ("open", "<*>", "failed"), ("open", "my", "<*>", "failed")
    >>> subsumed({often: 20, seldom: 1}, rare=10, gap=4)
    {('open', 'my', '<*>', 'failed'): ('open', '<*>', 'failed')}
    """
    ends: defaultdict[tuple[int, str, str], list[Key]] = defaultdict(list)
    for key, count in counts.items():
        if count >= rare and WILD in key[:-1]:
            ends[len(key), key[0], key[-1]].append(key)
    into: dict[Key, Key] = {}
    for key, count in counts.items():
        if key in kept or not key:
            continue
        words = set(key)
        wider = [
            (counts[template], template)
            for extra in range(1, gap + 1)
            for first in {key[0], WILD}
            for template in ends.get((len(key) - extra, first, key[-1]), ())
            if counts[template] >= rare * count
            and words.issuperset(template)
            and _embeds(template, key)
        ]
        if wider:
            into[key] = max(wider)[1]
    return {key: _last(into, key) for key in into}


def _last(into: Mapping[Key, Key], key: Key) -> Key:
    while key in into:
        key = into[key]
    return key


def _embeds(template: Key, key: Key) -> bool:
    """Whether the key is the template with more words at wildcards other than the last token."""
    spread = [0]  # how many extra words may have been taken so far
    extra = len(key) - len(template)
    for place, token in enumerate(template):
        if token == WILD and place < len(template) - 1:
            spread = list(range(spread[0], extra + 1))
        else:
            spread = [more for more in spread if key[place + more] == token]
        if not spread:
            return False
    return extra in spread
