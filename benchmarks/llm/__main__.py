"""``python -m benchmarks.llm``: contexts, ways to hold them, and a table at the end.

Ours has variants. The best of them is chosen on contexts that are then put away (``--choose``), and
reported on others. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from distinctkv.studies import llm_model

from ..common import stamp
from . import contest, presses, table
from .contest import Case, Row
from .fetch import get
from .variants import VARIANTS
from .way import Way

ASIDE = 1_000_000  # seeds from here on are for choosing


def main() -> None:
    """Measure what is missing, then print."""
    args = _arguments()
    folder = args.model or llm_model.find() or get()
    facts = stamp("torch", "transformers", "kvpress")
    code = contest.digest(str(folder), args.device, args.dtype, facts["versions"])
    tasks = _known(args.tasks or sorted(contest.tasks()), contest.tasks(), "task")
    _known(args.ways or [], [way.name for way in everyone()], "way")
    if not presses.ways():
        print("kvpress cannot be imported here: its presses are left out")
    todo = (folder, args.device, args.dtype, args.out, code)
    started = time.perf_counter()
    chosen = list(VARIANTS)
    if args.choose:
        cases = _cases(tasks, args.length, range(ASIDE, ASIDE + args.choose))
        ours = [way for way in contest.ways(VARIANTS) if way.name in VARIANTS]
        _run(todo, cases, [way.name for way in ours], args)
        rows = _of(contest.load(args.out, code), cases)
        best = table.choose([row for row in rows if row.part in args.kept], list(VARIANTS))
        chosen = list(dict.fromkeys(("ours", best)))
        n = len(cases)
        print(f"{len(VARIANTS)} variants of ours tried on {n} contexts put aside; best: {best}")
        print(table.show(rows, [], args.kept))
    cases = _cases(tasks, args.length, range(args.first, args.first + args.contexts))
    names = [
        way.name
        for way in everyone()
        if (way.name in chosen or way.name not in VARIANTS)
        and (not args.ways or way.name in args.ways)
    ]
    _run(todo, cases, names, args)
    rows = [row for row in _of(contest.load(args.out, code), cases) if row.way in (*names, "full")]
    print("\nSettings")
    for way in everyone():
        if way.name in names:
            print(f"  {way.name}: {way.setting}; reads the context {way.passes}x")
    print(table.show(rows, [name for name in chosen if name in names], args.kept))
    print(f"\n{len(rows)} rows of code {code} in {args.out}, {time.perf_counter() - started:.0f} s")


def _known(names: Sequence[str], there: Collection[str], kind: str) -> Sequence[str]:
    """The names, if all of them are."""
    odd = [name for name in names if name not in there]
    if odd:
        raise SystemExit(f"there is no {kind} {odd[0]!r} here; there are {'; '.join(there)}")
    return names


def everyone() -> list[Way]:
    """Every way there is."""
    return [*contest.ways(VARIANTS), *contest.sizing((0.5, 1.0, 2.0), {})]


def _cases(tasks: Sequence[str], lengths: Sequence[int], seeds: range) -> list[Case]:
    """Seed by seed, so that a run that is stopped has some of everything."""
    return [Case(task, length, seed) for seed in seeds for length in lengths for task in tasks]


def _of(rows: Sequence[Row], cases: Sequence[Case]) -> list[Row]:
    wanted = set(cases)
    return [row for row in rows if Case(row.task, row.length, row.seed) in wanted]


def _run(
    todo: tuple[Path, str, str, Path, str],
    cases: Sequence[Case],
    names: Sequence[str],
    args: argparse.Namespace,
) -> None:
    """Share the cases among processes; each loads the model once."""
    shares = [cases[start :: args.workers] for start in range(args.workers)]
    if args.workers == 1:
        work(*todo, shares[0], names, args.kept)
        return
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=work, args=(*todo, share, names, args.kept)) for share in shares
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a worker failed; what is done is kept, run again to go on")


def work(
    folder: Path,
    device: str,
    dtype: str,
    out: Path,
    code: str,
    cases: Sequence[Case],
    names: Sequence[str],
    parts: Sequence[float],
) -> None:
    """Measure what is missing of some cases."""
    done = contest.load(out, code)
    ways = [way for way in everyone() if way.name in names]
    left = {case: contest.missing(done, case, ways, parts) for case in cases}
    left = {case: wanted for case, wanted in left.items() if wanted}
    if not left:
        return
    model, tokenizer = llm_model.load(folder, device, dtype)
    for place, (case, wanted) in enumerate(left.items(), start=1):
        started = time.perf_counter()
        contest.append(out, contest.measure(model, tokenizer, case, wanted, code))
        taken = time.perf_counter() - started
        print(
            f"{place}/{len(left)} {case.task} {case.length} seed {case.seed}: {taken:.0f} s",
            flush=True,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    parser.add_argument("--contexts", type=int, default=8, help="of each task and length")
    parser.add_argument("--length", type=int, nargs="+", default=[1024], help="in tokens")
    parser.add_argument("--kept", type=float, nargs="+", default=[0.25, 0.125])
    parser.add_argument("--tasks", nargs="+", help="default: all whose texts are here")
    parser.add_argument("--ways", nargs="+", help="default: all")
    parser.add_argument("--choose", type=int, default=0, help="contexts of each task to choose on")
    parser.add_argument("--first", type=int, default=0, help="first seed to report")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--workers", type=int, default=1, help="processes, also on one GPU")
    parser.add_argument("--model", type=Path, help="a folder; default: found or fetched")
    parser.add_argument("--out", type=Path, default=Path("out/bench/llm.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
