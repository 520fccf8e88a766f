"""What a snapshot is, and how to load it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PARSER = "log parser"
SEEN = "deduplicator"
DETECTOR = "novelty detector"
TALK = "language model cache"
MERGED = ("cache", PARSER, SEEN, DETECTOR)


def kind_of(path: Path) -> tuple[str, str]:
    """Kind and format version, as the file says; loading checks the rest of it."""
    from safetensors import SafetensorError, safe_open

    from ..snapshot import SnapshotError

    try:
        with safe_open(path, framework="np") as file:
            head = json.loads((file.metadata() or {})["distinctkv"])
            return str(head["kind"]), str(head["version"])
    except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
        raise SnapshotError(
            f"{path} is no snapshot of distinctkv: it is another kind of file, or damaged"
        ) from error


def threshold(held: Any) -> tuple[str, float]:  # noqa: ANN401
    """The number that decides what is a repeat, and its name."""
    if hasattr(held, "similarity"):
        return "similarity", held.similarity
    return "tau", held.concentration.tau


def load(path: Path, kind: str) -> Any:  # noqa: ANN401
    """What was saved, every byte of it checked; of other kinds, tensors and state."""
    if kind == "cache":
        from ..cache import Cache

        return Cache.load(path)
    if kind == PARSER:
        from ..logs import LogParser

        return LogParser.load(path)
    if kind == SEEN:
        from ..dedup import Deduplicator

        return Deduplicator.load(path)
    if kind == DETECTOR:
        from ..novelty import NoveltyDetector

        return NoveltyDetector.load(path)
    from .. import snapshot

    return snapshot.load(path, kind)


def tensors(path: Path) -> dict[str, str]:
    """Type and shape of every tensor of a snapshot, by name."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        slices = {name: file.get_slice(name) for name in sorted(file.keys())}
        return {name: f"{one.get_dtype()} {one.get_shape()}" for name, one in slices.items()}
