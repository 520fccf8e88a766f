"""The state of a parser as arrays and JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .budget import Budget
from .leaves import Leaf, Template
from .spelling import Spelling
from .templates import Templates

_NUMBERS = {"count": np.int64, "first_seen": np.int64, "last_seen": np.int64, "usage": np.float64}


def dump(templates: Templates) -> dict[str, NDArray[Any]]:
    """Leaves in the order in which they came, and the templates that hold them."""
    leaves, held = list(templates.leaves.values()), templates.held()
    homes = {leaf.key: [one.id, n] for one in held for n, leaf in enumerate(one.leaves)}
    columns: dict[str, NDArray[Any]] = {
        name: np.array([getattr(leaf, name) for leaf in leaves], kind)
        for name, kind in _NUMBERS.items()
    }
    columns["seeded"] = np.array([leaf.seeded for leaf in leaves], np.bool_)
    texts = {
        "leaves": [
            [leaf.key, *leaf.spelling, leaf.shape, leaf.example, leaf.folded] for leaf in leaves
        ],
        "homes": [homes[leaf.key] for leaf in leaves],  # the template, and the place in it
        "templates": [[one.id, one.key, one.aliases, one.told] for one in held],
        "standing": [[one.id, [part.id for part in one.parts]] for one in held if one.parts],
        "into": [[one.id, one.final().id] for one in held if one.final() is not one],
        "lengths": [[length, grouping.state()] for length, grouping in templates.lengths.items()],
    }
    columns["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    return columns


def restore(templates: Templates, columns: dict[str, NDArray[Any]], born: int) -> None:
    """Fill an empty set of templates with what was dumped."""
    templates.born = int(born)
    texts = json.loads(columns["texts"].tobytes())
    held = {int(number): _template(int(number), *row) for number, *row in texts["templates"]}
    ids = [number for one in held.values() for number in (one.id, *one.aliases)]
    if len(set(ids)) < len(ids) or not all(0 <= number < templates.born for number in ids):
        raise ValueError("an id was never given, or given twice")
    if held.keys() != {home for home, _ in texts["homes"]}:
        raise ValueError("a template has no leaves, or a leaf no template")
    if (columns["count"] < 0).any() or np.isnan(columns["usage"]).any():
        raise ValueError("a leaf was used less than never")
    for template in held.values():
        templates.restore(template)
    places = {}
    for row, (saved, (home, place)) in enumerate(zip(texts["leaves"], texts["homes"], strict=True)):
        leaf = _leaf(*saved)
        for name in (*_NUMBERS, "seeded"):
            setattr(leaf, name, columns[name][row].item())
        if leaf.key in templates.leaves or len(leaf.key) != len(held[home].key):
            raise ValueError("two leaves have one key, or a leaf is not as long as its template")
        templates.hold(leaf, held[home])
        places[leaf.key] = int(place)
    for template in held.values():
        template.leaves.sort(key=lambda leaf: places[leaf.key])
    _stand(held, texts["standing"], dict(texts["into"]))
    for length, state in texts["lengths"]:
        leaves = templates.shelf.lengths[int(length)].values()
        seeds = [leaf.key for leaf in leaves if leaf.seeded]
        grouping = templates.grouping(int(length))
        grouping.restore(state, seeds, int(length), held)
        templates.shelf.tokens.update(*grouping.patterns())


def check(templates: Templates, budget: Budget, seen: int) -> None:
    """Every line is in a leaf or forgotten, and the last of them is not yet to come."""
    known = sum(leaf.count for leaf in templates.leaves.values()) + budget.forgotten
    if seen != known or budget.heat_after > seen:
        raise ValueError(f"{seen} lines were seen, {known} are accounted for")


def _stand(held: dict[int, Template], standing: list[Any], into: dict[int, int]) -> None:
    """Let templates stand for others as they did; some of those may have no leaves any more."""
    if into.keys() & into.values():
        raise ValueError("a template is part of one that is itself part of another")
    for number, wider in into.items():
        held[number].into = held[wider]
    for number, parts in standing:
        held[number].parts = [held.get(part) or Template(int(part), ()) for part in parts]


def _template(number: int, key: list[str], aliases: list[int], told: str | None) -> Template:
    told = None if told is None else str(told)
    return Template(number, _words(key), aliases=[*map(int, aliases)], told=told)


def _leaf(
    key: list[str],
    places: list[int],
    spelt: list[str],
    marks: list[str],
    shape: str,
    example: str,
    folded: list[list[str]],
) -> Leaf:
    spelling = Spelling(tuple(map(int, places)), _words(spelt), _words(marks))
    if not len(places) == len(spelt) == len(marks) - 1 or not _within(places, len(key)):
        raise ValueError("a leaf is not spelt as its key says")
    if any(len(pattern) != len(key) for pattern in folded):
        raise ValueError("a leaf stands for a pattern of another length")
    patterns = tuple(map(_words, folded))
    return Leaf(_words(key), spelling, str(shape), str(example), 0, folded=patterns)


def _within(places: list[int], length: int) -> bool:
    return all(-1 <= place < length for place in places)


def _words(words: list[str]) -> tuple[str, ...]:
    return tuple(map(str, words))
