"""The state of a job: a de-duplicator, and in its note how far the job is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..snapshot import SnapshotError
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


@contextmanager
def restoring(state: Path | None) -> Iterator[None]:
    """Refuse a note that does not say how far a job was."""
    try:
        yield
    except SnapshotError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise SnapshotError(
            f"the state {state} does not say how far it was ({error!r}); delete it to start anew"
        ) from error


def resumes(note: dict[str, Any], form: str, field: str | None, state: Path | None) -> bool:
    """Whether a note says how far a job was; that of other records is refused."""
    if "form" not in note:
        return False
    if (note["form"], note["field"]) != (form, field):
        raise SnapshotError(
            f"the state {state} was begun with {note['form']} and the field {note['field']!r}; "
            "go on with those, or name another state"
        )
    return True
