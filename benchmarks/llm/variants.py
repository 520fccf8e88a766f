"""The variants of ours that are tried; the first is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from distinctkv.hf import Care

from .recipe import Recipe

QUARTER, HALF = Care(importance=0.25), Care(importance=0.5)
LAST: Literal["last"] = "last"
FIRST: Mapping[str, Recipe] = {
    "ours": Recipe(),
    "ours, importance .25": Recipe(QUARTER),
    "ours, importance .5": Recipe(HALF),
    "ours, importance 1": Recipe(Care(importance=1.0)),
    "ours, cap 4": Recipe(Care(cap=4)),
    "ours, importance .5, cap 4": Recipe(Care(importance=0.5, cap=4)),
    "ours, count .5": Recipe(count=0.5),
    "ours, count 0": Recipe(count=0.0),
    "ours, last": Recipe(key=LAST),
    "ours, last, cap 4": Recipe(Care(cap=4), key=LAST),
    "ours, last, count .5": Recipe(key=LAST, count=0.5),
    "ours, value own": Recipe(value="own"),
    "ours, peak .5": Recipe(peak=0.5),
    "ours, peak .5, last": Recipe(peak=0.5, key=LAST),
    "ours, importance .5, last": Recipe(HALF, key=LAST),
    "ours, importance .5, last, own": Recipe(HALF, key=LAST, value="own"),
    "ours, importance .5, heaviest": Recipe(HALF, key="heaviest"),
    "ours, importance .5, attended": Recipe(Care(importance=0.5, attended=True)),
    "ours, importance .5, last, attended": Recipe(Care(importance=0.5, attended=True), key=LAST),
}
# What helped in the first round, in more settings and together.
SECOND: dict[str, Recipe] = {
    "ours": Recipe(),
    "ours, importance .25": Recipe(QUARTER),
    "ours, horizon 1024, attended": Recipe(Care(horizon=1024, attended=True)),
}
for n in (1024, 512, 2048, 4096):
    SECOND |= {
        f"ours, horizon {n}": Recipe(Care(horizon=n)),
        f"ours, horizon {n}, importance .25": Recipe(Care(importance=0.25, horizon=n)),
        f"ours, horizon {n}, importance .25, attended": Recipe(
            Care(importance=0.25, horizon=n, attended=True)
        ),
    }
VARIANTS = {**FIRST, **SECOND}


def _sizes(horizon: int, importance: float, tighten: float) -> tuple[str, Recipe]:
    names = {"horizon": horizon, "importance": importance, "tighten": tighten}
    told = "".join(f", {name} {at:g}".replace(" 0.", " .") for name, at in names.items() if at)
    return told, Recipe(Care(importance=importance, tighten=tighten, horizon=horizon))


def _sized(
    *some: tuple[int, float, float, tuple[float, ...]],
) -> dict[str, tuple[Recipe, tuple[float, ...]]]:
    found = [(_sizes(*one[:3]), one[3]) for one in some]
    return {name: (recipe, at) for (name, recipe), at in found}


SIZES: Mapping[str, tuple[Recipe, tuple[float, ...]]] = {
    "": (Recipe(), (0.5, 1.0, 2.0)),
    ", importance .5": (Recipe(HALF), (0.5, 1.0, 2.0)),
    ", horizon 1024, importance .25, attended": (
        Recipe(Care(importance=0.25, horizon=1024, attended=True)),
        (1.0, 1.5),
    ),
    **_sized(
        (1024, 0, 0, (0.5, 1.0, 2.0)),
        (1024, 0, 0.25, (1.0,)),
        (1024, 0.25, 0, (0.5, 1.0, 1.5, 2.0)),
        (1024, 0.25, 0.25, (1.0, 1.5, 2.0)),
        (1024, 0.5, 0, (1.0, 2.0)),
        (2048, 0.25, 0, (1.0, 1.5)),
        (2048, 0.25, 0.25, (1.5,)),
    ),
}
# Thresholds that are chosen from; the others are there to be named.
SIZED = ("threshold 1", *(f"threshold {at:g}{name}" for name, (_, some) in SIZES.items()
         if "horizon" in name for at in some))  # fmt: skip
