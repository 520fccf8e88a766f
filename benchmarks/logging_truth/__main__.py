"""Score log parsers on lines whose templates are known, each with one setting for all lines.

The *report* part is the programs of ``programs.py``: no rule of ours is chosen on them. The *learn*
part is ``logging_truth_dev.jsonl.xz`` in the folder ``DISTINCTKV_DATA``, the third the systems of
Loghub; rules are chosen on both. Programs are installed from PyPI into an environment of their own
in ``out/bench/logging_truth`` and run there once (two minutes; ``--again`` runs them anew).

GA, FGA, PA and FTA are those of ``reproduction.studies.log_parsers``, over the lines whose template
has a word of its own. Ours is scored after `templates()`, and by `match` without that call; lines
and logs on which it breaks a promise are counted. Speeds are lines per second of CPU, from an empty
start; ``add`` is line by line, as Drain3 reads.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from distinctkv.logs import LogParser
from distinctkv.logs.rendering import align
from distinctkv.logs.tokenizer import clean
from reproduction.data import loghub
from reproduction.studies.log_parsers import (
    DRAIN3_DEFAULT,
    DRAIN3_MASKED,
    Parse,
    drain3,
    parse,
    parse_with_drain3,
    score,
)

from ..common import OUT, keep, race, short, stamp, table
from .programs import PROGRAMS, REQUIREMENTS

FOLDER = OUT / "logging_truth"
LEARN = "logging_truth_dev.jsonl.xz"
SECONDS = 90  # for one program
MEASURES = ("GA", "FGA", "PA", "FTA")


class Lines(NamedTuple):
    """Lines of one program; the truth of a line out of scores is None."""

    name: str
    lines: list[str]
    truth: list[str | None]
    texts: list[str]

    @classmethod
    def of(cls, name: str, rows: Sequence[Mapping[str, Any]]) -> Lines:
        """Captured rows; a template is a group."""
        texts = [row["template"] for row in rows]
        truth = [None if row["wild"] else row["template"] for row in rows]
        return cls(name, [row["message"] for row in rows], truth, texts)


def report_part(again: bool) -> list[Lines]:
    """The lines of our programs, captured if they are not there yet."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = []
    for name in PROGRAMS:
        path = FOLDER / f"{name}.jsonl"
        if again or not path.exists():
            _capture(name, path)
        found.append(Lines.of(name, _rows(path.read_bytes())))
    return found


def _capture(name: str, path: Path) -> None:
    python, part = FOLDER / "env" / "bin" / "python", path.with_suffix(".part")
    if not python.exists():
        print("installing the programs ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER / "env"], check=True)
        install = subprocess.run([python, "-m", "pip", "install", "-q", *REQUIREMENTS])
        if install.returncode:
            python.unlink()
            raise SystemExit("the programs could not be installed; pip says why above")
    part.unlink(missing_ok=True)
    script = Path(__file__).with_name("programs.py").resolve()
    print(f"running {name} ...", flush=True)
    given: dict[str, Any] = {"timeout": SECONDS, "capture_output": True, "text": True}
    done = subprocess.run([python.absolute(), script, name, part.absolute()], **given)
    if done.returncode:
        raise SystemExit(f"{name} did not run:\n{done.stderr[-2000:]}")
    os.replace(part, path)


def learn_part() -> list[Lines]:
    """The programs that rules are chosen on, if they are on this machine."""
    path = Path(os.environ.get("DISTINCTKV_DATA", ".")) / LEARN
    if not path.exists():
        print(f"no {LEARN} in DISTINCTKV_DATA: this part is left out")
        return []
    programs: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(lzma.decompress(path.read_bytes())):
        programs.setdefault(row["program"], []).append(row)
    return [Lines.of(name, rows) for name, rows in sorted(programs.items())]


def loghub_part() -> list[Lines]:
    """The systems of Loghub, without their headers."""
    logs = map(loghub.load, loghub.present())
    return [Lines(log.system, [*log.lines], [*log.event_ids], [*log.templates]) for log in logs]


def _rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def parse_by_match(lines: Sequence[str]) -> Parse:
    """What our parser answers at the end of a stream if nobody calls `templates`."""
    parser = LogParser()
    for line in lines:
        parser.add(line)
    matches = [parser.match(line) for line in lines]
    groups = [-1 if one is None else one.id for one in matches]
    return groups, ["" if one is None else one.template for one in matches]


def _add_each(make: Callable[[], Callable[[str], Any]], lines: Iterable[str]) -> None:
    add = make()
    for line in lines:
        add(line)


PARSERS: Mapping[str, Callable[[Sequence[str]], Parse]] = {
    "ours": parse,
    "ours, by match": parse_by_match,
    "Drain3": partial(parse_with_drain3, setting=DRAIN3_DEFAULT),
    "Drain3, masked": partial(parse_with_drain3, setting=DRAIN3_MASKED),
}
SPEEDS: Mapping[str, Callable[[Sequence[str]], Any]] = {
    "ours, add": partial(_add_each, lambda: LogParser().add),
    "ours, add_many": lambda lines: LogParser().add_many(lines),
    "Drain3": partial(_add_each, lambda: drain3(DRAIN3_DEFAULT)),
    "Drain3, masked": partial(_add_each, lambda: drain3(DRAIN3_MASKED)),
}


def scores(one: Lines) -> dict[str, dict[str, float]]:
    """The measures of each parser on some lines."""
    scored = [place for place, truth in enumerate(one.truth) if truth is not None]
    result = {}
    for name, run in PARSERS.items():
        groups, texts = run(one.lines)
        columns = (groups, texts, one.truth, one.texts)
        found = score(*([column[place] for place in scored] for column in columns))  # type: ignore[arg-type]
        result[name] = dict(zip(MEASURES, found[:4], strict=True))
    return result


def broken(one: Lines) -> dict[str, int]:
    """How often a promise of our parser is broken; 0 each if it holds."""
    parser = LogParser()
    ids = parser.add_many(one.lines).tolist()
    rows = {row.id: row for row in parser.templates()}
    matches = [parser.match(line) for line in one.lines]
    unfit = sum(
        align(rows[number].template, clean(line)) is None
        for number, line in zip(ids, one.lines, strict=True)
    )
    others = sum(
        match is None or match.id != number for match, number in zip(matches, ids, strict=True)
    )
    shuffled = Random(0).sample(one.lines, len(one.lines))
    again, *parts = (LogParser() for _ in range(4))
    again.add_many(shuffled)
    for place, part in enumerate(parts):
        part.add_many(shuffled[place::3])
        if place:
            parts[0].absorb(part)
    whole = _texts(parser)
    return {
        "lines that do not fit their template": unfit,
        "lines that match finds elsewhere": others,
        "logs whose counts do not add up": sum(whole.values()) != len(one.lines),
        "logs that another order changes": _texts(again) != whole,
        "logs that three merged parsers change": _texts(parts[0]) != whole,
    }


def _texts(parser: LogParser) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in parser.templates():
        counts[row.template] += row.count
    return counts


def speeds(one: Lines) -> dict[str, float]:
    """Lines per second of CPU, the best of some runs."""
    runs = {name: partial(run, one.lines) for name, run in SPEEDS.items()}
    raced = race(runs, rounds=3, patience=1.0)
    return {name: len(one.lines) / run.best.cpu for name, run in raced.items()}


def measure(title: str, part: Sequence[Lines], verbose: bool) -> dict[str, Any]:
    """Scores and speeds of a part, printed."""
    n_lines = sum(len(one.lines) for one in part)
    print(f"\n{title}: {len(part)} logs, {short(n_lines)} lines")
    found = {one.name: {"scores": scores(one), "speeds": speeds(one)} for one in part}
    if verbose:
        rows = [
            [name, len(one.lines), *(f"{row['scores'][parser]['GA']:.3f}" for parser in PARSERS),
             *(f"{row['scores'][parser]['FGA']:.3f}" for parser in PARSERS)]
            for one, (name, row) in zip(part, found.items(), strict=True)
        ]  # fmt: skip
        table(["", "lines", *(f"{parser} {m}" for m in MEASURES[:2] for parser in PARSERS)], rows)
    means = {
        parser: {m: fmean(row["scores"][parser][m] for row in found.values()) for m in MEASURES}
        for parser in PARSERS
    }
    rows = [[parser, *(f"{mean[m]:.3f}" for m in MEASURES)] for parser, mean in means.items()]
    table(["mean over logs", *MEASURES], rows)
    promises: Counter[str] = Counter()
    for one in part:
        promises.update(broken(one))
    print("  " + ", ".join(f"{count} {what}" for what, count in promises.items()))
    rates = {
        name: n_lines / sum(len(one.lines) / found[one.name]["speeds"][name] for one in part)
        for name in SPEEDS
    }
    slowest = {
        name: min(row["speeds"]["ours, add"] / row["speeds"][name] for row in found.values())
        for name in SPEEDS
    }
    table(["all lines", "lines/s", "add is faster", "at least"],
          [[name, short(rate), f"{rates['ours, add'] / rate:.2f}x", f"{slowest[name]:.2f}x"]
           for name, rate in rates.items()])  # fmt: skip
    return {"mean": means, "lines per second": rates, "broken": promises, "logs": found}


def main() -> None:
    """Capture, score and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.logging_truth", description=__doc__)
    parser.add_argument("--again", action="store_true", help="run the programs anew")
    parser.add_argument("--verbose", action="store_true", help="a row for each log")
    parser.add_argument("--part", choices=("report", "learn", "loghub"), help="only this part")
    asked = parser.parse_args()
    facts = stamp("drain3")
    parts: dict[str, Callable[[], list[Lines]]] = {
        "report": lambda: report_part(asked.again),
        "learn": learn_part,
        "loghub": loghub_part,
    }
    results = {
        name: measure(name, part, asked.verbose)
        for name, load in parts.items()
        if asked.part in (None, name) and (part := load())
    }
    keep("logging_truth", {"machine": facts, **results})


if __name__ == "__main__":
    main()
