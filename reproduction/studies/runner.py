"""Run a study, keep its result as JSON, find it again; what studies share at both ends.

A result is found again if nothing that it depends on has changed: settings, seeds, versions of
Python, NumPy, Numba and torch, and the code of the study with all that it imports. Claims are not
among these: they are judged whenever a result is read.

A study of real streams never downloads them: it asks `missing_data` which of those it needs are not
on this machine, by the names that ``python -m reproduction.data get`` takes. Without any of them it
returns `mark_unmeasured`; where only some rows need what is missing, those are ``Row(...,
measures={}, missing="mimic")``, and its `Result` has ``missing=``. The claims on them are then "not
measured": listed, counted apart, and neither held nor failed. ``settings`` has ``"data":
sources(...)``, so that a result is made again when a stream arrives or is read from another file.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import Queue, get_context
from pathlib import Path
from queue import Empty
from time import perf_counter

import numpy as np

import distinctkv
from distinctkv import snapshot

from .. import claims
from ..data import DataDamaged, data_sets, loghub
from ..result import Result, Row, Series, Setting
from . import NAMES, Progress, load
from .smoke import smaller

SEEDS, FEW_SEEDS = 5, 3  # of a study that trains, as the paper; of added rows in a quick run
ROOTS = {"distinctkv": Path(distinctkv.__file__).parent, "reproduction": Path(__file__).parents[1]}
# They run studies and judge numbers, but make none; so they are not part of a result's key.
NOT_IN_KEY = ("reproduction.studies.runner", "reproduction.studies", "reproduction.claims")


@dataclass(frozen=True, slots=True)
class Scale:
    """The part of a study's full size that is run; the code is the same at every scale.

    ``seeds`` is how many a study uses at least, where it would use fewer of those it is given.

    >>> QUICK.of(300), FULL.of(300), Scale("tiny", 0.001).of(300)
    (60, 300, 1)
    """

    name: str
    part: float
    seeds: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.part <= 1:
            raise ValueError(f"a scale is a part in (0, 1] of the full size, got {self.part}")

    def of(self, full: int) -> int:
        """This part of a full count, at least 1."""
        return max(1, round(full * self.part))


FULL = Scale("full", 1.0)
QUICK = Scale("quick", 0.2)
SMOKE = Scale(claims.SMOKE, 0.001)


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


# Results on disk


def run_study(
    name: str, seeds: Sequence[int], scale: Scale, folder: Path, progress: Progress
) -> Result:
    """Run a study and write its result to ``folder``, atomically.

    Where independent claims are inconclusive the study runs once more, with as many of the seeds as
    would settle them.
    """
    versions(name)  # of the code as it is now, not as it may be after hours
    with smaller(name) if scale == SMOKE else nullcontext():
        result = load(name).run(seeds, scale, progress)
    if wanted := claims.seeds_wanted(result, most=len(seeds)):
        result = load(name).run(seeds, replace(scale, seeds=wanted), progress)
    folder.mkdir(parents=True, exist_ok=True)
    snapshot.replace(folder / f"{name}.json", result.to_json().encode())
    return result


def read_result(name: str, folder: Path) -> Result | None:
    """The result of a study in ``folder``, if this code made it; its claims are judged again."""
    try:
        result = Result.from_json((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if result.study != name or result.versions != versions(name):
        return None
    return claims.attach(result)


def find_result(name: str, seeds: Sequence[int], scale: Scale, folder: Path) -> Result | None:
    """The result in ``folder``, if this code made it with these settings, and seeds or more."""
    result = read_result(name, folder)
    if result is None:
        return None
    n_used = max((one.n for row in result.rows for one in row.measures.values()), default=0)
    for one in (scale, replace(scale, seeds=n_used)):
        settings = load(name).settings(one)
        # A long study uses the first few of the seeds.
        most = settings.get("seeds_used")
        used = tuple(seeds)[: most if isinstance(most, int) else None]
        if result.seeds in (used, tuple(seeds)) and result.settings == settings:
            return result
    return None


def read_results(folder: Path) -> tuple[Result, ...]:
    """Every result in ``folder`` that this code made, whatever its settings."""
    found = (read_result(name, folder) for name in NAMES)
    return tuple(result for result in found if result)


# Several studies at a time

# Processor seconds of a quick run, by which the longest studies come first and the time left is
# estimated; two short ones come before them, so that a table is soon there.
FIRST = ("recall", "process")
SECONDS = {
    "recall": 20, "gates": 69, "hybrid": 41, "tau": 38, "real_frontier": 35, "five_models": 27,
    "mqar": 24, "adaptive_real": 23, "logs": 23, "domains": 21, "kmeans": 18, "frontier": 17,
    "companion": 15, "stress": 10, "cost": 10, "adaptive": 3, "process": 3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """How far a run is: the study that has just ended, if one has, and the time left."""

    finished: str | None
    n_done: int
    seconds_left: float


def run_studies(
    names: Sequence[str],
    seeds: Sequence[int],
    scale: Scale,
    folder: Path,
    processes: int,
    report: Callable[[Step], None],
) -> None:
    """Run studies, each in one of some processes, or in this one; ``report`` is called as they go.

    When a study has ended its result is in ``folder``. ``OSError`` and `DataDamaged` of a study
    name it; ``ChildProcessError`` says that a process has ended early.
    """
    order = sorted(names, key=lambda name: (name not in FIRST, -SECONDS.get(name, 10)))
    started, shares = perf_counter(), dict.fromkeys(order, 0.0)

    def tell(name: str | None, share: float) -> None:
        if name:
            shares[name] = share
        done = sum(share * SECONDS.get(one, 10) for one, share in shares.items())
        left = sum(SECONDS.get(one, 10) for one in order) - done
        pace = (perf_counter() - started) / done if done > 5 else 1 / max(1, processes)
        finished = name if share == 1 else None
        report(Step(finished, sum(share == 1 for share in shares.values()), left * pace))

    if processes > 1:
        for name, share, error in _events(order, seeds, scale, folder, processes):
            if error:
                raise error
            tell(name, share)
        return
    for name in order:
        _run_named(name, seeds, scale, folder, partial(tell, name))
        tell(name, 1.0)


def _run_named(
    name: str, seeds: Sequence[int], scale: Scale, folder: Path, say: Callable[[float], None]
) -> None:
    """Run a study, and about every second say which part of it is done."""
    said = perf_counter()

    def progress(done: int, total: int) -> None:
        nonlocal said
        if perf_counter() > said + 1:
            said = perf_counter()
            say(min(0.99, done / total))

    try:
        run_study(name, seeds, scale, folder, progress)
    except DataDamaged as error:
        raise DataDamaged(f"{name}: {error}") from error
    except OSError as error:
        raise OSError(f"{name}: {error}") from error


Event = tuple[str | None, float, Exception | None]  # a study, the part of it that is done


def _events(
    names: Sequence[str], seeds: Sequence[int], scale: Scale, folder: Path, processes: int
) -> Iterator[Event]:
    """What studies report; about every second, if only that nothing is new."""
    context = get_context("spawn")  # a fork would copy the threads of BLAS
    tasks: Queue[str | None] = context.Queue()
    events: Queue[Event] = context.Queue()
    for task in (*names, *[None] * processes):
        tasks.put(task)
    given = (tasks, events, seeds, scale, folder)
    workers = [context.Process(target=_work, args=given, daemon=True) for _ in range(processes)]
    n_done = 0
    try:
        for worker in workers:
            worker.start()
        while n_done < len(names):
            try:
                event = events.get(timeout=1)
            except Empty:
                if not any(worker.is_alive() for worker in workers):
                    raise ChildProcessError("a process that runs studies has ended early") from None
                event = None, 0.0, None
            n_done += event[1] == 1
            yield event
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def _work(
    tasks: Queue[str | None],
    events: Queue[Event],
    seeds: Sequence[int],
    scale: Scale,
    folder: Path,
) -> None:
    """Run studies until there are no more; an interrupt is for the process that waits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while name := tasks.get():
        try:
            _run_named(name, seeds, scale, folder, partial(_tell, events, name))
        except (DataDamaged, OSError) as error:
            events.put((name, 0.0, error))
        else:
            events.put((name, 1.0, None))


def _tell(events: Queue[Event], name: str, share: float) -> None:
    events.put((name, share, None))


# What a result depends on


def versions(study: str) -> Mapping[str, str]:
    """What the numbers of a study may depend on besides settings and seeds."""
    return {
        "distinctkv": distinctkv.__version__,
        "code": code_digest(study),
        "numpy": np.__version__,
        "numba": _version("numba"),
        "torch": _version("torch"),
        "scikit-learn": _version("scikit-learn"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


@cache
def code_digest(study: str) -> str:
    """A short digest of the modules that a study imports, directly or not, and of its findings."""
    digest = hashlib.sha256()
    for module in sorted(imported(f"{__package__}.{study}") - {*NOT_IN_KEY}):
        digest.update(f"{module}\n".encode())
        digest.update(source(module).read_bytes())
    findings = Path(__file__).parent / "findings" / f"{study}.md"
    digest.update(findings.read_bytes() if findings.exists() else b"")
    return digest.hexdigest()[:12]


def imported(module: str) -> set[str]:
    """The modules of this repository that ``module`` imports, with itself; nothing is executed.

    Imports inside functions count. ``from package import name`` counts as an import of the module
    from which the package takes the name, and not of all that the package imports.
    """
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name not in NOT_IN_KEY:
                waiting += _imports(name)
    return found


def _imports(module: str) -> Iterator[str]:
    """The modules of this repository that are named in the import statements of a module."""
    for node in ast.walk(syntax_tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _exists(alias.name))
        elif isinstance(node, ast.ImportFrom):
            home = _home(module, node)
            if _exists(home):
                yield from (_origin(home, alias.name) for alias in node.names)


def _origin(home: str, name: str) -> str:
    """The module that ``from home import name`` takes the name from."""
    if _exists(f"{home}.{name}"):
        return f"{home}.{name}"
    if source(home).name == "__init__.py":
        for node in ast.walk(syntax_tree(home)):
            if isinstance(node, ast.ImportFrom) and _exists(deeper := _home(home, node)):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return _origin(deeper, alias.name)
    return home


def _home(module: str, node: ast.ImportFrom) -> str:
    """The module that an import statement names, in full."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    drop = node.level - (source(module).name == "__init__.py")
    return ".".join([*parts[: len(parts) - drop], *filter(None, [node.module])])


@cache
def syntax_tree(module: str) -> ast.Module:
    """The parsed source of a module."""
    return ast.parse(source(module).read_bytes())


def _exists(module: str) -> bool:
    return module.split(".")[0] in ROOTS and source(module).exists()


def source(module: str) -> Path:
    """The file of a module, found without importing it."""
    package, *names = module.split(".")
    path = ROOTS[package].joinpath(*names)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


# How a study ends


def finish(result: Result, seconds: float) -> Result:
    """The result with its claims judged, and with what made it."""
    finished = replace(result, versions=versions(result.study), seconds=round(seconds, 2))
    return claims.attach(finished)


def mark_unmeasured(
    name: str, settings: Mapping[str, Setting], seeds: Sequence[int], missing: Sequence[str]
) -> Result:
    """The result of a study whose data is not on this machine: no rows, no claim judged."""
    study = load(name)
    result = Result(
        study=name,
        title=study.TITLE,
        question=study.QUESTION,
        findings=(),
        rows=(),
        settings=settings,
        seeds=tuple(seeds),
        missing=tuple(missing),
    )
    return finish(result, 0.0)


def missing_data(*names: str) -> tuple[str, ...]:
    """Those of the named streams that are not on this machine; nothing is fetched.

    ``loghub`` is here when any of its systems is, ``loghub/HDFS`` when that one is.
    """
    return tuple(name for name in names if not _files(name))


def sources(*names: str) -> str:
    """The files that each of the named streams is read from, or "missing", as a setting."""
    return "; ".join(f"{name}: {', '.join(_files(name)) or 'missing'}" for name in names)


def _files(name: str) -> tuple[str, ...]:
    if name == "loghub":
        return loghub.present()
    # A system of Loghub is here with its original truth; the corrected one comes second.
    return tuple(data_sets(name)[0].find() or ())


# Studies that train


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a study that trains has measured, and what it says of that."""

    rows: Sequence[Row]
    findings: tuple[str, ...]
    headings: Mapping[str, str]
    series: tuple[Series, ...] = ()


def device() -> str:
    """``cuda`` if there is a graphics card, else ``cpu``; it is among a study's settings."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def n_seeds(scale: Scale, *, added: bool = False) -> int:
    """How many of the seeds are used; by rows that are not in the paper, fewer in a quick run."""
    return FEW_SEEDS if added and scale.part < 1 else max(SEEDS, scale.seeds)


def run_training(
    name: str, seeds: Sequence[int], scale: Scale, measure: Callable[[tuple[int, ...]], Outcome]
) -> Result:
    """The result of ``measure`` for the seeds that the study uses."""
    study = load(name)
    settings = study.settings(scale)
    started, used = perf_counter(), tuple(seeds)[: int(str(settings["seeds_used"]))]
    outcome = measure(used)
    result = Result(
        study=name,
        title=study.TITLE,
        question=study.QUESTION,
        findings=outcome.findings,
        rows=tuple(outcome.rows),
        settings=settings,
        seeds=used,
        series=outcome.series,
        headings=outcome.headings,
    )
    return finish(result, perf_counter() - started)
