"""What one record costs most, written so that numba can compile it as it stands.

NumPy pays some microseconds for each call, which a batch pays once and a single record every time.
"""

# S slots, D key size

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from math import sqrt
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..rule import Keys
from ..slots import Ints

PATIENCE = 200  # single records after which compiling may pay
TILE = 256  # slots whose bounds are summed at a time
Singles = NDArray[np.float32]
LOW = 0xFFFFFFFF  # the bits of a uint32


class Compiled(NamedTuple):
    """`find` and `count`, compiled."""

    find: Any
    count: Any


@cache
def compiled() -> Compiled | None:
    """Both functions, compiled and tried; None where numba is not installed or does not work."""
    if find_spec("numba") is None:
        return None
    try:
        try:
            return _tried(kept=True)
        except OSError:  # what is compiled cannot be kept: a full disk, a folder without rights
            return _tried(kept=False)
    except Exception as error:  # numba fails in many ways, and none should stop a stream
        warnings.warn(
            f"numba is installed but does not work here ({error}); NumPy takes over", stacklevel=2
        )
        return None


def _tried(*, kept: bool) -> Compiled:
    """Both functions, called once as `Inline` and `NGrams` will call them."""
    import numba

    space = dict(globals())
    for function in (measure, sift, nearest, find, count):
        plain = FunctionType(function.__code__, space, function.__name__)
        space[function.__name__] = numba.njit(plain, cache=kept)
    made = Compiled(space["find"], space["count"])
    one, wide, ids = np.ones(1, np.float32), np.ones((1, 1), np.float32), np.zeros(1, np.int64)
    place, _ = made.find(
        np.ones(1),
        (np.empty((1, 0), np.float32), np.empty((1, 0), np.float32), 0.0, 0.0),
        (wide, ids, 1),
        1.0,
        (one.copy(), one.copy(), ids.copy()),
    )
    row = np.zeros(4, np.float32)
    made.count(np.frombuffer(b"abcdefgh", np.uint32), 2, row)
    if place != 0 or np.abs(row).sum() != 1:
        raise RuntimeError("what it compiled gives wrong results")
    return made


def measure(
    row: NDArray[np.float64], key: Keys, turn: Singles, margin: float, head: Singles
) -> bool:
    """Write a row at length one to ``key`` and its head to ``head``; False if it is no plain one.

    Nor is one whose length could be rounded so that it shows: another way to sum is then the law's.
    """
    square = 0.0
    for d in range(len(row)):
        square += row[d] * row[d]
    if not 1e-200 < square < 1e200:
        return False
    # However the squares are summed, the length is between these.
    slack = 4.0 * len(row) * 2.0**-53
    short, long = sqrt(square) * (1 - slack), sqrt(square) * (1 + slack)
    differ = 0
    for d in range(len(row)):
        key[d] = np.float32(row[d] / short) + np.float32(0)
        differ += key[d] != np.float32(row[d] / long)
    size = turn.shape[1]
    head[:] = 0
    for d in range(len(row)):
        line = turn[d]
        for h in range(size):
            head[h] += key[d] * line[h]
    within = 0.0
    for h in range(size):
        within += head[h] * head[h]
    head[size] = sqrt(max(1 - within, 0.0) + margin)
    return differ == 0


def sift(head: Singles, heads: Singles, n: int, cut: float, near: Ints) -> int:
    """Write the places whose bound is ``cut`` or more to ``near``; how many, -1 if too many."""
    n_near, bounds = 0, np.empty(TILE, np.float32)
    for start in range(0, n, TILE):
        stop = min(start + TILE, n)
        bounds[:] = 0
        for h in range(len(head)):
            weight, some = head[h], heads[h, start:stop]
            for i in range(len(some)):
                bounds[i] += weight * some[i]
        for i in range(stop - start):
            if bounds[i] >= cut:
                if n_near == len(near):
                    return -1
                near[n_near] = start + i
                n_near += 1
    return n_near


def nearest(key: Keys, keys: Keys, ids: Ints, near: Ints, far: float) -> tuple[int, float]:
    """The nearest of some places, if it is within the squared distance ``far``, and how far it is.

    The place is -1 if there is none. Distances are summed as the law sums them.
    """
    best, found = far, -1
    for place in near:
        other = keys[place]
        squared = 0.0
        for d in range(len(key)):
            gap = np.float64(other[d]) - np.float64(key[d])
            squared += gap * gap
            if squared > best:
                break
        if squared < best or (squared == best and (found < 0 or ids[place] < ids[found])):
            best, found = squared, place
    return found, best


def find(
    row: NDArray[np.float64],
    screen: tuple[Singles, Singles, float, float],
    slots: tuple[Keys, Ints, int],
    far: float,
    passing: tuple[Keys, Singles, Ints],
) -> tuple[int, float]:
    """Place of the nearest slot within ``far`` of a row (-1: none), and their squared distance.

    The place is -2 if this is no way to tell. ``passing`` gets the key, its head, and the places
    that were compared; those are the first ones where there is no screen.
    """
    turn, heads, margin, cut = screen
    keys, ids, n = slots
    key, head, near = passing
    if not measure(row, key, turn, margin, head):
        return -2, 0.0
    n_near = n
    if turn.shape[1]:
        n_near = sift(head, heads, n, cut, near)
    if not 0 <= n_near <= len(near):
        return -2, 0.0
    return nearest(key, keys, ids, near[:n_near], far)


def count(codes: NDArray[np.uint32], n: int, row: NDArray[np.float32]) -> None:
    """Add the runs of ``n`` codes of one text to its row, as `NGrams` does of many."""
    width = np.uint64(len(row))
    for start in range(len(codes) - n + 1):
        mixed = np.uint64(codes[start])
        for place in range(1, n):
            mixed = (mixed * np.uint64(0x9E3779B1)) & np.uint64(LOW)
            mixed ^= np.uint64(codes[start + place])
        mixed = (mixed * np.uint64(0x85EBCA6B)) & np.uint64(LOW)
        mixed ^= mixed >> np.uint64(15)
        mixed = (mixed * np.uint64(0xC2B2AE35)) & np.uint64(LOW)
        mixed ^= mixed >> np.uint64(13)
        mixed = (mixed * np.uint64(0x9E3779B1)) & np.uint64(LOW)
        mixed ^= mixed >> np.uint64(16)
        sign = 1.0 - 2.0 * np.float64(mixed & np.uint64(1))
        row[np.int64((mixed * width) >> np.uint64(32))] += sign
