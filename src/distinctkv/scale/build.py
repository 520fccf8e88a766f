"""Build in shards: a part for each shard, on any ``map``; then a tree of merges, 16 at a time."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import reprlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from ..extras import install
from .loaders import SUFFIX, files, filesystem, rows

TRIES = 3
# Parts merged by one node of the tree. Each part offers an occurrence of its own of a thing to the
# slots before it, so that few levels with many parts lose less than many levels of pairs.
FAN = 16


class Mergeable(Protocol):
    """What a shard is built into: a `Cache`, a `LogParser`, or anything else that can do this."""

    def absorb(self, other: Any, /) -> object:  # noqa: ANN401
        """Merge another into this, as if its stream had followed this one's."""
        ...

    def save(self, path: str | os.PathLike[str], /) -> None:
        """Write it to a file."""
        ...

    @classmethod
    def load(cls, path: str | os.PathLike[str], /) -> Self:
        """Read it from a file."""
        ...


R = TypeVar("R")
T = TypeVar("T", bound=Mergeable)
Loader = Callable[[Any, Any], object]
Map = Callable[..., Iterable[Any]]
Progress = Callable[[int, int], object]


class ShardError(RuntimeError):
    """A shard that could not be built, after all tries."""


def build(
    shards: Sequence[Any] | str | os.PathLike[str],
    make: Callable[[], T],
    map: Map = map,
    *,
    loader: Loader = rows,
    parts: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> T:
    """What ``make`` makes, with all shards written to it as if they followed each other.

    ``shards`` are arrays, files, URLs, or the folder that holds them. ``map`` is the builtin, or
    that of `Processes`, `on_dask`, `on_ray` or any pool: it runs a function over columns of
    arguments and gives the results in order. ``loader(part, shard)`` writes a shard into a part.
    ``parts`` is a folder or URL that all workers see; a build that is started again there goes on
    with the parts of the same policy, the same loader and the same files or arrays. A loader is
    known by its qualified name and, if it is a `functools.partial`, by its arguments. Its code and
    what is behind an encoder are not compared, and neither are two lambdas of one function: name
    another folder if these change. ``progress(done, steps)`` is called after each step. A shard
    that fails is loaded again, so it must not be an iterator.

    >>> from distinctkv import Cache, Concentration
    >>> stream = np.eye(5)[np.arange(1000) % 5]
    >>> build(np.array_split(stream, 4), partial(Cache, Concentration.fixed(0.5))).slots.count
    array([200, 200, 200, 200, 200])
    """
    listed = files(shards) if isinstance(shards, str | os.PathLike) else _check_shards(shards)
    blank = _make_empty(make)
    with _folder(parts) as folder:
        keys = [f"{number:08}" for number in range(len(listed))]
        if parts is not None:
            common = _policy_key(blank), _loader_key(loader)
            keys = [_hash(*common, _shard_key(shard)) for shard in listed]
        names = [f"{folder}/{key}{SUFFIX}" for key in keys]
        return _build(listed, names, make, type(blank), map, loader, progress)


def _build(
    shards: list[Any],
    names: list[str],
    make: Callable[[], T],
    kind: type[T],
    map: Map,
    loader: Loader,
    progress: Progress | None,
) -> T:
    done, steps = 0, len(shards) + _n_merges(len(shards))

    def count(results: Iterable[str]) -> Iterator[str]:
        nonlocal done
        for name in results:
            if not isinstance(name, str):
                raise TypeError(
                    f"map must give the results of what it runs, in order, and gave a "
                    f"{type(name).__name__}; for Dask it is scale.on_dask(client), not client.map"
                )
            done += 1
            if progress is not None:
                progress(done, steps)
            yield name

    names = [*count(map(partial(_load_shard, make, loader), shards, names))]
    while len(names) > 1:
        groups = [names[start : start + FAN] for start in range(0, len(names), FAN)]
        last = groups.pop() if len(groups[-1]) == 1 else []
        merged = [f"{os.path.dirname(group[0])}/{_hash(*group)}{SUFFIX}" for group in groups]
        names = [*count(map(partial(_merge, kind), groups, merged)), *last]
    return _fetch(kind, names[0])


def _n_merges(n_parts: int) -> int:
    """Nodes of the tree over so many parts."""
    nodes = 0
    while n_parts > 1:
        full, rest = divmod(n_parts, FAN)
        nodes += full + (rest > 1)
        n_parts = full + (rest > 0)
    return nodes


def _load_shard(make: Callable[[], T], loader: Loader, shard: object, name: str) -> str:
    """Build the part of one shard and save it under a name, unless it is there."""

    def work() -> None:
        if not _exists(name):
            part = _make_empty(make)
            loader(part, shard)
            _store(part, name)

    shape = getattr(shard, "shape", None)
    _retry(work, f"shard {reprlib.repr(shard) if shape is None else f'of shape {shape}'}")
    return name


def _merge(kind: type[T], names: list[str], name: str) -> str:
    """Merge parts in order and save the result under a name, unless it is there."""

    def work() -> None:
        if not _exists(name):
            part = _fetch(kind, names[0])
            for later in names[1:]:
                part.absorb(_fetch(kind, later))
            _store(part, name)

    _retry(work, f"merging {names[0]} to {names[-1]}")
    return name


def _retry(work: Callable[[], R], what: str) -> R:
    """What ``work`` returns, tried again if it fails; bad input fails every time, so at once."""
    for number in range(1, TRIES + 1):
        try:
            return work()
        except ShardError:
            raise
        except (TypeError, ValueError) as error:
            raise ShardError(f"{what}: {error}") from error
        except Exception as error:
            if number == TRIES:
                raise ShardError(f"{what} failed {TRIES} times, last with {error!r}") from error
    raise AssertionError("unreachable")


def _make_empty(make: Callable[[], T]) -> T:
    """What ``make`` makes, which must be empty and mergeable."""
    part = make()
    if not all(hasattr(part, name) for name in ("absorb", "save", "load")):
        raise TypeError(
            f"make must return what has absorb, save and load, as a Cache or a Deduplicator does, "
            f"got {type(part).__name__}"
        )
    if seen := getattr(part, "seen", 0):
        raise ValueError(
            f"make must return something new and empty each time, but this has seen {seen} tokens; "
            "for a cache that is not empty, build another and let the first absorb it"
        )
    return part


def _check_shards(shards: Sequence[Any]) -> list[Any]:
    if getattr(shards, "ndim", None) == 2:
        raise TypeError(
            "shards are given one by one, got one array of rows; cut it: np.array_split(rows, 8), "
            "or give [rows]"
        )
    listed = list(shards)
    if not listed:
        raise ValueError("there are no shards to build from; give at least one")
    for number, shard in enumerate(listed):
        if isinstance(shard, Iterator):
            raise TypeError(
                f"shard {number} is an iterator, which can be read only once, and a shard that "
                "fails is read again; give a list or a path"
            )
    return listed


def _hash(*pieces: str) -> str:
    return hashlib.sha256("\0".join(pieces).encode()).hexdigest()[:24]


def _policy_key(blank: Mergeable) -> str:
    """What an empty part would save: its policy, and the name of its encoder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty"
        blank.save(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _loader_key(loader: Any) -> str:  # noqa: ANN401
    """A function by its qualified name, a partial also by its arguments; these likewise.

    An argument whose ``repr`` is only its address in memory is known by its type.
    """
    if isinstance(loader, partial):
        named = (f"{name}={_loader_key(loader.keywords[name])}" for name in sorted(loader.keywords))
        arguments = [*map(_loader_key, loader.args), *named]
        return f"{_loader_key(loader.func)}({', '.join(arguments)})"
    if isinstance(loader, np.ndarray):
        return _shard_key(loader)  # a repr leaves out most of a long array
    kind: Any = loader if hasattr(loader, "__qualname__") else type(loader)
    if callable(loader) or kind.__repr__ is object.__repr__:
        return f"{kind.__module__}.{kind.__qualname__}"
    return repr(loader)


def _shard_key(shard: Any) -> str:  # noqa: ANN401
    """A file by its path, size and time, an array by its content."""
    if isinstance(shard, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(shard).data).hexdigest()
        return f"{shard.dtype.str} {shard.shape} {content}"
    if not isinstance(shard, str | os.PathLike):
        raise TypeError(
            f"parts= needs shards that are files, URLs or arrays, got a {type(shard).__name__}; "
            "leave parts= out, or save the shards to files"
        )
    place = os.fspath(shard)
    if (remote := filesystem(place)) is not None:
        facts = remote.info(place)
        times = (facts.get(name) for name in ("mtime", "LastModified", "created", "updated"))
        return f"{place} {facts.get('size')} {next(filter(None, times), '')}"
    facts = os.stat(place)
    return f"{os.path.abspath(place)} {facts.st_size} {facts.st_mtime_ns}"


@contextmanager
def _folder(parts: str | os.PathLike[str] | None) -> Iterator[str]:
    """Where parts are kept: the place given, or a temporary folder."""
    if parts is None:
        # A worker may still be writing when another has failed; report that failure, not this.
        with tempfile.TemporaryDirectory(prefix="distinctkv-", ignore_cleanup_errors=True) as place:
            yield place
        return
    place = os.fspath(parts)
    if filesystem(place) is None:
        place = str(Path(place).absolute())  # a worker may run in another folder
        Path(place).mkdir(parents=True, exist_ok=True)
    yield place.rstrip("/")


def _store(part: Mergeable, name: str) -> None:
    """Save a part atomically."""
    place, _, end = name.rpartition("/")
    if (remote := filesystem(name)) is None:
        _check_shared(place)
        part.save(name)
        return
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "part"
        part.save(local)
        remote.makedirs(place, exist_ok=True)
        # Not every store writes a file at once, but all of them rename it at once.
        remote.put_file(local, temporary := f"{place}/_{token_hex(8)}.{end}")
        remote.mv(temporary, name)


def _fetch(kind: type[T], name: str) -> T:
    """Load a part."""
    if (remote := filesystem(name)) is None:
        _check_shared(name)
        return kind.load(name)
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "part"
        remote.get_file(name, local)
        return kind.load(local)


def _check_shared(place: str) -> None:
    """Refuse to go on where the folder of parts, or a part, is on another machine."""
    if not Path(place).exists():
        raise ShardError(
            f"{place} does not exist on this machine; give parts= a folder or URL that all workers "
            "see"
        )


def _exists(name: str) -> bool:
    remote = filesystem(name)
    return Path(name).exists() if remote is None else bool(remote.exists(name))


class Processes:
    """A ``map`` over processes of this machine, which are replaced if they die.

    Set ``OMP_NUM_THREADS=1`` before Python starts, or each process uses every core by itself.
    """

    def __init__(self, n: int | None = None) -> None:
        """Start ``n`` processes when first used, or as many as there are cores."""
        self.n = n
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """Results in order; what a process left undone when it died is done again."""
        rows, done, deaths = [*zip(*columns, strict=True)], 0, 0
        while done < len(rows):
            # Spawned, not forked: a fork copies locks that threads of BLAS may hold.
            spawn = multiprocessing.get_context("spawn")
            pool = self._pool = self._pool or ProcessPoolExecutor(self.n, spawn)
            try:
                for future in [pool.submit(function, *row) for row in rows[done:]]:
                    yield future.result()
                    done, deaths = done + 1, 0
            except BrokenProcessPool as error:
                self.close()
                deaths += 1
                if deaths == TRIES:
                    raise ShardError(
                        f"processes died {TRIES} times at one shard. If memory is short, use fewer "
                        "processes or smaller shards; in a script, call build under "
                        '`if __name__ == "__main__":`'
                    ) from error

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def on_dask(client: Any) -> Map:  # noqa: ANN401
    """The ``map`` of a ``distributed.Client``; Dask itself does again what a dead worker did."""

    def run(function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        tasks = client.map(function, *map(list, columns), pure=False)
        return (task.result() for task in tasks)

    return run


def on_ray(**options: Any) -> Map:  # noqa: ANN401
    """A ``map`` on the Ray cluster in use; ``options`` are those of a Ray task.

    Ray itself does again what a dead worker did, three times unless ``max_retries`` says otherwise.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"to run on Ray: {install('ray')}") from error

    def run(function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        def call(*row: Any) -> Any:  # noqa: ANN401
            return function(*row)

        task = ray.remote(call).options(**options) if options else ray.remote(call)
        tasks = [task.remote(*row) for row in zip(*columns, strict=True)]
        return (ray.get(one) for one in tasks)

    return run
