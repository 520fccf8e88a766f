"""Parquet to Parquet, in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..files.unpacking import SourceError
from .deduplicator import Deduplicator
from .verdict import Verdict

ROWS = 8192
MARK = b"PAR1"


def deduplicate_parquet(
    paths: Sequence[str], field: str, seen: Deduplicator, output: Path
) -> Iterator[list[tuple[Any, Verdict]]]:
    """Write the rows that are kept; values of the field with their verdicts, in batches."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise SourceError("to read Parquet, pip install 'distinctkv[scale]'") from error
    schema = _checked({path: _opened(path).schema_arrow for path in paths}, field)
    part = output.with_name(f".{output.name}.part")
    try:
        writer = parquet.ParquetWriter(part, schema)
        for path in paths:
            for batch in _opened(path).iter_batches(ROWS):
                values = batch.column(field).to_pylist()
                verdicts = seen.add_many(values)
                kept = pyarrow.array([verdict.kept for verdict in verdicts], pyarrow.bool_())
                writer.write_batch(batch.filter(kept))
                yield [*zip(values, verdicts, strict=True)]
        writer.close()
        _check_some(seen)
        part.replace(output)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OSError) as error:
        raise SourceError(f"cannot take Parquet from {', '.join(paths)}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _opened(path: str) -> Any:  # noqa: ANN401
    """A file of Parquet."""
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise SourceError(f"cannot take Parquet from {path}: {error}") from error


def _checked(schemas: dict[str, Any], field: str) -> Any:  # noqa: ANN401
    """The schema that all files share, if one of its columns is the field and can be compared."""
    (first, schema), *others = schemas.items()
    if field not in schema.names:
        raise SourceError(f"{first} has no column {field!r}: {schema.names}")
    if not _comparable(kind := schema.field(field).type):
        able = [repr(one.name) for one in schema if _comparable(one.type)]
        raise SourceError(
            f"the column {field!r} of {first} is {kind}, neither text nor a list of numbers; "
            f"those that are: {', '.join(able) or 'none'}"
        )
    for path, other in others:
        if not schema.equals(other):
            raise SourceError(
                f"{path} has other columns than {first}: {_told(other)}, not {_told(schema)}; "
                "de-duplicate it apart"
            )
    return schema


def _comparable(kind: Any) -> bool:  # noqa: ANN401
    """Whether values of an Arrow type are texts or lists of numbers."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _comparable(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = kind.value_type
        return bool(types.is_floating(value) or types.is_integer(value) or types.is_boolean(value))
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(is_text(kind) for is_text in texts)


def _check_some(seen: Deduplicator) -> None:
    """Refuse to write nothing of something."""
    if 0 < seen.seen == seen.skipped:
        raise SourceError(
            f"none of the {seen.seen:,} records can be compared; all are empty or bad"
        )


def _told(schema: Any) -> str:  # noqa: ANN401
    return ", ".join(f"{one.name}: {one.type}" for one in schema)
