"""Lines made to be slow: the time for a line must grow with its length and no faster.

Every mark, every pair of marks and what the rules look for, again and again in one line, of 10,000
and of 100,000 characters. Run ``python -m benchmarks.hardlines`` (about a minute).
"""

from __future__ import annotations

from functools import partial
from itertools import product

from distinctkv.logs import LogParser

from .common import keep, short, stamp, table, timed, verdict

LENGTHS = (10_000, 100_000)
MOST = 20.0  # times as long for a line ten times as long
SINGLE = "a0 =:,;|()[]{}<>@\"'%#!?*`.-/\\_+~$&\x1b\ue000\ue001\ue002é"
PAIRED = 'a0=:.-/\\({@" ,'
LOOKED_FOR = (
    *("a0 ", "={1", "=a{1", "=a(1", "00:", "::1", "ad ", "0-0", "a.b", "aa.0", "a@b.", "a://"),
    *("..a", '"a/0 ', '"a b', "'a b'", " for user a", "Jan 1 ", "1 Jan ", "1/Jan/", "Mon, Jan"),
    *("2005-06-", "\x1b[1", "\\\\a", "<*>", "<*> ", "[]", "=[]", "x00", "a=a(1,", "a.c:0 "),
    *("AB/0.", "0 KB/s ", "0 a "),
)


def take(line: str) -> None:
    """All that a parser does with a line."""
    parser = LogParser(max_line=len(line))
    assert parser.add(line).parameters is not None
    parser.match(line)


def main() -> None:
    """Measure every line and print the slowest."""
    facts = stamp()
    units = [*SINGLE, *map("".join, product(PAIRED, repeat=2)), *LOOKED_FOR]
    rows = []
    for unit in units:
        lines = [(unit * length)[:length] for length in LENGTHS]
        times = [min(timed(partial(take, line))[1].cpu for _ in range(2)) for line in lines]
        rows.append((times[1] / times[0], times[1], unit))
    rows.sort(reverse=True)
    table(["repeated", "growth", "seconds", "characters/s"],
          [[repr(unit), f"{growth:.1f}x", f"{seconds:.2f}", short(LENGTHS[1] / seconds)]
           for growth, seconds, unit in rows[:10]])  # fmt: skip
    verdict(f"{len(units)} lines, ten times as long: at most {rows[0][0]:.1f}x the time <= {MOST}x",
            rows[0][0] <= MOST)  # fmt: skip
    slowest = max(rows, key=lambda row: row[1])
    print(f"  the slowest takes {slowest[1]:.2f} s: {slowest[2]!r}")
    keep("hardlines", {"machine": facts, "rows": rows})


if __name__ == "__main__":
    main()
