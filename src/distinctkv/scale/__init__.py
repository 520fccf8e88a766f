"""Caches of a stream in shards: one built for each, on any engine with a ``map``, then absorbed.

State travels between workers as snapshot files, whole and checked, and never as a pickle.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from .feeding import files, lines, records, rows
from .maps import Processes, on_dask, on_ray
from .naming import UnnameableError, fingerprint, fingerprint_maker, fingerprint_shard, join_name
from .parts import Mergeable, ShardError, attempt, fetch, finished, folder, store

__all__ = [
    "Mergeable",
    "Processes",
    "ShardError",
    "build",
    "files",
    "lines",
    "on_dask",
    "on_ray",
    "records",
    "rows",
]


T = TypeVar("T", bound=Mergeable)
Feed = Callable[[Any, Any], object]
Map = Callable[..., Iterable[Any]]
Tell = Callable[[int, int], object]
# Parts merged by one node of the tree. Each part offers an occurrence of its own of a thing to the
# slots before it, so that few levels with many parts lose less than many levels of pairs.
FAN = 16


def build(
    shards: Sequence[Any] | str | os.PathLike[str],
    make: Callable[[], T],
    map: Map = map,
    *,
    feed: Feed = rows,
    parts: str | os.PathLike[str] | None = None,
    tell: Tell | None = None,
) -> T:
    """What ``make`` makes, fed with all shards as if they followed each other.

    ``shards`` are arrays, files, URLs, or the folder that holds them. ``map`` is the builtin, or
    that of `Processes`, `on_dask`, `on_ray` or any pool: it runs a function over columns of
    arguments and gives the results in order. ``feed`` reads a shard into a part. ``parts`` is where
    parts are kept: a folder or URL that all workers see. A build that is started again there goes
    on with what was made of the same shard, policy, encoder and feed. ``tell`` is told of steps
    done and of steps in all. A shard may be read again, so it must not be an iterator.

    >>> import numpy as np
    >>> from distinctkv import Cache, Concentration
    >>> stream = np.eye(5)[np.arange(1000) % 5]
    >>> build(np.array_split(stream, 4), partial(Cache, Concentration.fixed(0.5))).slots.count
    array([200, 200, 200, 200, 200])
    """
    _check_map(map)
    listed = files(shards) if isinstance(shards, str | os.PathLike) else _listed(shards)
    if not listed:
        raise ValueError("there are no shards to build from; give at least one")
    for number, shard in enumerate(listed):
        if _passing(shard):
            raise TypeError(
                f"shard {number}, a {type(shard).__name__}, is or holds an iterator, which can be "
                "read only once, and a shard that fails is read again; give a list or a path"
            )
    blank = _blank(make)
    ends = [f"{number:08}" for number in range(len(listed))]
    if parts is not None:
        ends = _ends(blank, make, feed, listed)
    with folder(parts) as place:
        names = [f"{place}/{end}.part" for end in ends]
        return _build(listed, names, make, type(blank), map, feed, tell)


def _build(
    shards: list[Any],
    names: list[str],
    make: Callable[[], T],
    kind: type[T],
    map: Map,
    feed: Feed,
    tell: Tell | None,
) -> T:
    done, total = 0, len(shards) + _n_joins(len(shards))

    def told(names: Iterable[str]) -> list[str]:
        nonlocal done
        kept = []
        for name in names:
            if not isinstance(name, str):
                raise TypeError(
                    f"map must give the results of what it runs, in order, and gave a "
                    f"{type(name).__name__}; for Dask it is scale.on_dask(client), not client.map"
                )
            kept.append(name)
            done += 1
            if tell is not None:
                tell(done, total)
        return kept

    names = told(map(partial(_fill, make, feed), shards, names))
    while len(names) > 1:
        groups = [names[start : start + FAN] for start in range(0, len(names), FAN)]
        last = groups.pop() if len(groups[-1]) == 1 else []
        joined = [join_name(*group) for group in groups]
        names = told(map(partial(_join, kind), groups, joined)) + last
    return fetch(kind, names[0])


def _n_joins(n_parts: int) -> int:
    """Nodes of the tree over so many parts."""
    nodes = 0
    while n_parts > 1:
        whole, rest = divmod(n_parts, FAN)
        nodes += whole + (rest > 1)
        n_parts = whole + (rest > 0)
    return nodes


def _fill(make: Callable[[], T], feed: Feed, shard: object, name: str) -> str:
    """Build the part of one shard and keep it under a name, unless it is there."""

    def work() -> None:
        if not finished(name):
            part = _blank(make)
            feed(part, shard)
            store(part, name)

    attempt(work, f"shard {_short(shard)}")
    return name


def _join(kind: type[T], names: list[str], name: str) -> str:
    """Let the first part absorb those after it, in order, and keep it under a name."""

    def work() -> None:
        if not finished(name):
            part = fetch(kind, names[0])
            for later in names[1:]:
                part.absorb(fetch(kind, later))
            store(part, name)

    attempt(work, f"merging {names[0]} to {names[-1]}")
    return name


def _blank(make: Callable[[], T]) -> T:
    """What ``make`` makes, which must not have seen anything."""
    if not callable(make):
        raise TypeError(
            f"make must be a function that returns something new, such as partial(Cache, "
            f"Concentration.fixed(0.5)), got {reprlib.repr(make)}"
        )
    part = make()
    if not all(hasattr(part, name) for name in ("absorb", "save", "load")):
        raise TypeError(
            f"make must return what can absorb, save and load, as a Cache or a Deduplicator does, "
            f"got {type(part).__name__}"
        )
    if seen := getattr(part, "seen", 0):
        raise ValueError(
            f"make must return something new and empty each time, but this has seen {seen} tokens; "
            "for a cache that is not empty, build another and let the first absorb it"
        )
    return part


def _listed(shards: Sequence[Any]) -> list[Any]:
    """Shards one by one; an array of rows would give each of its rows as one."""
    if getattr(shards, "ndim", None) == 2:
        raise TypeError(
            f"shards are given one by one, got a {type(shards).__name__} of shape "
            f"{getattr(shards, 'shape', '')}; cut it: np.array_split(rows, 8), or give [rows]"
        )
    if isinstance(shards, set | frozenset):
        raise TypeError(
            "shards follow each other, and a set has no order; give a list: sorted(shards)"
        )
    try:
        return list(shards)
    except TypeError as error:
        raise TypeError(
            f"shards must be a list of shards, or the folder or URL that holds them, got "
            f"{reprlib.repr(shards)}"
        ) from error


def _check_map(map: object) -> None:
    if not callable(map) or map is Processes:
        raise TypeError(
            f"map must be a function as the builtin is, got {map!r}; give scale.Processes(2), "
            "scale.on_dask(client), scale.on_ray() or the map of a pool"
        )


def _ends(
    blank: Mergeable, make: Callable[[], Mergeable], feed: Feed, shards: list[Any]
) -> list[str]:
    """Names under which parts are kept: those of all that they are made of."""
    what = "the feed, or something that it holds"
    try:
        # A blank says how its encoder is called, and make what that does.
        setting, ends = fingerprint(blank, feed, fingerprint_maker(make)), []
        for number, shard in enumerate(shards):
            what = f"shard {number}"
            ends.append(f"{setting}-{fingerprint_shard(shard)}")
    except UnnameableError as error:
        raise TypeError(
            f"{what}: {error}, so parts= could take one for another; hold arrays, text, numbers, "
            "paths, or lists, tuples and dicts of these, or leave parts= out"
        ) from error
    return ends


def _passing(shard: object) -> bool:
    """Whether a shard, or one of a tuple of them, can be read only once."""
    return isinstance(shard, Iterator) or (isinstance(shard, tuple) and any(map(_passing, shard)))


def _short(shard: object) -> str:
    shape = getattr(shard, "shape", None)
    return f"of shape {shape}" if shape is not None else reprlib.repr(shard)
