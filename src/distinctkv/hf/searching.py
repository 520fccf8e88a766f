"""The least threshold that leaves few enough slots, found in a few looks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from math import exp, inf, log
from typing import NamedTuple

CLOSE = 0.98  # a search ends when this part of the slots allowed is used
FAR = 16.0  # it goes no further than by this factor at a time,
FLAT, STEEP = 0.005, 32.0  # takes slots to fall by no power beyond these,
LEAST, MOST = 1e-9, 1e12  # and does not go beyond these thresholds
SAME = 0.99  # this part of the slots is as good as all, where no threshold leaves enough


class End(NamedTuple):
    """Where a search ended: the look that tried it, and by what power slots fall there.

    Where no threshold leaves few enough, what is ``left`` is more than the goal.
    """

    threshold: float
    look: int
    fall: float
    left: int  # slots


def least_threshold(slots: Callable[[float], int], goal: int, start: float = 1.0) -> float:
    """The least threshold, to a few per cent, that leaves at most ``goal`` slots.

    Each look at ``slots`` is a pass over all tokens, so the next is where a power law through two
    looks would just meet the goal; the first guess is that slots fall as the threshold grows.

    >>> round(least_threshold(lambda at: int(1000 / at), 100), 1)
    10.1
    """
    walk = search(goal, start)
    at = next(walk)
    try:
        while True:
            at = walk.send(slots(at))
    except StopIteration as end:
        found: float = end.value[0]
        return found


def search(
    goal: int, start: float, fall: float = 1.0, close: float = CLOSE
) -> Generator[float, int, tuple[float, float]]:
    """`least_threshold` turned round: it asks for the slots left at one threshold after another.

    It ends with a threshold, and with the power by which slots ``fall`` there.
    """
    aim = log((1 + close) / 2 * goal)  # halfway between enough and all
    low = high = None  # where there are too many slots, and where not: threshold, and both as logs
    few = []  # all thresholds where there are not, and the slots there
    at, slow = start, 0
    left = yield at
    while (left > goal and at < MOST) or (left < close * goal and at > LEAST):
        here = (at, log(at), log(max(left, 1)))
        if left > goal:
            low = here
        else:
            high = here
            few.append((at, left))
        if low is None or high is None:
            gap = inf
            to = here[1] + min(max((here[2] - aim) / fall, -log(FAR)), log(FAR))
        else:
            gap = high[1] - low[1]
            if gap <= log(1.01):
                return high[0], fall
            # Halfway where the law has failed twice to halve what is left.
            halve = slow == 2 or low[2] <= high[2]
            part = 0.5 if halve else (low[2] - aim) / (low[2] - high[2])
            to = low[1] + gap * min(max(part, 0.05), 0.95)
        at = exp(to)
        left = yield at
        fall = min(max((here[2] - log(max(left, 1))) / (to - here[1]), FLAT), STEEP)
        if low is not None and high is not None:
            rest = high[1] - to if left > goal else to - low[1]
            slow = 0 if slow == 2 or rest <= gap / 2 else slow + 1
    if low is None and left < close * goal:
        # No threshold leaves more. Near nothing, it would merge next to nothing from now on.
        return max([to for to, then in few if then >= SAME * left], default=at), fall
    return (at if left <= goal or high is None else high[0]), fall


def walk(
    walks: dict[int, Generator[float, int, tuple[float, float]]],
    look: Callable[[dict[int, float]], list[list[int]]],
) -> dict[int, End]:
    """Where each search ends."""
    at = {stream: next(walk) for stream, walk in walks.items()}
    tried: dict[tuple[int, float], tuple[int, int]] = {}
    found = {}
    for number in count():
        left = [sum(each) for each in zip(*look(at), strict=True)]
        tried |= {(stream, to): (number, left[stream]) for stream, to in at.items()}
        for stream in list(at):
            try:
                at[stream] = walks[stream].send(left[stream])
            except StopIteration as end:
                threshold, fall = end.value
                number_then, left_then = tried[stream, threshold]
                found[stream] = End(threshold, number_then, fall, left_then)
                del at[stream]
        if not at:
            break
    return found
