"""The variants of ours that are tried; the first is the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from .recipe import Recipe, policy


def _careful(horizon: int, importance: float, recent: int | None = None) -> tuple[str, Recipe]:
    """A recipe with all three, and its name."""
    told = f"horizon {horizon}, importance {importance:g}, attended".replace(" 0.", " .")
    made = Recipe(
        policy(importance=importance, horizon=horizon, attention_mean=True), recent=recent
    )
    return told + (f", recent {recent}" if recent else ""), made


QUARTER, HALF = policy(importance=0.25), policy(importance=0.5)
LAST: Literal["last"] = "last"
FIRST: Mapping[str, Recipe] = {
    "ours": Recipe(),
    "ours, importance .25": Recipe(QUARTER),
    "ours, importance .5": Recipe(HALF),
    "ours, importance 1": Recipe(policy(importance=1.0)),
    "ours, count .5": Recipe(count=0.5),
    "ours, count 0": Recipe(count=0.0),
    "ours, last": Recipe(key=LAST),
    "ours, last, count .5": Recipe(key=LAST, count=0.5),
    "ours, value own": Recipe(value="own"),
    "ours, peak .5": Recipe(peak=0.5),
    "ours, peak .5, last": Recipe(peak=0.5, key=LAST),
    "ours, importance .5, last": Recipe(HALF, key=LAST),
    "ours, importance .5, last, own": Recipe(HALF, key=LAST, value="own"),
    "ours, importance .5, heaviest": Recipe(HALF, key="heaviest"),
    "ours, importance .5, attended": Recipe(policy(importance=0.5, attention_mean=True)),
    "ours, importance .5, last, attended": Recipe(
        policy(importance=0.5, attention_mean=True), key=LAST
    ),
}
# What helped in the first round, in more settings and together.
SECOND: dict[str, Recipe] = {
    "ours": Recipe(),
    "ours, importance .25": Recipe(QUARTER),
    "ours, horizon 1024, attended": Recipe(policy(horizon=1024, attention_mean=True)),
}
for n in (1024, 512, 2048, 4096):
    SECOND |= {
        f"ours, horizon {n}": Recipe(policy(horizon=n)),
        f"ours, horizon {n}, importance .25": Recipe(policy(importance=0.25, horizon=n)),
        f"ours, horizon {n}, importance .25, attended": Recipe(
            policy(importance=0.25, horizon=n, attention_mean=True)
        ),
    }
# The best of the second with fewer of the newest tokens left alone, for when little is kept.
THIRD = {
    f"ours, {name}": one
    for name, one in (
        _careful(512, 0.25, 16),
        _careful(512, 0.25, 8),
        _careful(512, 0.25, 4),
        _careful(512, 0.5, 8),
        _careful(256, 0.25, 8),
    )
}
VARIANTS = {**FIRST, **SECOND, **THIRD}


def _sizes(horizon: int, importance: float, tighten: float) -> tuple[str, Recipe]:
    names = {"horizon": horizon, "importance": importance, "tighten": tighten}
    told = "".join(f", {name} {at:g}".replace(" 0.", " .") for name, at in names.items() if at)
    return told, Recipe(policy(importance, horizon), tighten=tighten)


def _sized(
    *some: tuple[int, float, float, tuple[float, ...]],
) -> dict[str, tuple[Recipe, tuple[float, ...]]]:
    found = [(_sizes(*one[:3]), one[3]) for one in some]
    return {name: (recipe, at) for (name, recipe), at in found}


SIZES: dict[str, tuple[Recipe, tuple[float, ...]]] = {
    "": (Recipe(), (0.5, 1.0, 2.0)),
    ", importance .5": (Recipe(HALF), (0.5, 1.0, 2.0)),
    ", horizon 1024, importance .25, attended": (
        Recipe(policy(importance=0.25, horizon=1024, attention_mean=True)),
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
# What keeps about as much at 1k as it may, with horizons that keep more of long texts; to be named.
for (told, one), thresholds in (
    (_careful(1024, 0.25), (1.0, 1.25, 1.5)),
    (_careful(768, 0.25), (1.3,)),
    (_careful(512, 0.25), (1.4, 1.5)),
    (_careful(512, 0.25, 8), (1.3,)),
    (_careful(512, 0.5), (1.25,)),
    (_careful(256, 0.25), (1.75, 2.0)),
    (_careful(256, 0.5), (1.5,)),
):
    SIZES[f", {told}"] = one, thresholds
# With a horizon the part kept does not fall with the length by itself.
for (told, one), at, power in (
    (_careful(512, 0.25), 1.4, 0.1),
    (_careful(256, 0.25), 1.75, 0.15),
):
    grown = replace(one, tighten=-power)
    SIZES[f", {told}, loosen {power:g}".replace(" 0.", " .")] = grown, (at,)
