"""How many files a reader opens to follow one journey: ``python -m benchmarks.journeys``.

A journey is set up first (imports, objects, options), then run under a profiler. A file counts if
one of its functions runs. What runs below a `Cache` is a journey of its own and is not counted
again; all baselines count as one. A command adds its own file in `cli/` and `cli/io.py`;
``--state`` adds `snapshot.py`. ``--write`` puts the table into ``docs/architecture.md``;
``tests/test_journeys.py`` fails if the page and the code differ.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import numpy as np

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BASELINES = "reproduction/baselines/"
# The second has the decorator of methods of the first.
MEMORIES = ("/distinctkv/cache.py", "/distinctkv/inputs.py")
BEGIN, END = "<!-- journeys: begin -->", "<!-- journeys: end -->"
Step = Callable[[], object]
Journey = Callable[[Path], Step]


def write_chunk(_: Path) -> Step:
    """Write one chunk under a fixed threshold."""
    from distinctkv import Cache, Concentration

    cache = Cache(Concentration.fixed(0.3))
    return lambda: cache.write(np.eye(4))


def write_with_budget(_: Path) -> Step:
    """Write one chunk under a budget that follows surprise."""
    from distinctkv import Cache, Concentration

    cache = Cache(Concentration.surprise(base=8, gain=40))
    return lambda: cache.write(np.eye(4))


def parse_log(folder: Path) -> Step:
    """Parse a compressed log with headers."""
    from distinctkv.logs import LogParser
    from distinctkv.logs.job import Job

    log = folder / "app.log.gz"
    log.write_bytes(gzip.compress(b"Nov 18 10:00:00 host sshd[7]: session 7 opened\n" * 3))

    parser = LogParser()

    def run() -> None:
        job = Job([str(log)], parser, detect_header=True)
        for batch in job:
            job.parse(batch)
        list(job.templates())

    return run


def drop_near_repeats(folder: Path) -> Step:
    """Drop near-repeats of records in a JSON-lines file."""
    from distinctkv.dedup import Deduplicator
    from distinctkv.dedup.job import Job

    texts = folder / "texts.jsonl"
    texts.write_text('{"text": "the cat sat on the mat"}\n' * 3, encoding="utf-8")
    return lambda: list(Job([str(texts)], Deduplicator()))


def build_in_shards(_: Path) -> Step:
    """Build one cache from shards."""
    from distinctkv import Cache, Concentration, scale

    shards = [np.eye(4), np.eye(4)[::-1]]
    return lambda: scale.build(shards, lambda: Cache(Concentration.fixed(0.3)))


def training_step(_: Path) -> Step:
    """Train a language model of one layer with slots for one step."""
    import torch

    from distinctkv.nn import HybridLM
    from distinctkv.nn.train import Learner

    model = HybridLM(vocabulary=8, width=16, layers=["distinct"])
    learner, tokens = Learner(model), torch.tensor([[1, 2, 1, 2, 1]])
    return lambda: learner(tokens, tokens)


def study_to_rows(folder: Path) -> Step:
    """Run one study and write its rows as JSON."""
    from reproduction.studies import runner

    tiny = runner.Scale("tiny", 0.01)
    return lambda: runner.run_study("recall", (0, 1), tiny, folder, runner.silent)


def rows_to_page(folder: Path) -> Step:
    """Judge the claims of a result and write the page."""
    from reproduction.report import page
    from reproduction.studies import runner

    study_to_rows(folder)()
    return lambda: page.write(runner.read_results(folder), folder / "report.html")


def prefill(_: Path, device: str = "cpu") -> Step:
    """Read a text into the cache of a language model, and merge it."""
    import torch

    from distinctkv.hf import distinct_cache
    from tests.hf.models import build

    model, ids = build(0).to(device), torch.arange(400, device=device)[None] % 60 + 2
    cache = distinct_cache(model, kept=0.25)
    return torch.no_grad()(lambda: model(ids, past_key_values=cache))


def decode_step(_: Path) -> Step:
    """Decode one token with a cache that has slots; it waits to be merged."""
    import torch

    from distinctkv.hf import distinct_cache
    from tests.hf.models import build

    model, ids = build(0), torch.arange(400)[None] % 60 + 2
    cache = distinct_cache(model, kept=0.25)
    with torch.no_grad():
        model(ids, past_key_values=cache)
    return torch.no_grad()(lambda: model(ids[:, :1], past_key_values=cache))


def replayed_step(_: Path) -> Step:
    """Decode one token by a CUDA graph that is captured already."""
    import torch

    from distinctkv.hf import captured, distinct_cache
    from tests.hf.models import build

    model, ids = build(0).cuda(), torch.arange(400, device="cuda")[None] % 60 + 2
    cache, block = distinct_cache(model, kept=0.25), captured(model)
    block.__enter__()
    with torch.no_grad():
        for part in (ids, *[ids[:, :1]] * 4):
            model(part, past_key_values=cache)
    return torch.no_grad()(lambda: model(ids[:, :1], past_key_values=cache))


def exact_allocation(_: Path) -> Step:
    """Allocate slots for keys on a GPU."""
    import torch

    from distinctkv.nn.functional import allocate, unit

    keys = unit(torch.randn(2, 512, 2, 64, device="cuda"))
    return lambda: allocate(keys, 0.3)


# Each with the most files that its reader should open.
JOURNEYS: dict[str, tuple[Journey, int]] = {
    "Write a chunk: `Cache.write`, fixed tau": (write_chunk, 8),
    "Write a chunk under a surprise budget": (write_with_budget, 9),
    "Parse a line: `logs.job.Job` over app.log.gz": (parse_log, 10),
    "Drop a near-repeat: `dedup.job.Job` over texts.jsonl": (drop_near_repeats, 9),
    "Build in shards: `scale.build`": (build_in_shards, 7),
    "Prefill on a CPU: `distinct_cache(model, kept=.25)`": (prefill, 10),
    "A decode step on a CPU with that cache": (decode_step, 7),
    "One training step of a layer with slots": (training_step, 9),
    "A study to its rows: `recall`": (study_to_rows, 13),
    "Rows to the page": (rows_to_page, 11),
}

# These need a GPU; a test there checks their limits, and the page does not list them.
ON_CUDA: dict[str, tuple[Journey, int]] = {
    "Prefill on CUDA: `distinct_cache(model, kept=.25)`": (partial(prefill, device="cuda"), 13),
    "A decode step in a CUDA graph": (replayed_step, 7),
    "Exact allocation on CUDA": (exact_allocation, 7),
}


def trace(journey: Journey) -> set[str]:
    """Our files whose functions run, once everything is imported."""
    whole = journey in (write_chunk, write_with_budget)
    found: set[str] = set()
    below = 0  # calls of and below a memory

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal below
        if event not in ("call", "return"):
            return
        code = frame.f_code
        opaque = code.co_filename.endswith(MEMORIES) or BASELINES in code.co_filename
        if not whole and (below or opaque):
            found.add(code.co_filename if not below else "")
            below += 1 if event == "call" else -1
        elif event == "call" and code.co_name != "<module>":
            found.add(code.co_filename)

    with TemporaryDirectory() as folder:
        journey(Path(folder))()  # imports and compiles what is first needed now
    with TemporaryDirectory() as folder:
        step = journey(Path(folder))
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            step()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    ours = (Path(name) for name in found if name.startswith(str(ROOT)) and name.endswith(".py"))
    parts = (path.relative_to(ROOT) for path in ours)
    kept = (path for path in parts if path.parts[0] in ("src", "reproduction"))
    names = {path.as_posix() for path in kept}
    return (
        {name.removeprefix("src/distinctkv/") for name in names}
        if whole
        else {*map(_listed, names)}
    )


def _listed(file: str) -> str:
    if file.endswith(MEMORIES):
        return "cache.py"
    return f"{BASELINES}*" if BASELINES in file else file.removeprefix("src/distinctkv/")


def files_of_all(
    journeys: Mapping[str, tuple[Journey, int]] = JOURNEYS,
) -> list[tuple[str, list[str], int]]:
    """Each journey, the files that its reader opens, and the most there should be."""
    return [(name, sorted(trace(journey)), most) for name, (journey, most) in journeys.items()]


def table(counted: Sequence[tuple[str, list[str], int]]) -> str:
    """The journeys as a Markdown table."""
    lines = ["| journey | files | which |", "|---|---|---|"]
    for name, files, _ in counted:
        lines.append(f"| {name} | {len(files)} | {', '.join(f'`{file}`' for file in files)} |")
    return "\n".join(lines)


def with_table(page: str, text: str) -> str:
    """The page with the table between its two marks."""
    return re.sub(f"{BEGIN}.*{END}", f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    parser.add_argument("--cuda", action="store_true", help="count those that need a GPU")
    if parser.parse_args().cuda:
        print(table(files_of_all(ON_CUDA)))
        return
    made = table(files_of_all())
    if parser.parse_args().write:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)


if __name__ == "__main__":
    main()
