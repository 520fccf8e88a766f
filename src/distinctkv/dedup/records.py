"""Records as rows: which part of a record is compared, and how it is encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cache import OnBad
from ..inputs import faults
from .encoders import Encoder, MissingEncoder, NGrams

Rows = NDArray[Any]


class RecordError(ValueError):
    """A record that cannot be compared, and what to do about it."""


def as_records(records: Iterable[Any]) -> Iterable[Any]:
    """Records as they are; raise if one was given where there should be several."""
    if isinstance(records, str | bytes | bytearray | Mapping):
        kind = type(records).__name__
        raise TypeError(f"records are given one by one, got {kind}; put it in a list: [record]")
    if hasattr(records, "to_pylist"):  # Arrow: iteration gives scalars, or columns of a table
        return records.to_pylist()  # type: ignore[no-any-return]
    if hasattr(records, "columns"):  # iteration gives the names of columns
        kind = type(records).__name__
        raise TypeError(
            f"a {kind} is a table; give one column, df['text'], or rows: df.to_dict('records')"
        )
    return records


class RecordEncoder:
    """Turns records into rows: texts by the encoder, vectors as they are, mappings by a field."""

    def __init__(self, encode: Encoder, field: str | None, on_bad: OnBad = "raise") -> None:
        """An encoder other than `NGrams` is given whatever a record holds, vectors too."""
        self.encode, self.field, self.on_bad = encode, field, on_bad
        self._whole = not isinstance(encode, NGrams)
        self._skip = on_bad == "skip" and not isinstance(encode, NGrams | MissingEncoder)

    def content(self, record: Any) -> Any:  # noqa: ANN401
        """What of a record is compared: a text, a vector, or what the encoder takes."""
        if self.field is not None:
            record = self._named(record, self.field)
        if self._whole:
            return record
        if isinstance(record, bytes | bytearray):
            return record.decode("utf-8", "surrogateescape")
        if isinstance(record, str):
            return record
        if isinstance(record, Mapping):
            raise RecordError(
                f"a record with fields {field_names(record)} needs field='...', the one to compare"
            )
        return _vector(record)

    def are_texts(self, records: Sequence[Any] | Rows) -> bool:
        """Whether all records are texts, which are compared themselves."""
        return self.field is None and all(type(one) is str for one in records)

    def are_rows(self, records: Rows, width: int | None) -> bool:
        """Whether an array can be compared without encoding."""
        fits = records.ndim == 2 and records.dtype.kind in "fiub" and records.shape[1] > 0
        plain = self.field is None and not self._whole
        return plain and fits and records.shape[1] == (width or records.shape[1])

    def stored(self, record: Any) -> Any:  # noqa: ANN401
        """What is stored of a kept record; None of a vector, which the cache holds."""
        if isinstance(record, bytes | bytearray):
            return record.decode("utf-8", "replace")
        return record if self._whole or isinstance(record, str | Mapping) else None

    def encode_batch(self, records: list[Any] | Rows, width: int | None, first: int) -> Rows:
        """A row (L, D) for each record; raise at the first bad one, or skip it: a row of nan.

        ``first`` is the number of the first record, for the error.
        """
        contents: Sequence[Any] | Rows
        if isinstance(records, np.ndarray) and self.are_rows(records, width):
            rows = contents = records
        else:
            contents = [*records] if self.are_texts(records) else self._contents(records, first)
            rows = self.rows(contents, width)
        if self.on_bad == "skip":
            return rows
        for place in np.flatnonzero(faults(rows, "cosine")).tolist():
            reason = row_fault(rows[place], contents[place], rows.shape[1])
            raise RecordError(
                f"record {first + place} cannot be compared: {reason}; drop it, or use "
                "on_bad='skip' to count and skip such records"
            )
        return rows

    def rows(self, contents: Sequence[Any], width: int | None) -> Rows:
        """One row (L, D) per content; a row of nan for None, and for a vector of another width."""
        if len(contents) == 1 and isinstance(one := contents[0], np.ndarray) and not self._whole:
            return one[None] if width in (None, len(one)) else np.full((1, width or 1), np.nan)
        if all(type(one) is str for one in contents):
            rows = self._encode([*contents], width)
            if width in (None, rows.shape[1]):
                return rows
        texts = [place for place, one in enumerate(contents) if self._encoded(one)]
        vectors = [p for p, one in enumerate(contents) if isinstance(one, np.ndarray)]
        vectors = [] if self._whole else vectors
        coded = self._encode([contents[place] for place in texts], width) if texts else None
        if width is None:
            # The first good record sets the width.
            good = (p for p in vectors if not row_fault(contents[p], contents[p], None))
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

    def describe_fault(self, record: Any, width: int | None) -> str:  # noqa: ANN401
        """Why a record cannot be compared with rows of this width; empty if it can."""
        if record is None:
            return "it is empty"
        try:
            content = self.content(record)
        except RecordError as error:
            return str(error)
        if not self._whole:
            row = self.rows([content], width)[0]
            return row_fault(row, content, width or len(row))
        try:
            row = self._called([content])[0]
        except Exception as error:  # whatever an encoder of the user's raises
            return f"its encoding failed: {error!r}"
        if width not in (None, len(row)):
            return f"it is encoded in {len(row)} numbers, those before in {width}"
        return row_fault(row, None, None)

    def _contents(self, records: list[Any] | Rows, first: int) -> list[Any]:
        """What is compared of each record; None of a bad one that is skipped."""
        contents: list[Any] = []
        for number, record in enumerate(records, first):
            try:
                contents.append(self.content(record))
            except RecordError as error:
                if self.on_bad == "raise":
                    raise RecordError(f"record {number}: {error}") from error
                contents.append(None)
        return contents

    def _encoded(self, content: Any) -> bool:  # noqa: ANN401
        return content is not None and (self._whole or isinstance(content, str))

    def _encode(self, contents: list[Any], width: int | None) -> Rows:
        """Encode; the same text only once."""
        if not all(isinstance(one, str) for one in contents):
            return self._checked(contents, width)
        places: dict[str, int] = {}
        taken = [places.setdefault(text, len(places)) for text in contents]
        rows = self._checked([*places], width)
        return rows if len(places) == len(contents) else rows[taken]

    def _checked(self, contents: list[Any], width: int | None) -> Rows:
        """Rows of the encoder; if it fails on some that may be skipped, nan for those alone."""
        try:
            return self._called(contents)
        except MemoryError:
            raise
        except Exception:  # whatever an encoder of the user's raises
            if not self._skip:
                raise
        found = [self._alone(content) for content in contents]
        widths = (len(row) for row in found if row is not None)
        width = next(widths, 1) if width is None else width
        none = np.full(width, np.nan)
        return np.stack([none if row is None or len(row) != width else row for row in found])

    def _alone(self, content: Any) -> Rows | None:  # noqa: ANN401
        try:
            row: Rows = self._called([content])[0]
        except MemoryError:
            raise
        except Exception:
            return None
        return row

    def _called(self, contents: list[Any]) -> Rows:
        given = self.encode(contents)
        try:
            rows = np.asarray(given)
        except ValueError:  # rows of different widths
            rows = np.empty(0, object)
        if rows.ndim != 2 or len(rows) != len(contents) or rows.dtype.kind not in "fiub":
            seen = f"{rows.dtype} of shape {rows.shape}"
            if hasattr(given, "toarray"):
                seen = f"a sparse {type(given).__name__}; give its .toarray()"
            raise TypeError(
                f"the encoder must give a row of numbers for each of {len(contents)} records, "
                f"all of one width, got {seen}"
            )
        return rows

    def _named(self, record: Any, field: str) -> Any:  # noqa: ANN401
        if not isinstance(record, Mapping):
            raise RecordError(f"a record with a field {field!r} is expected, got {_short(record)}")
        if record.get(field) is None:
            problem = "is empty" if field in record else f"is missing; it has {field_names(record)}"
            raise RecordError(f"the field {field!r} of a record {problem}")
        return record[field]


def row_fault(row: Rows, content: Any, width: int | None) -> str:  # noqa: ANN401
    """Why a row cannot be compared; empty if it can."""
    if isinstance(content, np.ndarray) and width is not None and len(content) != width:
        return f"it has {len(content)} numbers, those before have {width}; use one encoder"
    if isinstance(content, str) and np.isnan(row).all():
        return (
            f"it is a text, and is not encoded in {len(row)} finite numbers as records before it; "
            "use one de-duplicator for texts and one for vectors"
        )
    if not np.isfinite(row).all():
        return "it has nan or inf in it"
    return "it is all zeros and has no direction" if faults(row[None], "cosine")[0] else ""


def _vector(record: Any) -> Rows:  # noqa: ANN401
    if hasattr(record, "as_py"):
        raise RecordError(f"give a value of Arrow as record.as_py(), got {_short(record)}")
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


def field_names(record: Mapping[Any, Any]) -> str:
    """The first fields of a record, for an error."""
    return ", ".join(map(repr, [*record][:8])) or "none"


def _short(record: Any) -> str:  # noqa: ANN401
    text = repr(record)
    return f"{type(record).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"
