"""Words of a log line: which are constant text and which are values, in any system's logs.

A word is what stands between blanks. It is cut at structural marks (``= : , ; | ( ) [ ] { } < > @
" '`` and runs of dots) into tokens, and a token is either constant or the wildcard ``<*>``. The
rules are about values that look the same everywhere: numbers, ids, hosts, addresses, paths, URLs.
None of them names a system.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

WILD = "<*>"
COLLAPSED = "00"  # what `lines` makes of a number
# Private characters, put into a line while it is cut: a blank that does not part words, the two
# ends of a value that was recognised from the words around it, and the start of a message's word.
BLANK, OPEN, CLOSE, TOLD = "\ue000", "\ue001", "\ue002", "\ue004"


class Word(NamedTuple):
    """A word cut into tokens: ``marks[0] texts[0] marks[1] texts[1] ... marks[-1]``.

    ``tokens`` are what is compared. ``spelt`` is how a template writes them: a value that is a
    name with one digit, such as ``ssh2``, is written out for as long as no other is seen.
    ``shape`` is the whole word so written.
    """

    tokens: tuple[str, ...]
    spelt: tuple[str, ...]
    texts: tuple[str, ...]
    marks: tuple[str, ...]
    shape: str


_MARKS = r"""\s=:,;|()\[\]{}<>@"'%#!?*`"""
_VALUE = r"""[^\s,;|"'()\[\]{}<>=]"""
_HOST = r"[A-Za-z0-9_-]+"
_SOURCE = r"[\w$-]+\.(?:java|kt|scala|py|rb|js|ts|go|rs|swift|cs|php|lua|m|mm|h|hpp|c|cc|cpp)"
_DAY = r"(?:\d+[-/](?:\d+|[A-Z][a-z]{2})[-/](?:\d+[:T])?)?"
# What a value looks like, and the text without which a word cannot have one.
_VALUES = {
    "a wildcard": ("<*>", r"<\*>"),
    "a value seen from the words around it": (OPEN, rf"{OPEN}[^{OPEN}{CLOSE}]*{CLOSE}"),
    "a URL": ("://", r"(?<![A-Za-z+.-])[A-Za-z][A-Za-z+.-]*://[^\s\"'<>|,;)\]}]+"),
    "an e-mail address": ("@", rf"(?<![\w.+-])[\w.+-]+@{_HOST}(?:\.{_HOST})+"),
    "a MAC, an IPv6, a time after its date": (
        ":",
        rf"(?<![\w:]){_DAY}[0-9A-Fa-f]{{0,6}}(?:::?[0-9A-Fa-f]{{1,6}}){{2,}}(?![\w:])(?:[.,]\d+)?",
    ),
    "a host before its port": (":", r"(?<![\w.@/-])[a-z0-9-]+(?:\.[a-z0-9-]+)+(?=:\d)"),
    "a source file before its line": (":", rf"(?<![\w./\\]){_SOURCE}(?=:\d)"),
    "a Windows path, but no \\n": (
        "\\",
        r"(?:[A-Za-z]:|(?<![\w\\])\w+|\\)?(?<!\\[nr])\\(?!\\?[nrt](?:[\s\"'\\]|$))[^\s\"'<>|,;()\[\]]+",
    ),
    "a path, but no /IP": (
        "/",
        r"(?<![\w./])(?:~|\.{1,2})?/(?!\d+(?:\.\d+){3})[^\s\"'<>|,;:=()\[\]{}]+",
    ),
    "what is assigned, with a digit in its bracket": (
        "=",
        rf"(?<==){_VALUE}+(?:\{{[^\s{{}}\d]*\d[^\s{{}}]*\}}|\([^\s()\d]*\d[^\s()]*\))",
    ),
}
_token = re.compile(rf"[^{_MARKS}]+")
_dots = re.compile(r"(\.\.+)")
# A bracket with nothing in or before it, and quotes with nothing in or after them.
_empty = re.compile(r"(?<![^=:,])(?:([(\[{])(?=[)\]}])|([\"'])(?=\2(?![\w\"'])))")
# What may follow a value in text that was quoted with backslashes, and a full stop.
_escapes = re.compile(r"(?<![.\\])(?:[.\\]|(?<=\\)[nrt])+$")
# A name with digits that is called or assigned to is constant all the same.
_named = {
    "(": re.compile(r"[A-Za-z_][A-Za-z_.]*\d[A-Za-z_.]*"),
    "=": re.compile(r"[A-Za-z_][A-Za-z_.]*\d+[A-Za-z_.]*"),
}
_ENDS = frozenset((r"\n", r"\r", r"\t"))  # as lines and columns end in quoted text
_numbered = re.compile(r"([A-Za-z_]{2,}\.)\d+|((?:[A-Z_]{2,}|[A-Z]?[a-z_]{2,})/)\d+(?:\.\d+)*$")
_id = re.compile(r"(?=\D*\d)([\w-]*\w)([,;]*)")
_name = re.compile(rf"[A-Za-z_-]{{2,}}\d|{_SOURCE}")
_DOMAINS = frozenset("com net org edu gov mil io local localdomain lan internal".split())  # noqa: SIM905


def cut(word: str) -> Word:
    """A word cut into tokens, with the marks between them.

    >>> cut("src:/10.0.0.1:80,").shape
    'src:/<*>:<*>,'
    >>> cut("workerEnv.init()").tokens, cut("ws=Source{1000}").tokens, cut("[/etc/hosts]").tokens
    (('workerEnv.init',), ('ws', '<*>'), ('<*>',))
    """
    if word.isalpha() or (word[:1] == TOLD and word[1:].isalpha()):
        return Word((word,), (word,), (word,), ("", ""), word)
    if found := _id.fullmatch(word):  # the most common of words that were never seen
        text, mark = found.groups()
        spelt = _spell(text)
        return Word((WILD,), (spelt,), (text,), ("", mark), spelt + mark)
    cutting = _Cutting()
    for position, part in enumerate(_parts(_empty.sub(rf"\1\2{WILD}", word))):
        if position % 2:
            value = _escapes.sub("", part) if "/" in part else part.rstrip(".")
            value = value or part
            cutting.token(WILD, value)
            cutting.mark(part[len(value) :])
        elif part:
            _cut_plain(part, cutting)
    return cutting.word()


class _Cutting:
    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.spelt: list[str] = []
        self.texts: list[str] = []
        self.marks: list[str] = []
        self._mark: list[str] = []  # what the next mark is made of

    def mark(self, text: str) -> None:
        self._mark.append(text)

    def token(self, token: str, text: str) -> None:
        self.tokens.append(token)
        self.spelt.append(_spell(text) if token == WILD or COLLAPSED in text else text)
        self.texts.append(text)
        self.marks.append("".join(self._mark))
        self._mark.clear()

    def word(self) -> Word:
        marks = (*self.marks, "".join(self._mark))
        shape = marks[0] + "".join(map(str.__add__, self.spelt, marks[1:]))
        return Word(tuple(self.tokens), tuple(self.spelt), tuple(self.texts), marks, shape)


def _spell(value: str) -> str:
    return value if _name.fullmatch(value) and COLLAPSED not in value else WILD


def _parts(word: str) -> Sequence[str]:
    """Plain text and values by turns."""
    wanted = tuple(pattern for trigger, pattern in _VALUES.values() if trigger in word)
    return _splitter(wanted).split(word) if wanted else (word,)


@cache
def _splitter(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(" + "|".join(patterns) + ")")


def _cut_plain(part: str, cutting: _Cutting) -> None:
    start = 0
    for found in _token.finditer(part):
        cutting.mark(part[start : found.start()])
        start, text = found.end(), found.group()
        named = _named.get(part[start : start + 1])
        if text.isalpha() or (named and named.fullmatch(text)):
            cutting.token(text, text)
        elif ".." in text:
            for position, piece in enumerate(_dots.split(text)):
                (cutting.mark if position % 2 or not piece else partial(_cut_token, cutting))(piece)
        else:
            _cut_token(cutting, text)
    cutting.mark(part[start:])


def _cut_token(cutting: _Cutting, text: str) -> None:
    end = len(text)
    while text[end - 2 : end] in _ENDS:
        end -= 2
    text, escapes = text[:end], text[end:]
    if not any(map(str.isalnum, text)):
        return cutting.mark(text + escapes)
    if numbered := _numbered.match(text):
        stem = (numbered[1] or numbered[2])[:-1]
        cutting.token(stem, stem)
        cutting.mark(text[len(stem)])
        text = text[len(stem) + 1 :]
    valued = any(map(str.isdigit, text))
    head = len(text) - len(text.lstrip("/" if valued else ".-+~&$/\\"))
    tail = len(text.rstrip(".-\\" if valued else ".-~&$/\\"))
    cutting.mark(text[:head])
    core = text[head:tail]
    cutting.token(WILD if valued or _looks_named(core) else core, core)
    cutting.mark(text[tail:] + escapes)
    return None


def _looks_named(text: str) -> bool:
    """Whether dots and slashes say that this is a host, a class or a path, not a constant."""
    dots, slashes = text.count("."), text.count("/")
    last = text.rpartition(".")[2]
    if dots >= 2 or slashes >= 2 or (dots and slashes):
        return not (dots and last.isupper())
    return bool(dots) and last.lower() in _DOMAINS
