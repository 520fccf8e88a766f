"""Logs made by code, and the command line on them as a process of its own."""

import json
import random
import subprocess
import sys

NAMES = [
    f"{a}{b}" for a in ("an", "bo", "ka", "lu", "mi", "ro") for b in ("na", "ris", "tel", "vo")
]
MESSAGES = (
    "Accepted password for {name} from 10.0.{n}.{n} port {n} ssh2",
    "session opened for user {name} by (uid={n})",
    "worker {n} took {n} ms to open /var/lib/{name}/{n}.db",
    "link is up",
    "link is down",
    "queue {name} has {n} messages, oldest {n} s",
    "cannot reach {name}.example.com: timed out after {n} s",
)

# What waits for seconds waits for less.
HASTE = "from distinctkv.logs import job\njob.PAUSE = job.PATIENCE = 0.1"


def log(n_lines, seed, header="2024-05-{day:02} {hour:02}:{minute:02}:{second:02} INFO "):
    """Lines of a log as text; templates go on appearing, ever more rarely."""
    draw = random.Random(seed)
    lines = []
    for number in range(n_lines):
        day, hour = number // 86_400 % 28 + 1, number // 3600 % 24
        start = header.format(day=day, hour=hour, minute=number // 60 % 60, second=number % 60)
        message = draw.choice(MESSAGES)
        if draw.random() < 5 / (number + 5):
            message = f"novelty {''.join(draw.choices('abcdefgh', k=6))} seen {{n}} times"
        values = {"name": draw.choice(NAMES), "n": draw.randrange(250)}
        lines.append(start + message.format(**values))
    return "".join(f"{line}\n" for line in lines)


def start(*arguments, before="", **given):
    """The command line in a process of its own, after some code."""
    code = f"{before}\nfrom distinctkv.cli import main\nmain()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **{**pipes, **given})


def run(*arguments, before="", content=None):
    """What it prints, as bytes, when it is left alone."""
    given = {} if content is None else {"stdin": subprocess.PIPE}
    process = start(*arguments, before=before, **given)
    printed, told = process.communicate(content, timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, printed, told)


def objects(printed):
    """JSON lines as objects."""
    return [json.loads(line) for line in printed.splitlines()]
