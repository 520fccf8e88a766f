"""A novelty detector as a snapshot, and back."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import snapshot
from ..cache import Cache, SlotTable
from ..dedup.encoders import Encoder, restore_encoder
from .quantile import Quantile
from .things import Moment, Thing

if TYPE_CHECKING:
    from .detector import NoveltyDetector

    N = TypeVar("N", bound=NoveltyDetector)

KIND = "novelty detector"


def save(detector: NoveltyDetector, path: str | os.PathLike[str]) -> None:
    """Write the cache, the known things, and the novelties that the threshold is made of."""
    detector._guard.check()
    tensors, state = detector._cache.state()
    things = sorted(detector._things.items())
    try:
        texts = json.dumps(
            [
                [slot, one.count, _written(one.first), _written(one.last), one.record]
                for slot, one in things
            ]
        ).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"only texts and JSON-like records can be saved: {error}") from error
    past = detector._past
    tensors["known"] = np.frombuffer(texts, np.uint8)
    tensors["past"] = np.array(past.recent, np.float64)
    snapshot.save(path, KIND, tensors, {"cache": state, **detector.setting})


def load(kind: type[N], path: str | os.PathLike[str], encode: Encoder | None) -> N:
    """The detector that was saved; a damaged or foreign file is refused."""
    tensors, state = snapshot.load(path, KIND)
    try:
        rows = json.loads(tensors.pop("known").tobytes())
        past = tensors.pop("past").tolist()
        cache = Cache.from_state(tensors, state["cache"])
        encode = restore_encoder(state["encode"], encode)
        detector = kind(encode=encode, field=state["field"], on_bad=cache.on_bad)
        detector._past = Quantile(state["quantile"], state["window"], past)
        detector._cache, slots = cache, cache.slots
        if [slot for slot, *_ in rows] != slots.ids.tolist() or cache.metric != "cosine":
            raise ValueError(f"{len(rows)} known things for {len(cache)} slots")
        detector._things = _things(rows, slots)
        if any(not 0 <= novelty <= 2 for novelty in past):
            raise ValueError("a novelty outside of [0, 2]")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise snapshot.SnapshotError(f"{path} does not describe a detector: {error!r}") from error
    return detector


def _things(rows: list[list[Any]], slots: SlotTable) -> dict[int, Thing]:
    numbers = zip(rows, slots.first_seen.tolist(), slots.last_seen.tolist(), strict=True)
    return {
        int(slot): Thing(count, _read(first, number), _read(last, latest), record)
        for (slot, count, first, last, record), number, latest in numbers
    }


def _written(moment: Moment) -> Any:  # noqa: ANN401
    """A time that was told, or else the number; one that could be taken for such is wrapped."""
    at = moment.at
    same = type(at) is int and at == moment.number
    return {"at": at} if same or _wrapped(at) else moment.told


def _read(told: Any, number: int) -> Moment:  # noqa: ANN401
    if _wrapped(told):
        return Moment(number, told["at"])
    return Moment(number, None if type(told) is int and told == number else told)


def _wrapped(at: Any) -> bool:  # noqa: ANN401
    return isinstance(at, dict) and at.keys() == {"at"}
