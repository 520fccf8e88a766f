"""Columns of Parquet files: the same in all of them, and one that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..logs.unpacking import SourceError


def common(paths: Sequence[str], field: str, held: str | None) -> Any:  # noqa: ANN401
    """The schema that all files share, and share with what came before, if it has the field.

    Files are opened one after the other.
    """
    schema, first = None, "what came before"
    for path in paths:
        with opened(path) as file:
            found = plain(file.schema_arrow)
        if schema is None:
            schema = found
            _check_field(path, schema, field)
        held, first = (told(schema), path) if held is None else (held, first)
        if told(found) != held:
            raise SourceError(
                f"{path} has other columns than {first}: {told(found)}, not {held}; "
                "de-duplicate it apart"
            )
    return schema


def opened(path: str) -> Any:  # noqa: ANN401
    """A file of Parquet."""
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise SourceError(f"cannot take Parquet from {path}: {error}") from error


def plain(schema: Any) -> Any:  # noqa: ANN401
    """A schema without views, a type of texts whose values Arrow cannot choose from."""
    for place, column in enumerate(schema):
        if "_view" in str(column.type):
            schema = schema.set(place, column.with_type(_plain(column.type)))
    return schema


def _plain(kind: Any) -> Any:  # noqa: ANN401
    import pyarrow
    from pyarrow import types

    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pyarrow.large_string() if types.is_string_view(kind) else pyarrow.large_binary()
    if types.is_struct(kind):
        return pyarrow.struct([one.with_type(_plain(one.type)) for one in kind])
    if types.is_map(kind):
        return pyarrow.map_(_plain(kind.key_type), _plain(kind.item_type), kind.keys_sorted)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        held = kind.value_field.with_type(_plain(kind.value_type))
        if types.is_large_list(kind):
            return pyarrow.large_list(held)
        return pyarrow.list_(held, -1 if types.is_list(kind) else kind.list_size)
    return kind


def without_views(rows: Any) -> Any:  # noqa: ANN401
    """Rows as their plain schema has them."""
    held = rows.schema
    for place, column in enumerate(plain(held)):
        if column.type != held.field(place).type:
            rows = rows.set_column(place, column, rows.column(place).cast(column.type))
    return rows


def told(schema: Any) -> str:  # noqa: ANN401
    """Columns and their types, by which they are known again."""
    return ", ".join(map(str, schema))


def _check_field(path: str, schema: Any, field: str) -> None:  # noqa: ANN401
    if field not in schema.names:
        raise SourceError(f"{path} has no column {field!r}: {schema.names}")
    if schema.names.count(field) > 1:
        raise SourceError(
            f"{path} has two columns named {field!r}: {schema.names}; rename one of them"
        )
    if not _comparable(kind := schema.field(field).type):
        able = [repr(one.name) for one in schema if _comparable(one.type)]
        raise SourceError(
            f"the column {field!r} of {path} is {kind}, neither text nor a list of numbers; "
            f"those that are: {', '.join(able) or 'none'}"
        )


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
