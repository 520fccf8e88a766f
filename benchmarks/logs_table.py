"""Write `results/logs.json` from what the three benchmarks of the log parser have left.

Run ``python -m benchmarks.logging_truth``, ``python -m benchmarks.log_holdout --fine`` and
``python -m benchmarks.logs``, then ``python -m benchmarks.logs_table``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distinctkv import snapshot

from .common import OUT
from .log_holdout import summary
from .switches import GRAINS

RESULTS = Path(__file__).parents[1] / "results" / "logs.json"
COMMANDS = ("logging_truth", "log_holdout --fine", "logs")
PARTS = {
    "report": "eleven programs that no rule was made for",
    "learn": "eighteen programs that rules were chosen on",
    "loghub": "twelve Loghub systems",
}
MEASURES = ("GA", "FGA", "PA", "FTA")
STREAMS = {"mixed": "numbers and names fresh"}
Row = list[str]


def part(score: float) -> str:
    """A part of one in three digits.

    >>> part(0.8201), part(1.0)
    ('.820', '1.000')
    """
    return f"{score:.3f}".removeprefix("0")


def lines(number: float) -> str:
    """A number of lines in three digits.

    >>> lines(132_456.7)
    '132,000'
    """
    return f"{float(f'{number:.3g}'):,.0f}"


def means(truth: Mapping[str, Any]) -> Iterable[Row]:
    """Scores and speed of each parser, over the logs of a part."""
    for name, title in PARTS.items():
        rates = truth[name]["lines per second"]
        for parser, rate in rates.items():
            scores = truth[name]["mean"][parser.partition(", add")[0]]
            yield [title, parser, *(part(scores[one]) for one in MEASURES), lines(rate)]


def each_log(truth: Mapping[str, Any]) -> Iterable[Row]:
    """The same of each log."""
    for name in PARTS:
        for log, row in truth[name]["logs"].items():
            ours, other = row["scores"]["ours"], row["scores"]["Drain3"]
            scores = (part(one[measure]) for measure in MEASURES for one in (ours, other))
            speeds = (row["speeds"][one] for one in ("ours, add", "Drain3", "Drain3, masked"))
            yield [log, *scores, *map(lines, speeds)]


def ratios(truth: Mapping[str, Any]) -> Iterable[Row]:
    """How many times as fast as a parser `add` is, over all lines of a part and on one log."""
    for name, title in PARTS.items():
        rates = truth[name]["lines per second"]
        for parser in ("ours, add_many", "Drain3", "Drain3, masked"):
            logs = truth[name]["logs"].values()
            each = [one["speeds"]["ours, add"] / one["speeds"][parser] for one in logs]
            whole = rates["ours, add"] / rates[parser]
            yield [title, parser, f"{whole:.2f}", f"{min(each):.2f}"]


def held_out(holdout: Mapping[str, Any]) -> Iterable[Row]:
    """Scores on systems that the rules were not chosen on."""
    for title, found in holdout["deals"].items():
        grain, way, _ = title.rsplit(", ", 2)
        yield summary(grain, way, len(GRAINS[grain]), found)


def streams(logs: Mapping[str, Any]) -> Iterable[Row]:
    """Long streams."""
    for name, found in logs.items():
        for parser, one in found.items() if name not in ("machine", "speed", "memory") else ():
            if isinstance(one, dict) and "rate" in one:
                yield [STREAMS.get(name, name), parser, part(one["GA"]), part(one["FGA"]),
                       str(one["groups"]), f"{one['lines']:,}", lines(one["rate"]),
                       lines(one["at the end"]), f"{one['ours is faster']:.2f}"]  # fmt: skip


def memory(logs: Mapping[str, Any]) -> Iterable[Row]:
    """Memory as a stream passes."""
    for name, rows in logs["memory"].items():
        for n_lines, megabytes, variants, templates in rows:
            yield [name, *(f"{one:,.0f}" for one in (n_lines, megabytes, variants, templates))]


def table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> dict[str, Any]:
    """A table as it is kept."""
    return {"title": title, "columns": list(columns), "rows": list(rows)}


def compact(result: dict[str, Any]) -> str:
    """JSON with a line for each row of a table."""
    tables = []
    for one in result.pop("tables"):
        rows = ",\n   ".join(json.dumps(row) for row in one.pop("rows"))
        tables.append(f'  {json.dumps(one)[:-1]}, "rows": [\n   {rows}\n  ]}}')
    head = json.dumps(result, indent=1)[:-2]
    return head + ',\n "tables": [\n' + ",\n".join(tables) + "\n ]\n}\n"


def main() -> None:
    """Read, arrange and write."""
    truth, holdout, logs = (
        json.loads((OUT / f"{command.split()[0]}.json").read_text()) for command in COMMANDS
    )
    both = [f"{one}{which}" for one in MEASURES for which in ("", " Drain3")]
    half = ("what counts as one rule", "rules", "chosen", "deals", "GA on the six")
    result = {
        "title": "The log parser",
        "date": truth["machine"]["date"][:10],
        "machine": "{machine}, one thread, CPU time; {versions}".format(**truth["machine"]),
        "command": "; ".join(f"python -m benchmarks.{command}" for command in COMMANDS),
        "tables": [
            table("Means over logs, one setting for each parser",
                  ("logs", "parser", *MEASURES, "lines/s"), means(truth)),
            table("How many times as fast `add` is", ("logs", "as", "all lines", "slowest log"),
                  ratios(truth)),
            table("Each log", ("log", *both, "add, lines/s", "Drain3", "Drain3, masked"),
                  each_log(truth)),
            table("Loghub systems that the rules were not chosen on",
                  (*half, "GA on the others", "sd", "worst", "FGA on the others", "GA >= .9"),
                  held_out(holdout)),
            table("Long streams", ("stream", "parser", "GA", "FGA", "groups", "lines", "lines/s",
                  "at the end", "ours is so many times as fast"), streams(logs)),
            table("Memory on the first of these streams",
                  ("ours", "lines", "MB", "variants", "templates"), memory(logs)),
        ],
    }  # fmt: skip
    snapshot.replace(RESULTS, compact(result).encode())


if __name__ == "__main__":
    main()
