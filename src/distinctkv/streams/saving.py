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
    held = {}
    for number, key, aliases in texts["templates"]:
        held[number] = Template(int(number), _key(key), aliases=[int(alias) for alias in aliases])
        templates.restore(held[number])
    for row, (saved, home) in enumerate(zip(texts["leaves"], texts["homes"], strict=True)):
        key, places, spelt, marks, shape, example = saved
        spelling = Spelling(tuple(map(int, places)), _key(spelt), _key(marks))
        leaf = Leaf(_key(key), spelling, str(shape), str(example), 0)
        for name in (*_NUMBERS, *_FLAGS):
            setattr(leaf, name, columns[name][row].item())
        templates.hold(leaf, held[home])
    templates.settle()


def _key(words: list[str]) -> tuple[str, ...]:
    return tuple(map(str, words))
