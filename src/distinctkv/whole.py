"""A cache and what stands beside it, changed together or not to be used again."""

from __future__ import annotations

from types import TracebackType

from .cache import Cache


class Whole:
    """Marks both as torn while they change, and for good if that was interrupted.

    A `Cache` marks itself while it writes; what it wrote must then be noted beside it, and until
    that is done neither may be saved. What is refused before anything has changed leaves no mark.

    >>> import numpy as np
    >>> whole = Whole(cache := Cache())
    >>> try:
    ...     with whole:
    ...         ids = cache.write(np.eye(2))
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     whole.check()
    Traceback (most recent call last):
    RuntimeError: an update of this cache was interrupted, ...
    """

    __slots__ = ("_cache", "_seen", "_torn")

    def __init__(self, cache: Cache) -> None:
        self._cache, self._seen, self._torn = cache, 0, False

    def check(self) -> None:
        """Refuse to go on if a change was interrupted."""
        if self._torn:
            self._cache._guard.dirty = True
        self._cache._guard.check()

    def __enter__(self) -> None:
        self.check()
        self._seen = self._cache.seen
        self._torn = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self._torn = False
        elif issubclass(kind, TypeError | ValueError):  # anything else may strike at any time
            self._torn = self._cache._guard.dirty or self._cache.seen != self._seen
