"""The state of a parser as arrays and JSON, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .leaves import Leaf, Template
from .spelling import Spelling
from .templates import Templates

_NUMBERS = {"count": np.int64, "first_seen": np.int64, "last_seen": np.int64, "usage": np.float64}
_FLAGS = ("seeded", "folded")


def dump(templates: Templates) -> dict[str, NDArray[Any]]:
    """Leaves in the order in which they came, and the templates that hold them."""
    leaves = list(templates.leaves.values())
    columns: dict[str, NDArray[Any]] = {
        name: np.array([getattr(leaf, name) for leaf in leaves], kind)
        for name, kind in _NUMBERS.items()
    }
    for name in _FLAGS:
        columns[name] = np.array([getattr(leaf, name) for leaf in leaves], np.bool_)
    texts = {
        "leaves": [[leaf.key, *leaf.spelling, leaf.shape, leaf.example] for leaf in leaves],
        "homes": [leaf.template.id for leaf in leaves if leaf.template],
        "templates": [[held.id, held.key, held.aliases] for held in templates.held()],
    }
    columns["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    return columns


def restore(templates: Templates, columns: dict[str, NDArray[Any]], born: int) -> None:
    """Fill an empty set of templates with what was dumped."""
    templates.born = int(born)
    texts = json.loads(columns["texts"].tobytes())
    held: dict[int, Template] = {}
    for number, key, aliases in texts["templates"]:
        held[number] = Template(int(number), _words(key), aliases=[*map(int, aliases)])
        templates.restore(held[number])
    if held.keys() != set(texts["homes"]):
        raise ValueError("a template has no leaves, or a leaf no template")
    for row, (saved, home) in enumerate(zip(texts["leaves"], texts["homes"], strict=True)):
        leaf = _leaf(*saved)
        for name in (*_NUMBERS, *_FLAGS):
            setattr(leaf, name, columns[name][row].item())
        templates.hold(leaf, held[home])
    templates.settle()


def _leaf(
    key: list[str], places: list[int], spelt: list[str], marks: list[str], shape: str, example: str
) -> Leaf:
    spelling = Spelling(tuple(map(int, places)), _words(spelt), _words(marks))
    if not len(places) == len(spelt) == len(marks) - 1 or max(places, default=-1) >= len(key):
        raise ValueError("a leaf is not spelt as its key says")
    return Leaf(_words(key), spelling, str(shape), str(example), 0)


def _words(words: list[str]) -> tuple[str, ...]:
    return tuple(map(str, words))
