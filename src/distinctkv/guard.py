"""A guard around updates, so that an interrupted update is never saved or read from."""

from __future__ import annotations

from types import TracebackType


class UpdateGuard:
    """Marks an object as dirty during an update; after an exception the mark stays.

    Validate the input before the ``with`` block: any exception inside it leaves the object dirty.

    >>> guard = UpdateGuard("cache")
    >>> with guard:
    ...     numbers = [1, 2]
    >>> guard.check()
    >>> try:
    ...     with guard:
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     guard.check()
    Traceback (most recent call last):
    RuntimeError: an update of this cache was interrupted, ...
    """

    __slots__ = ("dirty", "what")

    def __init__(self, what: str) -> None:
        """``what`` names the object in the error."""
        self.what, self.dirty = what, False

    def check(self) -> None:
        """Raise if an update was interrupted, or is running now in another thread."""
        if self.dirty:
            raise RuntimeError(
                f"an update of this {self.what} was interrupted, or is running in another thread, "
                "so its state is not consistent; wait for that thread, or, if there is none, load "
                "the last snapshot and continue from its `seen`"
            )

    def __enter__(self) -> None:
        if self.dirty:
            self.check()
        self.dirty = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.dirty = False
