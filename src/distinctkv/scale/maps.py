"""Ways to run a function over shards: processes of this machine, Dask, Ray."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self

from .parts import TRIES, ShardError

Map = Callable[..., Iterator[Any]]


class Processes:
    """A ``map`` over processes of this machine, which are replaced if they die.

    Set ``OMP_NUM_THREADS=1`` before Python starts, or each process uses every core by itself.
    """

    def __init__(self, n: int | None = None) -> None:
        """Start when first used, with as many processes as there are cores if not told."""
        self.n = n
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        """Results in order; what a process left undone when it died is done again."""
        rows, done, deaths = [*zip(*columns, strict=True)], 0, 0
        while done < len(rows):
            pool = self._pool = self._pool or self._start()
            try:
                for future in [pool.submit(function, *row) for row in rows[done:]]:
                    yield future.result()
                    done, deaths = done + 1, 0
            except BrokenProcessPool as error:
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
        return ProcessPoolExecutor(self.n, multiprocessing.get_context("spawn"))


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
        raise ImportError("to run on Ray: pip install 'distinctkv[ray]'") from error

    def run(function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        def call(*row: Any) -> Any:  # noqa: ANN401
            return function(*row)

        task = ray.remote(call).options(**options) if options else ray.remote(call)
        tasks = [task.remote(*row) for row in zip(*columns, strict=True)]
        return (ray.get(one) for one in tasks)

    return run
