"""A de-duplicator as a snapshot, and back."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from ... import snapshot
from ...memory import Cache
from .encoding import NGrams
from .records import Encoder, Reader
from .shelf import Shelf

if TYPE_CHECKING:
    from .deduplicator import Deduplicator

    D = TypeVar("D", bound=Deduplicator)

KIND = "deduplicator"


class Absent:
    """Stands for an encoder that was not given when a file was loaded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, _: Any) -> NoReturn:  # noqa: ANN401
        """Say what is missing."""
        raise TypeError(
            f"this de-duplicator was saved with the encoder {self.name}, which a file cannot hold; "
            "give it again: Deduplicator.load(path, encode=...)"
        )


def setting(reader: Reader) -> dict[str, Any]:
    """How records are compared."""
    encode = reader.encode
    known = asdict(encode) if isinstance(encode, NGrams) else _name(encode)
    return {"encode": known, "field": reader.field}


def restored(known: dict[str, int] | str) -> Encoder:
    """The encoder of a setting, or what stands for it."""
    return NGrams(**known) if isinstance(known, dict) else Absent(str(known))


def save(seen: Deduplicator, path: str | os.PathLike[str]) -> None:
    """Write the cache, and beside it the number and the record of each slot."""
    tensors, state = seen._shelf.cache._dump()
    seen._shelf.prune()
    held = [seen._shelf.held[slot] for slot in sorted(seen._shelf.held)]
    try:
        texts = json.dumps(held).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"only texts and JSON-like records can be saved: {error}") from error
    tensors["records"] = np.frombuffer(texts, np.uint8)
    kept = {"similarity": seen.similarity, "cache": state, "note": seen.note}
    snapshot.save(path, KIND, tensors, kept | setting(seen._reader))


def load(kind: type[D], path: str | os.PathLike[str], encode: Encoder | None) -> D:
    """The de-duplicator that was saved; a damaged or foreign file is refused."""
    tensors, state = snapshot.load(path, KIND)
    try:
        held = json.loads(tensors.pop("records").tobytes())
        cache = Cache._restore(tensors, state["cache"])
        policy = cache.concentration
        seen = kind(
            state["similarity"],
            encode=restored(state["encode"]) if encode is None else encode,
            field=state["field"],
            budget=policy.base,
            on_bad=cache.on_bad,
        )
        if seen._shelf.cache.concentration != policy or cache.metric != "cosine":
            raise ValueError(f"a similarity of {seen.similarity} and {policy}")
        seen._shelf = Shelf(cache, _checked(cache, held))
        seen.note = dict(state["note"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise snapshot.SnapshotError(
            f"{path} does not describe a de-duplicator: {error!r}"
        ) from error
    return seen


def note(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The note in a file."""
    held = snapshot.load(path, KIND)[1].get("note")
    return held if isinstance(held, dict) else {}


def _checked(cache: Cache, held: list[Any]) -> dict[int, tuple[int, Any]]:
    """The records of a cache's slots, if they are."""
    ids = cache.slots.ids.tolist()
    rows = [(int(number), record) for number, record in held]
    numbers = [number for number, _ in rows]
    if len(rows) != len(ids) or not all(0 <= number < cache.seen for number in numbers):
        raise ValueError(f"{len(rows)} records for {len(ids)} slots")
    return dict(zip(ids, rows, strict=True))


def _name(encode: Encoder) -> str:
    if isinstance(encode, Absent):
        return encode.name
    inner = getattr(encode, "__func__", encode)
    kind = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{kind.__module__}.{kind.__qualname__}"
