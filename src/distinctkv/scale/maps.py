"""Ways to run a function over shards: processes of this machine, Dask, Ray."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.reduction import ForkingPickler
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..extras import install
from .parts import TRIES, ShardError

Map = Callable[..., Iterator[Any]]


class Processes:
    """A ``map`` over processes of this machine, which are replaced if they die.

    Set ``OMP_NUM_THREADS=1`` before Python starts, or each process uses every core by itself.
    """

    def __init__(self, n: int | None = None) -> None:
        """Start when first used, with as many processes as there are cores if not told."""
        if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):
            raise ValueError(f"there must be 1 process or more, got {n!r}; None is one a core")
        self.n = None if n is None else int(n)
        self._pool: ProcessPoolExecutor | None = None
        self._first: Future[int] | None = None  # done when a process of the pool has started

    def __call__(self, function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """Results in order; what a process left undone when it died is done again."""
        _check_sent(function)
        rows, done, deaths = [*zip(*columns, strict=True)], 0, 0
        while done < len(rows):
            pool = self._pool = self._pool or self._start()
            try:
                for future in [pool.submit(function, *row) for row in rows[done:]]:
                    yield future.result()
                    done, deaths = done + 1, 0
            except BrokenProcessPool as error:
                self._check_started(error)
                self.close()
                deaths += 1
                if deaths == TRIES:
                    raise ShardError(
                        f"processes died {TRIES} times at one shard, perhaps for lack of memory; "
                        "use fewer processes or smaller shards"
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

    def _start(self) -> ProcessPoolExecutor:
        # Spawned, not forked: a fork copies locks that threads of BLAS may hold.
        pool = ProcessPoolExecutor(self.n, multiprocessing.get_context("spawn"))
        self._first = pool.submit(os.getpid)
        return pool

    def _check_started(self, error: BrokenProcessPool) -> None:
        """Give up at once if no process has come as far as to do anything."""
        if self._first is None or self._first.exception() is not None:
            self.close()
            raise ShardError(
                "no process could be started, for each of them runs the script again; what calls "
                'build must stand under `if __name__ == "__main__":`, or see what they printed'
            ) from error


def _check_sent(function: Callable[..., Any]) -> None:
    """Refuse what cannot be sent to another process."""
    try:
        sent = bytes(ForkingPickler.dumps(function))
    except Exception as error:  # each kind of thing fails in its own way
        raise TypeError(
            f"make and feed are sent to processes by their names, and one has none there: {error}; "
            "use functions of a module or functools.partial of them, not a lambda"
        ) from error
    if b"__main__" in sent and not hasattr(sys.modules["__main__"], "__file__"):
        raise TypeError(
            "make and feed are sent to processes by their names, and one was defined in a session, "
            "as a notebook is, that no process can import; put it in a module"
        )


def on_dask(client: Any) -> Map:  # noqa: ANN401
    """The ``map`` of a ``distributed.Client``; Dask itself does again what a dead worker did."""
    if not hasattr(client, "map"):
        raise TypeError(f"a distributed.Client is expected, not its map, got {client!r}")

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
