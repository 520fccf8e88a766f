"""Log lines to measure on; Drain3 is set up as in study ``logs``."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_lowercase, digits

from distinctkv.studies.drain import drain3 as drain3

SENTENCES = (
    "session opened for {} by {} on host {}",
    "Accepted password for {} from {} port 22 ssh2",
    "container {} moved from state {} to state {}",
    "user {} added {} to group {} and went on",
    "could not find module {} needed by {}",
    "queue {} has a new consumer {} at priority 3",
)


@dataclass(frozen=True)
class System:
    """Lines of one system, and the true template of each, by id and as text."""

    name: str
    lines: list[str]
    groups: list[str]
    texts: list[str]


def systems() -> list[System]:
    """All systems under ``$DISTINCTKV_DATA/loghub_2k``."""
    folder = Path(os.environ.get("DISTINCTKV_DATA", "data")) / "loghub_2k"
    found = []
    for path in sorted(folder.glob("*/*_structured.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        columns = ([row[name] for row in rows] for name in ("Content", "EventId", "EventTemplate"))
        found.append(System(path.parent.name, *columns))
    if not found:
        raise SystemExit(f"no */*_structured.csv in {folder}; set DISTINCTKV_DATA to the data")
    return found


def mixed(lines: list[str], n_lines: int, torn: bool = False, seed: int = 0) -> Iterator[list[str]]:
    """Chunks of 10,000 lines, drawn from all systems, in which no number or name comes twice.

    Every digit is drawn anew; in half of the lines, numbers are ids of letters and digits instead;
    a quarter of the lines are sentences with fresh words for values. ``torn`` is a stream that no
    program writes: in half of the lines any one word, constant or not, is a fresh word.
    """
    random = Random(seed)

    def word(_: re.Match[str] | None = None) -> str:
        return "".join(random.choices(ascii_lowercase, k=8))

    def number(found: re.Match[str]) -> str:
        return "".join(random.choices(digits, k=len(found[0])))

    def mark(found: re.Match[str]) -> str:
        return "".join(random.choices(ascii_lowercase + digits, k=len(found[0]))) + "7"

    def line() -> str:
        if not torn and random.random() < 0.25:
            return re.sub(r"\{\}", word, random.choice(SENTENCES))
        fresh = number if torn or random.random() < 0.5 else mark
        text = re.sub(r"\d+", fresh, random.choice(lines))
        words = list(re.finditer(r"[A-Za-z]{4,}", text)) if torn else []
        if words and random.random() < 0.5:
            found = random.choice(words)
            return text[: found.start()] + word() + text[found.end() :]
        return text

    for _ in range(n_lines // 10_000):
        yield [line() for _ in range(10_000)]
