"""The state of a job: a de-duplicator, and in its note how far the job is."""

from __future__ import annotations

from pathlib import Path

from ...snapshot import SnapshotError
from .deduplicator import Deduplicator

NOTE = "distinctkv dedup"  # what a job keeps in the note; other keys are not its own


def write_state(seen: Deduplicator, state: Path | None) -> None:
    """Save a de-duplicator with its note, if there is to be a state."""
    if state is None:
        return
    try:
        seen.save(state)
    except OSError as error:
        raise SnapshotError(f"cannot write {state}: {error.strerror}") from error


def fresh(seen: Deduplicator, state: Path | None) -> bool:
    """Whether a state has nothing in it but a claim, or is not there yet."""
    mere = seen.seen == 0 and [*seen.note] == [NOTE] and "form" not in seen.note[NOTE]
    return state is not None and (mere or not state.exists())
