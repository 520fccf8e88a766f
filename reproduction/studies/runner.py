"""Results on disk: one JSON file per study, and which code made it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

import numpy as np

from distinctkv import __version__, snapshot

from . import NAMES, claims, load
from .result import Result, Setting
from .study import Progress, Scale

# Parts of the package that no study's number depends on.
ASIDE = ("report", "cli", "hf", "scale")


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
    settings = load(name).settings(scale)
    # A long study uses the first few of the seeds.
    most = settings.get("seeds_used")
    used = tuple(seeds)[: most if isinstance(most, int) else None]
    same = (
        result.study == name
        and result.versions == versions()
        and result.seeds in (used, tuple(seeds))
        and result.settings == settings
    )
    return result if same else None


def held(folder: Path) -> dict[str, Result]:
    """Every result in ``folder`` that this code made, whatever its scale, by study."""
    found = {}
    for name in NAMES:
        try:
            result = Result.from_json((folder / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if result.study == name and result.versions == versions():
            found[name] = result
    return found


def unmeasured(
    name: str, settings: Mapping[str, Setting], seeds: Sequence[int], absent: Sequence[str]
) -> Result:
    """The result of a study whose data is not on this machine: no rows, no claim judged."""
    study = load(name)
    result = Result(
        study=name,
        title=study.TITLE,
        question=study.QUESTION,
        reading=(),
        rows=(),
        settings=settings,
        seeds=tuple(seeds),
        absent=tuple(absent),
    )
    return conclude(result, 0.0)


def conclude(result: Result, seconds: float) -> Result:
    """The result with its claims checked, and stamped with what made it."""
    name, rows = result.study, result.rows
    judged = claims.check(name, rows) if rows else claims.unmeasured(name)
    return replace(
        result,
        claims=judged,
        versions=versions(),
        seconds=round(seconds, 2),
    )


def versions() -> Mapping[str, str]:
    """What a number may depend on besides settings and seeds."""
    return {
        "distinctkv": __version__,
        "code": code_digest(),
        "numpy": np.__version__,
        "numba": _version("numba"),
        "torch": _version("torch"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


@cache
def code_digest() -> str:
    """A short digest of the code and claims that a study's numbers can depend on."""
    root = Path(str(files(__package__.split(".")[0])))
    sources = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".toml"))
    digest = hashlib.sha256()
    for path in sources:
        name = path.relative_to(root)
        if name.parts[0] not in ASIDE:
            digest.update(f"{name.as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
