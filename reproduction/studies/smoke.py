"""Every study in seconds: the same code on so little that its numbers mean nothing.

A smoke run shows that a study still runs, writes its result and has a number for each of its
claims. No claim is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from . import load

N_SEEDS = 2
STEPS = 2  # of every training
# Other constants of the studies that train, and what they are in a smoke run.
SMALLER: Mapping[str, Mapping[str, Any]] = {
    "gates": {"TEST_STREAMS": 2, "STREAMS": 1},
    "hybrid": {"TEST_STREAMS": 8, "STREAMS": 2},
    "five_models": {"STREAMS": 2, "TEST_BATCHES": 1},
}


@contextmanager
def smaller(name: str) -> Iterator[None]:
    """The study with its constants as in a smoke run."""
    study = load(name)
    steps = {constant: STEPS for constant in vars(study) if constant.endswith("STEPS")}
    changed = {**steps, **SMALLER.get(name, {}), **_sizes(name)}
    before = {constant: getattr(study, constant) for constant in changed}
    try:
        for constant, value in changed.items():
            setattr(study, constant, value)
        yield
    finally:
        for constant, value in before.items():
            setattr(study, constant, value)


def _sizes(name: str) -> Mapping[str, Any]:
    """What is smaller in studies whose sizes are no plain numbers."""
    if name in ("gates", "five_models"):
        trainings = load(name).TRAININGS  # type: ignore[attr-defined]
        return {"TRAININGS": tuple(replace(one, steps=min(one.steps, STEPS)) for one in trainings)}
    if name == "mqar":
        from .mqar_models import SMALL

        tiny: Mapping[str, Any] = {
            "width": 16,
            "head": 16,
            "states": (4, 4),
            "items": (2,),
            "tokens": 16,
            "batch": 2,
        }
        asked = ((2, 16), (2, 64), (4, 32), (6, 48), (8, 64), (2, 8), (6, 24))
        size = replace(SMALL, **tiny, steps=STEPS, asked=asked)
        return {"size_of": lambda scale: size, "n_sequences": lambda tokens: 1}
    if name == "stress":
        from .stress import CONDITIONS

        smallest = {one.name: one.streams[min(one.streams)] for one in CONDITIONS}
        conditions = (
            replace(one, streams=dict.fromkeys(one.streams, smallest[one.name]))
            if one.heavy
            else one
            for one in CONDITIONS
        )
        return {"CONDITIONS": tuple(conditions)}
    return {}
