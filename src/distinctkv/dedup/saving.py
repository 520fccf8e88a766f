"""A de-duplicator as a snapshot, and back."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict
from functools import partial
from operator import is_
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import snapshot
from ..cache import Cache
from .encoding import NGrams
from .records import Absent, Encoder, Reader
from .shelf import Shelf

if TYPE_CHECKING:
    from .deduplicator import Deduplicator

    D = TypeVar("D", bound=Deduplicator)

KIND = "deduplicator"


def setting(reader: Reader) -> dict[str, Any]:
    """How records are compared."""
    return {"encode": _known(reader.encode), "field": reader.field}


def restored(known: dict[str, int] | str, given: Encoder | None) -> Encoder:
    """The encoder given, that of a setting, or what stands for it."""
    if given is None:
        return NGrams(**known) if isinstance(known, dict) else Absent(str(known))
    if callable(given) and (name := _known(given)) != known:
        warnings.warn(
            f"this was saved with the encoder {known}, and {name} is given; if they do not encode "
            "alike, what is kept cannot be compared with what comes",
            stacklevel=4,
        )
    return given


def check_one(ours: Encoder, theirs: Encoder) -> None:
    """Refuse two functions of one name, as lambdas are; of other encoders the name must do."""
    kinds = (FunctionType, partial)
    if not isinstance(ours, kinds) or not isinstance(theirs, kinds):
        return
    (code, held), (other, holds) = _made(ours), _made(theirs)
    if code != other or not all(map(is_, held, holds)):
        raise ValueError(
            f"the encoders are two functions of the name {_name(ours)}, and may not encode alike; "
            "give both the same function"
        )


def save(seen: Deduplicator, path: str | os.PathLike[str]) -> None:
    """Write the cache, and beside it the number and the record of each slot."""
    seen._shelf.whole.check()
    tensors, state = seen._shelf.cache._dump()
    seen._shelf.prune()
    slots = sorted(seen._shelf.held)
    check_fit(slots, tensors)
    held = [seen._shelf.held[slot] for slot in slots]
    try:
        texts = json.dumps(held).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"only texts and JSON-like records can be saved: {error}") from error
    tensors["records"] = np.frombuffer(texts, np.uint8)
    kept = {"similarity": seen.similarity, "cache": state, "note": seen.note}
    snapshot.save(path, KIND, tensors, kept | setting(seen._reader))


def check_fit(slots: list[int], tensors: dict[str, NDArray[Any]]) -> None:
    """Refuse to write what could not be loaded again: things for other slots than there are."""
    ids = tensors["ids"].tolist() if "ids" in tensors else []
    if slots != ids:
        raise RuntimeError(
            f"{len(slots)} records for {len(ids)} slots: a change was interrupted, so nothing is "
            "saved; load the last snapshot and go on from its `seen`"
        )


def load(kind: type[D], path: str | os.PathLike[str], encode: Encoder | None) -> D:
    """The de-duplicator that was saved; a damaged or foreign file is refused."""
    tensors, state = snapshot.load(path, KIND)
    try:
        held = json.loads(tensors.pop("records").tobytes())
        cache = Cache._restore(tensors, state["cache"])
        policy = cache.concentration
        seen = kind(
            state["similarity"],
            encode=restored(state["encode"], encode),
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


def _known(encode: Encoder) -> dict[str, int] | str:
    """How an encoder is written down: ours by its sizes, others by their name."""
    return asdict(encode) if isinstance(encode, NGrams) else _name(encode)


def _name(encode: Encoder) -> str:
    if isinstance(encode, Absent):
        return encode.name
    inner = getattr(encode, "__func__", encode)
    kind = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{kind.__module__}.{kind.__qualname__}"


def _made(function: FunctionType | partial[Any]) -> tuple[Any, list[Any]]:
    """What a function does, and what it does it with."""
    if isinstance(function, partial):
        given = function.keywords
        return (function.func, len(function.args), [*given]), [*function.args, *given.values()]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    given = function.__kwdefaults__ or {}
    return function.__code__, [*cells, *(function.__defaults__ or ()), *given.values()]
