"""Log lines to measure on, and Drain3 set up to be measured."""

from __future__ import annotations

import csv
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_lowercase, digits
from typing import Any

# The masking of examples/drain3.ini in Drain3's repository (MIT licence).
MASKS = (
    (r"((?<=[^A-Za-z0-9])|^)(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))((?=[^A-Za-z0-9])|$)", "ID"),
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9a-f]{6,} ?){3,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9A-F]{4} ?){4,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
    (r"(?<=executed cmd )(\".+?\")", "CMD"),
)
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


def drain3(masked: bool = False, limit: int | None = None) -> Callable[[str], dict[str, Any]]:
    """Drain3's ``add_log_message``: as it comes, with its example masking, or with a limit too."""
    from drain3 import TemplateMiner
    from drain3.masking import MaskingInstruction
    from drain3.template_miner_config import TemplateMinerConfig

    logging.getLogger("drain3").setLevel(logging.ERROR)
    config = TemplateMinerConfig()
    if masked:
        config.masking_instructions = [MaskingInstruction(*mask) for mask in MASKS]
    config.drain_max_clusters = limit
    return TemplateMiner(config=config).add_log_message
