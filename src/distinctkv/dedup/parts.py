"""Files of Parquet that are there when they are whole, and the folder of those of one job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..snapshot import sync_folder
from .written import OutputError

MARK = b"distinctkv"  # in the metadata of a part: the job that wrote it


class Folder:
    """Parts that one job writes; they are known by the name of the job, which is random."""

    def __init__(self, path: Path, job: str, parts: int) -> None:
        self.path, self.job, self.parts = path, job, parts

    def check(self) -> None:
        """Refuse a folder that has not the job's parts, or has others."""
        there = {path.name: path for path in self.path.glob("part-*")}
        ours = all(self._wrote(path) for path in there.values())
        if not self.parts and not (ours and self._left() <= {*there}):
            raise OutputError(
                f"{self.path} is not empty, and the state did not fill it; name another folder"
            )
        if not ours or any(_name(n) not in there for n in range(self.parts)):
            raise OutputError(
                f"{self.path} is not what the state says was written ({self.parts} parts); "
                "name the same output, or another state"
            )

    def _left(self) -> set[str]:
        """What is in the folder, but for parts that the job did not end."""
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        return {name for name in names if not name.endswith(f".{self.job}.part")}

    def make(self) -> None:
        """Have the folder, without what a run left that was killed before the state knew of it."""
        if not self.path.is_dir():
            self.path.mkdir()
            sync_folder(self.path.parent)
        self.target.unlink(missing_ok=True)
        for passing in self.path.glob(f".part-*.{self.job}.part"):
            passing.unlink(missing_ok=True)

    @property
    def target(self) -> Path:
        """The part that comes next."""
        return self.path / _name(self.parts)

    def _wrote(self, path: Path) -> bool:
        import pyarrow
        from pyarrow import parquet

        try:
            found = parquet.read_metadata(path).metadata or {}
        except (pyarrow.ArrowInvalid, OSError):
            return False
        return bool(found.get(MARK) == self.job.encode())


class Part:
    """A file of Parquet that is there when it is whole."""

    def __init__(self, path: Path, schema: Any, job: str) -> None:  # noqa: ANN401
        self.path, self.taken = path, 0  # rows that were looked at for it
        held = {key: value for key, value in (schema.metadata or {}).items() if key != MARK}
        self._schema = schema.with_metadata(held | ({MARK: job.encode()} if job else {}))
        self._passing = path.with_name(f".{path.name}.{job}.part" if job else f".{path.name}.part")
        self._writer: Any = None

    def take(self, rows: Any, kept: list[bool]) -> None:  # noqa: ANN401
        """Add those of some rows that are kept."""
        import pyarrow

        self.taken += len(kept)
        if any(kept):
            self._open().write_batch(rows.filter(pyarrow.array(kept, pyarrow.bool_())))

    @property
    def empty(self) -> bool:
        """Whether no row was kept."""
        return self._writer is None

    def commit(self) -> None:
        """Put it in its place, to stay there even if the power goes."""
        self._open().close()
        with self._passing.open("rb") as file:
            os.fsync(file.fileno())
        self._passing.replace(self.path)
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Leave nothing of what is not in its place."""
        if self._writer is not None:
            self._writer.close()
            self._passing.unlink(missing_ok=True)

    def _open(self) -> Any:  # noqa: ANN401
        from pyarrow import parquet

        self._writer = self._writer or parquet.ParquetWriter(self._passing, self._schema)
        return self._writer


def _name(number: int) -> str:
    return f"part-{number:05}.parquet"
