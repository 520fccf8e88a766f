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
    part = output.with_name(f".{output.name}.part")
    writer = None
    try:
        for path in paths:
            file = parquet.ParquetFile(path)
            if field not in file.schema_arrow.names:
                raise SourceError(f"{path} has no column {field!r}: {file.schema_arrow.names}")
            writer = writer or parquet.ParquetWriter(part, file.schema_arrow)
            for batch in file.iter_batches(ROWS):
                values = batch.column(field).to_pylist()
                verdicts = seen.add_many(values)
                kept = pyarrow.array([verdict.kept for verdict in verdicts], pyarrow.bool_())
                writer.write_batch(batch.filter(kept))
                yield [*zip(values, verdicts, strict=True)]
        if writer is not None:
            writer.close()
            part.replace(output)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OSError) as error:
        raise SourceError(f"cannot take Parquet from {', '.join(paths)}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
