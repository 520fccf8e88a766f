"""Studies that train: where they run, on how many seeds, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter

from . import load
from .result import Result, Row, Series
from .shelf import conclude, unmeasured
from .study import Scale

SEEDS = 5  # as the paper: the first five of those asked for, and three in a quick run


@dataclass(frozen=True, slots=True)
class Told:
    """What a study has measured, and what it says of that."""

    rows: Sequence[Row]
    reading: tuple[str, ...]
    headings: Mapping[str, str]
    series: tuple[Series, ...] = ()


def device() -> str:
    """The graphics card if there is one, else the processor: ``cuda``, ``cpu``.

    ``absent`` without torch. It stands among a study's settings.
    """
    if find_spec("torch") is None:
        return "absent"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def n_seeds(scale: Scale) -> int:
    """How many of the seeds are used."""
    return max(3, scale.of(SEEDS))


def result_of(
    name: str, seeds: Sequence[int], scale: Scale, tell: Callable[[tuple[int, ...]], Told]
) -> Result:
    """The result of what a study tells of the seeds that it uses; without torch, of nothing."""
    study = load(name)
    settings = study.settings(scale)
    if find_spec("torch") is None:
        return unmeasured(name, settings, seeds, ("torch",))
    started, used = perf_counter(), tuple(seeds)[: int(str(settings["seeds_used"]))]
    told = tell(used)
    result = Result(
        study=name,
        title=study.TITLE,
        question=study.QUESTION,
        reading=told.reading,
        rows=tuple(told.rows),
        settings=settings,
        seeds=used,
        series=told.series,
        headings=told.headings,
    )
    return conclude(result, perf_counter() - started)
