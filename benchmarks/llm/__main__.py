"""``python -m benchmarks.llm``: contexts, ways to hold them, and a table at the end.

Ours has variants. The best of them is chosen on contexts that are then put away (``--choose``), and
reported on others. A run that was stopped goes on where it was. ``--report`` runs nothing: it
prints the tables, and which aims were met, from files of rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

from ..common import stamp
from . import aims, contest, page, presses, rows, selection, table
from . import model as llm_model
from .fetch import get
from .rows import ASIDE, FULL, Case, Row
from .variants import SECOND, SIZED, VARIANTS
from .ways import everyone
from .worker import Todo, run


def main() -> None:
    """Measure what is missing, then print."""
    args = _arguments()
    if args.report:
        report(args.report, args.ours)
        return
    ends = time.time() + args.deadline
    folder = args.model or llm_model.find() or get()
    facts = stamp("torch", "transformers", "kvpress")
    code = rows.digest(str(folder), args.device, args.dtype, facts["versions"])
    there = contest.tasks()
    tasks = _known(args.tasks or sorted(there), there, "task")
    _known([*(args.ways or []), *args.ours], [way.name for way in everyone()], "way")
    if not presses.ways():
        print("kvpress cannot be imported here: its presses are left out")
    todo = Todo(
        folder, args.device, args.dtype, args.out, code, ends, args.first + args.few, args.share
    )
    started = time.perf_counter()
    chosen = list(args.ours)
    if args.choose:
        cases = evenly(Plan(tasks, args.length, [args.choose], ASIDE + args.first))
        names = args.ways or [*SECOND, *SIZED]
        run(todo, cases, names, args.kept, args.workers)
        found = _of(rows.load(args.out, code), cases)
        some = [name for name in names if name in VARIANTS] or ["ours"]
        best = table.choose([row for row in found if row.part in args.kept], some)
        chosen = list(dict.fromkeys((*chosen, best)))
        print(selection.compact(found, some[0], best))
    more = _known(args.more, there, "task")
    later = args.first + (0 if args.few == inf else int(args.few))  # without weak rivals
    cases = evenly(
        Plan(tasks, args.length, args.contexts, args.first),
        Plan(more, args.length, args.of_more, later),
    )
    names = [
        way.name
        for way in everyone()
        if way.name in (args.ways or [])
        or (not args.ways and (way.name in chosen or way.name not in tried()))
    ]
    run(todo, cases, names, args.kept, args.workers)
    found = [row for row in _of(rows.load(args.out, code), cases) if row.way in (*names, FULL)]
    if found and args.brief:
        print(table.brief(found))
    elif found:
        print("\nSettings")
        for way in everyone():
            if way.name in names:
                print(f"  {way.name}: {way.setting}; reads the context {way.passes}x")
        print(table.show(found, [name for name in chosen if name in names], args.kept))
    print(
        f"\n{len(found)} rows of code {code} in {args.out}, {time.perf_counter() - started:.0f} s"
    )


def report(paths: Sequence[Path], ours: Sequence[str]) -> None:
    """Tables in Markdown, and the aims, from rows of whatever code."""
    found = [row for path in paths for row in rows.load(path)]
    reported = [row for row in found if row.seed < ASIDE]
    aside = [row for row in found if row.seed >= ASIDE]
    if aside:
        print("### Put aside, to choose by\n")
        print(selection.compact(aside, "ours", table.choose(aside, list(VARIANTS))))
    if reported:
        print("\n### Reported\n")
        mine = [name for name in ours if name in VARIANTS]
        print(page.markdown(reported, mine))
        print(aims.judge(reported, mine))


def _known(names: Sequence[str], there: Collection[str], kind: str) -> Sequence[str]:
    """The names, if all of them are."""
    odd = [name for name in names if name not in there]
    if odd:
        raise SystemExit(f"there is no {kind} {odd[0]!r} here; there are {'; '.join(there)}")
    return names


def tried() -> set[str]:
    """Ways of ours that are shown when they are named."""
    return {way.name for way in everyone() if way.ours}


class Plan(NamedTuple):
    """So many contexts of each task, for each length, from a first seed on."""

    tasks: Sequence[str]
    lengths: Sequence[int]
    counts: Sequence[int]
    first: int

    def cases(self) -> list[tuple[float, Case]]:
        """Contexts, and what part of those of their task and length lies before them."""
        each = [*self.counts] * (len(self.lengths) if len(self.counts) == 1 else 1)
        return [
            (i / n, Case(task, length, self.first + i))
            for length, n in zip(self.lengths, each, strict=True)
            for i in range(n)
            for task in self.tasks
        ]


def evenly(*plans: Plan) -> list[Case]:
    """The contexts of all plans, so that a run that is stopped has some of everything."""
    found = [one for plan in plans for one in plan.cases()]
    return [case for _, case in sorted(found, key=lambda one: one[0])]


def _of(found: Sequence[Row], cases: Sequence[Case]) -> list[Row]:
    wanted = set(cases)
    return [row for row in found if Case(row.task, row.length, row.seed) in wanted]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm", description=__doc__)
    parser.add_argument(
        "--contexts",
        type=int,
        nargs="+",
        default=[8],
        help="of each task; one number, or one a length",
    )
    parser.add_argument(
        "--more", nargs="+", default=[], help="tasks to add, with other numbers of contexts"
    )
    parser.add_argument(
        "--of-more", type=int, nargs="+", default=[8], help="contexts of each task in --more"
    )
    parser.add_argument(
        "--few", type=float, default=inf, help="contexts for weak rivals; all, unless told"
    )
    parser.add_argument("--length", type=int, nargs="+", default=[1024], help="in tokens")
    parser.add_argument("--kept", type=float, nargs="+", default=[0.25, 0.125], help="parts")
    parser.add_argument("--tasks", nargs="+", help="default: all whose texts are there")
    parser.add_argument(
        "--ways",
        nargs="+",
        help="default: --ours and all rivals, variants to choose from; else these",
    )
    parser.add_argument(
        "--ours", nargs="+", default=["ours"], help="variants and thresholds to report"
    )
    parser.add_argument("--choose", type=int, default=0, help="contexts of each task to choose on")
    parser.add_argument(
        "--first", type=int, default=0, help="first seed to report, or to choose on"
    )
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", help="of the model")
    parser.add_argument("--workers", type=int, default=1, help="processes, also on one GPU")
    parser.add_argument("--share", type=float, default=0.9, help="of a GPU's memory, all workers")
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds; no case begins after")
    parser.add_argument("--brief", action="store_true", help="a short table at the end")
    parser.add_argument("--report", type=Path, nargs="+", help="print what these rows say, only")
    parser.add_argument("--model", type=Path, help="a folder; default: found or fetched")
    parser.add_argument("--out", type=Path, default=Path("out/bench/llm.jsonl"), help="rows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
