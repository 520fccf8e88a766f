"""The message of a line of named fields, such as ``level=info msg="door opened" door=7``.

It says what happened, and the other fields of all lines may be alike. So its words are marked, and
`patterns` compares them with those of other messages alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .words import TOLD

NAMES = frozenset(("msg", "message", "Message", "MESSAGE", "event", "log"))
# An object in quotes is no message, but may have one.
_message = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(sorted(NAMES))})(?:\\?[\"']\s*:\s*(?=\\?[\"'])|=)"
    r"(?:(\\?[\"'])(?!\{)(?P<text>.*?)(?<!\\)\1|(?P<word>[^\s\"'=]+)(?!\S))"
)
_word = re.compile(r"[^\W\d_](?:[^\W\d]|[.-](?=[^\W\d]))*")
_end = re.compile(r"[,.:;!?]*(?:\\[nrt])*")


def marked(line: str, special: Callable[[str], bool]) -> str:
    """A line with the words of its message marked, but for special ones, that are read with others.

    >>> marked('{"level":"info","msg":"took 5 s"}', lambda word: word == "s").replace(TOLD, "^")
    '{"level":"info","msg":"^took 5 s"}'
    """
    if not any(name in line for name in NAMES):
        return line
    parts: list[str] = []
    last = 0
    for found in _message.finditer(line):
        start, end = found.span("text" if found["word"] is None else "word")
        words = line[start:end].split(" ")
        parts += line[last:start], " ".join([_mark(word, special) for word in words])
        last = end
    return "".join([*parts, line[last:]])


def _mark(word: str, special: Callable[[str], bool]) -> str:
    if word.isalpha():
        return word if special(word) else TOLD + word
    found = _word.match(word)
    if found is None or special(found[0]) or not _end.fullmatch(word, found.end()):
        return word
    return TOLD + word
