"""Write the log of a small web shop: ``python examples/app_log.py > app.log``.

The log is made up, and the same in every run: 2,000 lines of eight kinds in 33 minutes. Two kinds
are rare; the last one first appears in the second half. The tutorials read this log.

    $ python examples/app_log.py 3
    2026-11-18 10:00:00 WARN [db] query 2542 took 3895 ms
    2026-11-18 10:00:01 INFO [web] GET /cart/6 from 10.0.0.9 served in 64 ms
    2026-11-18 10:00:02 INFO [auth] user bob logged in from 10.0.3.4
"""

import random
import sys
from datetime import datetime, timedelta
from typing import TextIO

USERS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
QUEUES = ("mail", "billing", "search", "images", "export", "audit")


def messages(draw: random.Random) -> list[tuple[float, str, str]]:
    """One message of each frequent kind with its weight and its level, values drawn."""
    number, user, host = draw.randint, draw.choice(USERS), f"10.0.{draw.randint(0, 9)}"
    return [
        (
            0.50,
            "INFO",
            f"[web] GET /cart/{number(1, 40)} from {host}.9 served in {number(9, 90)} ms",
        ),
        (0.20, "INFO", f"[auth] user {user} logged in from {host}.4"),
        (0.12, "INFO", f"[auth] user {user} logged out"),
        (0.08, "INFO", f"[queue] {draw.choice(QUEUES)} has {number(1, 400)} jobs waiting"),
        (0.06, "WARN", f"[db] query {number(1000, 9999)} took {number(900, 9000)} ms"),
        (
            0.04,
            "ERROR",
            f"[pay] card of order {number(10_000, 99_999)} declined: code {number(1, 60)}",
        ),
    ]


def line(index: int, draw: random.Random) -> str:
    """A line of the log: its time, its level, its message."""
    time = datetime(2026, 11, 18, 10) + timedelta(seconds=index)
    kinds = messages(draw)
    _, level, message = draw.choices(kinds, [weight for weight, *_ in kinds])[0]
    if index % 700 == 400:
        level, message = "INFO", f"[db] backup {index // 700 + 1} of 3 complete"
    if index in (1_402, 1_711):
        level, message = (
            "ERROR",
            f"[disk] /dev/sd{'ab'[index % 2]} reports {index % 7 + 1} bad sectors",
        )
    return f"{time} {level} {message}"


def main(lines: int = 2_000, file: TextIO | None = None) -> None:
    """Print the log."""
    draw = random.Random(7)
    for index in range(lines):
        print(line(index, draw), file=file)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
