"""Run the code of a page and compare what it prints: `python docs/pages.py [--write] PAGE...`.

A fence that begins with ```python is run, all of a page as one program; one that begins with
```console is a shell session: lines that begin with "$ " are commands, "> " continues one. A
```text fence with the title "Output" holds what the python fence before it printed. Three dots
stand for any text. Times are not compared, nor is an "Output of one run", which differs between
machines.

`--write` puts what was printed into the page. Fences of other kinds (py, sh) are not run.

`<!-- slow -->` before a fence leaves the rest of the page to the slow tests; `<!-- needs NAME -->`
leaves the rest out where `available` does not have the name.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(
    r"(?:^<!-- (?P<mark>slow|needs [\w-]+) -->\n+)?"
    r"^```(?P<kind>python|console|text title=\"Output(?P<once> of one run)?\")[^\n]*\n"
    r"(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Times and rates differ from run to run: they are not compared.
TIMING = re.compile(r'[\d,.]+(?= (?:s|(?:lines|records|tokens)/s)\b)|(?<="time": ")[^"]+')
SCREEN = 40, 96  # rows and columns of the terminal
ROOT = Path(__file__).resolve().parents[1]


class Block(NamedTuple):
    """A fence: its kind, its text, where that begins, what it waits for, if it may differ."""

    kind: str
    body: str
    start: int
    mark: str
    once: bool


class Mismatch(NamedTuple):
    """Where a page shows something else than its code prints."""

    start: int
    shown: str
    printed: str


def blocks(text: str) -> list[Block]:
    r"""The fences of a page that are run or compared.

    >>> [block.kind for block in blocks("```python\nx = 1\n```\n```py\ny\n```\n")]
    ['python']
    """
    return [
        Block(
            found["kind"].split()[0],
            found["body"],
            found.start("body"),
            found["mark"] or "",
            bool(found["once"]),
        )
        for found in FENCE.finditer(text)
    ]


def matches(shown: str, printed: str) -> bool:
    r"""Whether the text of a page is what was printed; three dots stand for anything.

    >>> matches("took ... s\n", "took 3.1 s\n"), matches("a\n", "b\n")
    (True, False)
    """
    shown, printed = (TIMING.sub("0", _lines(text)) for text in (shown, printed))
    parts = [re.escape(part) for part in shown.split("...")]
    return re.fullmatch(".*?".join(parts), printed, re.DOTALL) is not None


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def run(
    path: Path,
    folder: Path,
    slow: bool = False,
    available: Collection[str] = (),
    exact: bool = False,
) -> list[Mismatch]:
    """Run a page in a folder; return where it shows something else than was printed.

    ``exact`` compares an output of one run, too.
    """
    text = path.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": path.stem}
    found: list[Mismatch] = []
    printed = ""
    with _inside(folder):
        for block in blocks(text):
            if (block.mark == "slow" and not slow) or (
                block.mark.startswith("needs ") and block.mark[6:] not in available
            ):
                break
            if block.kind == "python":
                _check_shown(path, printed)
                line = text.count("\n", 0, block.start)  # a traceback names the line of the page
                out = io.StringIO()
                with redirect_stdout(out):
                    exec(compile("\n" * line + block.body, str(path), "exec"), names)  # noqa: S102
                printed = out.getvalue()
                continue
            if block.kind == "console":
                printed = "".join(_session(block.body, folder))
            elif not printed:
                raise AssertionError(f"{path}: the page shows an output, and nothing is printed")
            if (exact or not block.once) and not matches(block.body, printed):
                found.append(Mismatch(block.start, block.body, printed))
            printed = ""
    _check_shown(path, printed)
    return found


def _check_shown(path: Path, printed: str) -> None:
    if printed:
        raise AssertionError(f"{path} does not show what its code prints: {printed}")


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _session(body: str, folder: Path) -> Iterator[str]:
    """Each command of a session as it stands, then what a terminal shows of it."""
    commands = re.findall(r"^\$ (.*(?:\n> .*)*)$", body, re.MULTILINE)
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    for name in ("examples", "reproduction"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    for name, call in (("python", ""), ("distinctkv", "-m distinctkv ")):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call}"$@"\n', encoding="utf-8")
        tool.chmod(0o755)
    surroundings = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),  # for `python -m reproduction`, which is not installed
        "TERM": "vt100",
        "NO_COLOR": "1",
    }
    for command in commands:
        unprompted = command.replace("\n> ", "\n")
        yield f"$ {command}\n{_terminal(unprompted, folder, surroundings)}"


def _terminal(command: str, folder: Path, surroundings: dict[str, str]) -> str:
    """What a command prints on a terminal, standard error included."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, SCREEN)
    shell = subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
    )
    os.close(its)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says EIO at the end of a terminal
            break
        if not part:
            break
        parts.append(part)
    shell.wait()
    os.close(ours)
    text = b"".join(parts).decode("utf-8", "replace").replace("\r\n", "\n")
    text = re.sub(r"\x1b\[\?25[hl]", "", text)  # the cursor, hidden and shown
    text = re.sub(r"[^\n]*\n\r\x1b\[1A\x1b\[2K", "", text)  # a progress bar that is erased
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[^\n]*\r", "", text)


def write(path: Path, found: list[Mismatch]) -> None:
    """Put what was printed into the page."""
    text = path.read_text(encoding="utf-8")
    for start, shown, printed in reversed(found):
        body = _lines(printed) + "\n" if printed.strip() else ""
        text = text[:start] + body + text[start + len(shown) :]
    path.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the named pages, slow parts included; 1 if one shows what is no longer printed.

    ``--fast`` leaves slow parts out, ``--with=NAME`` says that something is there, ``--in=FOLDER``
    runs in a folder that has files already.
    """
    sys.path.insert(0, str(ROOT))  # as pytest does: pages import the reproduction
    flags = {one for one in arguments if one.startswith("--")}
    available = [one.removeprefix("--with=") for one in flags if one.startswith("--with=")]
    given = next((one.removeprefix("--in=") for one in flags if one.startswith("--in=")), None)
    wrong, writing = 0, "--write" in flags
    for name in (one for one in arguments if one not in flags):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(given or temporary)
            found = run(Path(name), folder, "--fast" not in flags, available, writing)
        if writing:
            write(Path(name), found)
        for one in found:
            print(f"{name}: shows\n{one.shown}\nbut prints\n{one.printed}")
        wrong += len(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # pages import the reproduction, which is not installed
    sys.exit(main(sys.argv[1:]))
