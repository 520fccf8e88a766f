"""A novelty detector as a snapshot, and back."""

from __future__ import annotations

import json
import os
from dataclasses import astuple
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ... import snapshot
from ...memory import Cache
from ..dedup.records import Encoder
from ..dedup.saving import restored, setting
from .quantile import Quantile

if TYPE_CHECKING:
    from .detector import NoveltyDetector

    N = TypeVar("N", bound=NoveltyDetector)

KIND = "novelty detector"


def save(detector: NoveltyDetector, path: str | os.PathLike[str]) -> None:
    """Write the cache, the known things, and the novelties that the threshold is made of."""
    tensors, state = detector._cache._dump()
    try:
        texts = json.dumps(
            [[slot, *astuple(known)] for slot, known in detector.known.items()]
        ).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"only texts and JSON-like records can be saved: {error}") from error
    past = detector._past
    tensors["known"] = np.frombuffer(texts, np.uint8)
    tensors["past"] = np.array(past.recent, np.float64)
    kept = {"cache": state, "quantile": past.share, "window": past.window}
    snapshot.save(path, KIND, tensors, kept | setting(detector._reader))


def load(kind: type[N], path: str | os.PathLike[str], encode: Encoder | None) -> N:
    """The detector that was saved; a damaged or foreign file is refused."""
    from .detector import Known

    tensors, state = snapshot.load(path, KIND)
    try:
        rows = json.loads(tensors.pop("known").tobytes())
        past = tensors.pop("past").tolist()
        cache = Cache._restore(tensors, state["cache"])
        encode = restored(state["encode"]) if encode is None else encode
        detector = kind(encode=encode, field=state["field"])
        detector._past = Quantile(state["quantile"], state["window"], past)
        detector._cache = cache
        detector._known = {int(slot): Known(*known) for slot, *known in rows}
        if [*detector._known] != cache.slots.ids.tolist() or cache.metric != "cosine":
            raise ValueError(f"{len(rows)} known things for {len(cache)} slots")
        if any(not 0 <= novelty <= 2 for novelty in past):
            raise ValueError("a novelty outside of [0, 2]")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise snapshot.SnapshotError(f"{path} does not describe a detector: {error!r}") from error
    return detector
