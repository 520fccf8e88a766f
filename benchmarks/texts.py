"""Texts with near-duplicates among them: log lines, paragraphs of novels, or made-up sentences."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

from reproduction.data.download import folders

N_TEXTS = 20_000


class Texts(NamedTuple):
    """Texts to de-duplicate, and where they are from."""

    name: str
    texts: list[str]


def edited(text: str, draw: random.Random) -> str:
    """A near-duplicate: one character in fifty is another one."""
    letters = list(text)
    for _ in range(max(1, len(text) // 50)):
        letters[draw.randrange(len(letters))] = draw.choice("abcdefghijklmnop")
    return "".join(letters)


def mixed(texts: Sequence[str], n_texts: int, seed: int = 0) -> list[str]:
    """A third of the texts come again as they were, a third edited; in random order."""
    draw = random.Random(seed)
    some = [*texts[: n_texts * 3 // 5]]
    draw.shuffle(some)
    again = [
        text if draw.random() < 0.5 else edited(text, draw) for text in some[: n_texts * 2 // 5]
    ]
    some += again
    draw.shuffle(some)
    return some


def log_lines() -> Texts | None:
    """Lines of all Loghub systems at hand, in random order."""
    files = sorted((folders()[0] / "loghub_2k").rglob("*_2k.log"))
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    random.Random(0).shuffle(lines)
    return Texts("log lines", lines[:N_TEXTS]) if len(lines) >= 10_000 else None


def paragraphs() -> Texts | None:
    """Paragraphs of novels, and near-duplicates of some."""
    path = folders()[0] / "text" / "english_novels_100.tar.xz"
    if not path.exists():
        return None
    found: list[str] = []
    with tarfile.open(path) as books:
        for book in books:
            if (file := books.extractfile(book)) is not None:
                text = file.read().decode("utf-8-sig").replace("\r\n", "\n")
                found += [part for part in text.split("\n\n") if 40 < len(part) < 2000]
            if len(found) >= 2 * N_TEXTS:
                break
    return Texts("paragraphs", mixed(found, N_TEXTS))


def generated() -> Texts:
    """Sentences of made-up words, and near-duplicates of some."""
    draw = random.Random(1)
    words = ["".join(draw.choices("aeioubcdfglmnprst", k=draw.randint(2, 9))) for _ in range(5000)]
    made = [" ".join(draw.choices(words, k=draw.randint(6, 20))) for _ in range(N_TEXTS)]
    return Texts("generated", mixed(made, N_TEXTS))
