"""Records as rows of numbers: what is compared in a record, and how it is encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...entry import faults
from .encoding import NGrams

Encoder = Callable[[Any], ArrayLike]
Rows = NDArray[Any]


class RecordError(ValueError):
    """A record that cannot be compared, and what to do about it."""


def several(records: Iterable[Any]) -> Iterable[Any]:
    """Records as they are, unless one was given where there should be several, or a table."""
    kind = type(records).__name__
    if isinstance(records, str | bytes | bytearray | Mapping):
        raise TypeError(f"records are given one by one, got {kind}; put it in a list: [record]")
    if hasattr(records, "columns") and hasattr(records, "to_dict"):
        raise TypeError(
            f"records are given one by one, got {kind}, which gives its columns; "
            'use df.to_dict("records"), of polars df.to_dicts(), or one column'
        )
    return records


class Reader:
    """Takes records to rows: a text by the encoder, a vector as it is, a mapping by its field."""

    def __init__(self, encode: Encoder, field: str | None) -> None:
        """An encoder other than ours gets whatever is in a record, vectors and all."""
        self.encode, self.field = encode, field
        self._whole = not isinstance(encode, NGrams)

    def content(self, record: Any) -> Any:  # noqa: ANN401
        """What of a record is compared: a text, a vector, or what the encoder takes."""
        if self.field is not None:
            record = self._named(record, self.field)
        if self._whole:
            return record
        if isinstance(record, bytes):
            return record.decode("utf-8", "replace")
        if isinstance(record, str):
            return record
        if isinstance(record, Mapping):
            raise RecordError(
                f"a record with fields {names(record)} needs field='...', the one to compare"
            )
        return _vector(record)

    def takes(self, records: Rows, width: int | None) -> bool:
        """Whether an array is rows already, as they are."""
        fits = records.ndim == 2 and records.dtype.kind in "fiub" and records.shape[1] > 0
        plain = self.field is None and not self._whole
        return plain and fits and records.shape[1] == (width or records.shape[1])

    def held(self, record: Any) -> Any:  # noqa: ANN401
        """What is held of a kept record; nothing of a mere vector, which the cache has."""
        if isinstance(record, bytes):
            return record.decode("utf-8", "replace")
        return record if self._whole or isinstance(record, str | Mapping) else None

    def rows(self, contents: Sequence[Any], width: int | None) -> Rows:
        """One row (L, D) per content; a row of nan for None, and for a vector of another width."""
        if len(contents) == 1 and isinstance(one := contents[0], np.ndarray) and not self._whole:
            return one[None] if width in (None, len(one)) else np.full((1, width or 1), np.nan)
        texts = [place for place, one in enumerate(contents) if self._encoded(one)]
        vectors = [p for p, one in enumerate(contents) if isinstance(one, np.ndarray)]
        vectors = [] if self._whole else vectors
        coded = self._encode([contents[place] for place in texts]) if texts else None
        if width is None:
            # That of the first good one counts where none does yet.
            good = (p for p in vectors if not why(contents[p], contents[p], None))
            first = next(good, len(contents))
            if coded is not None and texts[0] < first:
                width = coded.shape[1]
            else:
                width = len(contents[first]) if first < len(contents) else 1
        if coded is not None and coded.shape == (len(contents), width):
            return coded
        rows = np.full((len(contents), width), np.nan, np.float64 if vectors else np.float32)
        if coded is not None and coded.shape[1] == width:
            rows[texts] = coded
        for place in vectors:
            if len(contents[place]) == width:
                rows[place] = contents[place]
        return rows

    def fault(self, record: Any, width: int | None) -> str:  # noqa: ANN401
        """Why a record cannot be compared with rows of this width; nothing if it can."""
        if record is None:
            return "it is empty"
        try:
            content = self.content(record)
        except RecordError as error:
            return str(error)
        row = self.rows([content], width)[0]
        return why(row, content, width or len(row))

    def _encoded(self, content: Any) -> bool:  # noqa: ANN401
        return content is not None and (self._whole or isinstance(content, str))

    def _encode(self, contents: list[Any]) -> Rows:
        """Encode; the same text only once."""
        if not all(isinstance(one, str) for one in contents):
            return self._checked(contents)
        places: dict[str, int] = {}
        taken = [places.setdefault(text, len(places)) for text in contents]
        rows = self._checked([*places])
        return rows if len(places) == len(contents) else rows[taken]

    def _checked(self, contents: list[Any]) -> Rows:
        rows = np.asarray(self.encode(contents))
        if rows.ndim != 2 or len(rows) != len(contents) or rows.dtype.kind not in "fiub":
            raise TypeError(
                f"the encoder must give a row of numbers for each of {len(contents)} records, "
                f"got {rows.dtype} of shape {rows.shape}"
            )
        return rows

    def _named(self, record: Any, field: str) -> Any:  # noqa: ANN401
        if not isinstance(record, Mapping):
            raise RecordError(f"a record with a field {field!r} is expected, got {_short(record)}")
        if record.get(field) is None:
            said = "is empty" if field in record else f"is missing; it has {names(record)}"
            raise RecordError(f"the field {field!r} of a record {said}")
        return record[field]


def why(row: Rows, content: Any, width: int | None) -> str:  # noqa: ANN401
    """What is wrong with a row that cannot be compared; nothing if it can."""
    if isinstance(content, np.ndarray) and width is not None and len(content) != width:
        return f"it has {len(content)} numbers, those before have {width}; use one encoder"
    if isinstance(content, str) and np.isnan(row).all():
        return (
            f"it is a text, and none that is encoded in {len(row)} finite numbers as those before "
            "are; hold texts and vectors apart"
        )
    if not np.isfinite(row).all():
        return "it has nan or inf in it"
    return "it is all zeros and has no direction" if faults(row[None], "cosine")[0] else ""


def _vector(record: Any) -> Rows:  # noqa: ANN401
    try:
        vector = np.asarray(record)
    except ValueError:
        vector = np.empty(0)
    if vector.ndim != 1 or len(vector) == 0 or vector.dtype.kind not in "fiub":
        raise RecordError(
            f"a text, or a vector of numbers, is expected, got {_short(record)}; "
            "for anything else give encode=..."
        )
    return vector


def names(record: Mapping[Any, Any]) -> str:
    """The first fields of a record, to be told."""
    return ", ".join(map(repr, [*record][:8])) or "none"


def _short(record: Any) -> str:  # noqa: ANN401
    text = repr(record)
    return f"{type(record).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"
