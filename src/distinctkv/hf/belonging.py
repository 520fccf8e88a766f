"""What belongs to a model, though caches know it."""

from __future__ import annotations

from typing import NoReturn, Self


class Belonging:
    """Shared by all copies of a cache; no pickle takes it along, and the model with it."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a cache belongs to its model, which a pickle would take along; write it to a file "
            "with cache.save(path), and press a context anew"
        )
