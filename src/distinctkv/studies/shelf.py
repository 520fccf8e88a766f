"""Results on disk: one JSON file per study, and which code made it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from .. import __version__, snapshot
from . import load
from .claims import check
from .result import Result
from .study import Progress, Scale


def measure(
    name: str, seeds: Sequence[int], scale: Scale, folder: Path, progress: Progress
) -> Result:
    """Run a study and put its result in ``folder``, whole or not at all."""
    result = load(name).run(seeds, scale, progress)
    folder.mkdir(parents=True, exist_ok=True)
    snapshot.replace(folder / f"{name}.json", result.to_json().encode())
    return result


def find(name: str, seeds: Sequence[int], scale: Scale, folder: Path) -> Result | None:
    """The result in ``folder``, if this code made it with these settings and seeds."""
    try:
        result = Result.from_json((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = (
        result.versions == versions()
        and result.seeds == tuple(seeds)
        and result.settings == load(name).settings(scale)
    )
    return result if same else None


def conclude(result: Result, seconds: float) -> Result:
    """The result with its claims checked, and stamped with what made it."""
    return replace(
        result,
        claims=check(result.study, result.rows),
        versions=versions(),
        seconds=round(seconds, 2),
    )


def versions() -> Mapping[str, str]:
    """What a number may depend on besides settings and seeds."""
    return {
        "distinctkv": __version__,
        "code": code_digest(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


@cache
def code_digest() -> str:
    """A short digest of the package's code and claims, the report and the command line apart."""
    root = Path(str(files(__package__.split(".")[0])))
    sources = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".toml"))
    digest = hashlib.sha256()
    for path in sources:
        name = path.relative_to(root)
        if name.parts[0] not in ("report", "cli.py"):
            digest.update(f"{name.as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
