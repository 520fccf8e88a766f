"""Tokens of a log line: constant text or the wildcard ``<*>``, by rules for any system's logs.

1. `mask_numbers` replaces every number by ``00``; equal masked lines have equal keys.
2. `mark_message` marks the words of a message field (``msg="..."``).
3. `tokenize` splits a word (text between blanks) at delimiters (``= : , ; | ( ) [ ] { } < > @ " '``
   and runs of dots). A token that looks like a value (number, id, host, address, path, URL) becomes
   the wildcard.
4. `Tokenizer.read` joins the tokens of all words; the key of the line has one wildcard for adjacent
   values and no unit after a value.

No rule names a system.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

WILD = "<*>"
NUMBER_MASK = "00"
# Private characters that are inserted into a line before it is split: a blank inside a word, start
# and end of a value that was recognised by its context, and the start of a word of a message field.
BLANK, OPEN, CLOSE, MESSAGE_WORD = "\ue000", "\ue001", "\ue002", "\ue004"


class Word(NamedTuple):
    """A tokenized word: ``delimiters[0] texts[0] delimiters[1] texts[1] ... delimiters[-1]``.

    ``tokens`` are compared. ``literals`` are what a template shows for them: a value that is a name
    with one digit (``ssh2``) is shown as it is until another value is seen. ``rendered`` joins
    delimiters and literals.
    """

    tokens: tuple[str, ...]
    literals: tuple[str, ...]
    texts: tuple[str, ...]
    delimiters: tuple[str, ...]
    rendered: str


_DELIMITERS = r"""\s=:,;|()\[\]{}<>@"'%#!?*`"""
_VALUE = r"""[^\s,;|"'()\[\]{}<>=]"""
_HOST = r"[A-Za-z0-9_-]+"
_SOURCE = r"[\w$-]+\.(?:java|kt|scala|py|rb|js|ts|go|rs|swift|cs|php|lua|m|mm|h|hpp|c|cc|cpp)"
_DAY = r"(?:\d+[-/](?:\d+|[A-Z][a-z]{2})[-/](?:\d+[:T])?)?"
# Regular expressions of values, each with a text that every such value contains (a fast test).
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
_token = re.compile(rf"[^{_DELIMITERS}]+")
_dots = re.compile(r"(\.\.+)")
# An empty bracket that is not a call, and empty quotes: both are values.
_empty = re.compile(r"(?<![^=:,])(?:([(\[{])(?=[)\]}])|([\"'])(?=\2(?![\w\"'])))")
# After a value: a full stop, or the escapes of text that was quoted with backslashes.
_escapes = re.compile(r"(?<![.\\])(?:[.\\]|(?<=\\)[nrt])+$")
# A name with digits before a call or an assignment is constant.
_named = {
    "(": re.compile(r"[A-Za-z_][A-Za-z_.]*\d[A-Za-z_.]*"),
    "=": re.compile(r"[A-Za-z_][A-Za-z_.]*\d+[A-Za-z_.]*"),
}
_ESCAPES = frozenset((r"\n", r"\r", r"\t"))
_numbered = re.compile(r"([A-Za-z_]{2,}\.)\d+|((?:[A-Z_]{2,}|[A-Z]?[a-z_]{2,})/)\d+(?:\.\d+)*$")
_id = re.compile(r"(?=\D*\d)([\w-]*\w)([,;]*)")
_name = re.compile(rf"[A-Za-z_-]{{2,}}\d|{_SOURCE}")
_DOMAINS = frozenset("com net org edu gov mil io local localdomain lan internal".split())  # noqa: SIM905


def tokenize(word: str) -> Word:
    """Split a word into tokens and delimiters.

    >>> tokenize("src:/10.0.0.1:80,").rendered
    'src:/<*>:<*>,'
    >>> tokenize("workerEnv.init()").tokens, tokenize("ws=Source{1000}").tokens
    (('workerEnv.init',), ('ws', '<*>'))
    >>> tokenize("[/etc/hosts]").tokens
    ('<*>',)
    """
    if word.isalpha() or (word[:1] == MESSAGE_WORD and word[1:].isalpha()):
        return Word((word,), (word,), (word,), ("", ""), word)
    if found := _id.fullmatch(word):  # the most frequent kind of unseen words
        text, delimiter = found.groups()
        literal = _literal(text)
        return Word((WILD,), (literal,), (text,), ("", delimiter), literal + delimiter)
    state = _TokenizerState()
    for position, part in enumerate(_split_values(_empty.sub(rf"\1\2{WILD}", word))):
        if position % 2:
            value = _escapes.sub("", part) if "/" in part else part.rstrip(".")
            value = value or part
            state.add_token(WILD, value)
            state.add_delimiter(part[len(value) :])
        elif part:
            _tokenize_plain(part, state)
    return state.word()


class _TokenizerState:
    """Tokens and delimiters of the word that is being split."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.literals: list[str] = []
        self.texts: list[str] = []
        self.delimiters: list[str] = []
        self._delimiter: list[str] = []  # parts of the next delimiter

    def add_delimiter(self, text: str) -> None:
        self._delimiter.append(text)

    def add_token(self, token: str, text: str) -> None:
        self.tokens.append(token)
        self.literals.append(_literal(text) if token == WILD or NUMBER_MASK in text else text)
        self.texts.append(text)
        self.delimiters.append("".join(self._delimiter))
        self._delimiter.clear()

    def word(self) -> Word:
        delimiters = (*self.delimiters, "".join(self._delimiter))
        rendered = delimiters[0] + "".join(map(str.__add__, self.literals, delimiters[1:]))
        return Word(
            tuple(self.tokens), tuple(self.literals), tuple(self.texts), delimiters, rendered
        )


def _literal(value: str) -> str:
    return value if _name.fullmatch(value) and NUMBER_MASK not in value else WILD


def _split_values(word: str) -> Sequence[str]:
    """Text and values in turn."""
    possible = tuple(pattern for trigger, pattern in _VALUES.values() if trigger in word)
    return _splitter(possible).split(word) if possible else (word,)


@cache
def _splitter(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(" + "|".join(patterns) + ")")


def _tokenize_plain(part: str, state: _TokenizerState) -> None:
    """Split text without values that span delimiters."""
    start = 0
    for found in _token.finditer(part):
        state.add_delimiter(part[start : found.start()])
        start, text = found.end(), found.group()
        named = _named.get(part[start : start + 1])
        if text.isalpha() or (named and named.fullmatch(text)):
            state.add_token(text, text)
        elif ".." in text:
            for position, piece in enumerate(_dots.split(text)):
                if position % 2 or not piece:
                    state.add_delimiter(piece)
                else:
                    _add_token(state, piece)
        else:
            _add_token(state, text)
    state.add_delimiter(part[start:])


def _add_token(state: _TokenizerState, text: str) -> None:
    end = len(text)
    while text[end - 2 : end] in _ESCAPES:
        end -= 2
    text, escapes = text[:end], text[end:]
    if not any(map(str.isalnum, text)):
        state.add_delimiter(text + escapes)
        return
    if numbered := _numbered.match(text):
        stem = (numbered[1] or numbered[2])[:-1]
        state.add_token(stem, stem)
        state.add_delimiter(text[len(stem)])
        text = text[len(stem) + 1 :]
    has_digit = any(map(str.isdigit, text))
    head = len(text) - len(text.lstrip("/" if has_digit else ".-+~&$/\\"))
    tail = len(text.rstrip(".-\\" if has_digit else ".-~&$/\\"))
    state.add_delimiter(text[:head])
    core = text[head:tail]
    state.add_token(WILD if has_digit or _is_dotted_name(core) else core, core)
    state.add_delimiter(text[tail:] + escapes)


def _is_dotted_name(text: str) -> bool:
    """Whether dots and slashes make this a host, a class or a path: a value."""
    dots, slashes = text.count("."), text.count("/")
    last = text.rpartition(".")[2]
    if dots >= 2 or slashes >= 2 or (dots and slashes):
        return not (dots and last.isupper())
    return bool(dots) and last.lower() in _DOMAINS


# Message fields, as in ``level=info msg="door opened" door=7``. The message names the event, while
# the other fields may be equal in all lines. So its words are marked, and `patterns` compares them
# with words of other messages only.

MESSAGE_FIELDS = frozenset(("msg", "message", "Message", "MESSAGE", "event", "log"))
# A quoted object is not a message, but may contain one.
_message = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(sorted(MESSAGE_FIELDS))})(?:\\?[\"']\s*:\s*(?=\\?[\"'])|=)"
    r"(?:(\\?[\"'])(?!\{)(?P<text>.*?)(?<!\\)\1|(?P<word>[^\s\"'=]+)(?!\S))"
)
_word = re.compile(r"[^\W\d_](?:[^\W\d]|[.-](?=[^\W\d]))*")
_end = re.compile(r"[,.:;!?]*(?:\\[nrt])*")


def mark_message(line: str) -> str:
    """Prefix the words of message fields with `MESSAGE_WORD`.

    Not those that may be part of a date, a hex dump or a value with its unit.

    >>> mark_message('{"level":"info","msg":"took 5 s"}').replace(MESSAGE_WORD, "^")
    '{"level":"info","msg":"^took 5 s"}'
    """
    if not any(name in line for name in MESSAGE_FIELDS):
        return line
    parts: list[str] = []
    last = 0
    for found in _message.finditer(line):
        start, end = found.span("text" if found["word"] is None else "word")
        words = line[start:end].split(" ")
        parts += line[last:start], " ".join([_mark_word(word) for word in words])
        last = end
    return "".join([*parts, line[last:]])


def _mark_word(word: str) -> str:
    if word.isalpha():
        return word if _is_special(word) else MESSAGE_WORD + word
    found = _word.match(word)
    if found is None or _is_special(found[0]) or not _end.fullmatch(word, found.end()):
        return word
    return MESSAGE_WORD + word


def _is_special(word: str) -> bool:
    """Whether a word may be part of a date, a hex dump or a value with its unit."""
    return word in _UNITS or word in _HINTS


# Lines.

Key = tuple[str, ...]

CACHED_WORDS = 1 << 15  # in a `Tokenizer`
CACHED_LENGTH = 100  # characters; longer words are not cached
_SIZES = "B byte bytes kB KB MB GB TB KiB MiB GiB TiB Kb Mb Gb bit bits kbit Kbit Mbit Gbit".split()  # noqa: SIM905
_UNITS = frozenset(
    "ns us ms s sec secs second seconds min mins minute minutes h hr hrs hour hours "  # noqa: SIM905
    "day days week weeks month months year years AM PM "
    "percent kbps Kbps Mbps Gbps kHz MHz GHz".split()
).union(_SIZES, (f"{size}/{time}" for size in _SIZES for time in ("s", "sec", "second", "min")))
# One digit in a name is kept: "md5(", "ssh2", "PSR0=".
_digits = re.compile(r"[0-9](?:[A-Za-z0-9]+|(?![A-Za-z_]*[(=])(?:(?=\w)|(?<![A-Za-z]{2}[0-9])))")
_leading = re.compile(r"(?<![A-Za-z])[A-Za-z]+00(?![A-Za-z_.]*=)")
_colours = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_user = re.compile(
    r"\b((?:for|by|of|as|from|invalid|illegal|unknown|new) user) ([A-Za-z_][\w.-]*(?<![.-]))"
)
_quoted = re.compile(r"(\"|(?<!\w)')[^\W\d]+(?: +[^\W\d]+)+\1")
_agent = re.compile(r'(?<=")[A-Za-z][\w.-]*/\d[^"]*(?=")')  # a user agent
_dump = re.compile(r"(?<!\S)(?:[\dA-Fa-f]{2} ){3,}[\dA-Fa-f]{2}(?!\S)")
_byte = re.compile(r"\b[A-Fa-f]{2}\b")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_CLOCK = r"(?:[ T:]+\d+:\d+(?::\d+)?(?:[.,]\d+)?(?: ?[AP]M)?)?"
_ZONE = r"(?: (?:UTC|GMT|[A-Z]{1,3}[DS]T|[CEMW]ET|[+-]\d+))?"
_date = re.compile(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?,? +)?(?:"
    rf"{_MONTH} +\d+(?:,? +\d+(?!:))?{_CLOCK}{_ZONE}(?: \d+)?|"
    rf"\d+[ /-]{_MONTH}[ /-]\d+{_CLOCK}{_ZONE})\b"
)
# A line without any of these words has no date or hex dump that its digits do not show.
_HINTS = {
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Sept"),
    *("January", "February", "March", "April", "June", "July", "August", "September", "October"),
    *("November", "December"),
    *("".join(pair) for case in ("abcdef", "ABCDEF") for pair in product(case, repeat=2)),
}
# Words that may change how the words around them are tokenized.
CALENDAR = frozenset(word[:3] for word in _HINTS if len(word) > 2) | frozenset(
    ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
)
CONTEXT_WORDS = _UNITS | {"user", "from", "invalid", "illegal", "unknown"}


def mask_numbers(line: str) -> str:
    """Replace every number by ``00``: lines with the same masked text have the same key.

    >>> mask_numbers("Took 25 ms on eth0, 0x7f3a at 2005-06-03")
    'Took 00 ms on eth0, 00 at 00-00-00'
    """
    return _digits.sub(NUMBER_MASK, strip_colours(line) if "\x1b" in line else line)


def strip_colours(line: str) -> str:
    """Remove the escape sequences that colour a line on a terminal."""
    return _colours.sub("", line)


def mask_id_prefixes(text: str) -> str:
    """Remove letters before masked numbers as well; the key stays the same.

    >>> mask_id_prefixes("open a00, blk_00 and ssh2")
    'open 00, blk_00 and ssh2'
    """
    return _leading.sub(NUMBER_MASK, text)


class Line:
    """A tokenized line; its key has one wildcard for adjacent values and their units."""

    __slots__ = ("key", "words")

    def __init__(self, key: Key, words: Sequence[Word]) -> None:
        self.key = key
        self.words = words

    @property
    def rendered(self) -> str:
        """The line with the literals of its tokens."""
        return " ".join([word.rendered for word in self.words])

    @property
    def positions(self) -> tuple[int, ...]:
        """Position of each token in the key; -1 for the unit of a value."""
        positions: list[int] = []
        position, last = -1, ""
        for word in self.words:
            for token in word.tokens:
                if last == WILD and token in _UNITS:
                    positions.append(-1)
                    continue
                if last != WILD or token != WILD:
                    position += 1
                last = token
                positions.append(position)
        return tuple(positions)

    @property
    def literals(self) -> tuple[str, ...]:
        """What a template shows for each token."""
        return tuple(literal for word in self.words for literal in word.literals)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each token as it stands in the line."""
        return tuple(text for word in self.words for text in word.texts)

    @property
    def delimiters(self) -> tuple[str, ...]:
        """The text before, between and after the tokens."""
        delimiters: list[str] = []
        current: list[str] = []  # parts of the next delimiter
        for number, word in enumerate(self.words):
            current += (" ", word.delimiters[0]) if number else word.delimiters[:1]
            if len(word.delimiters) > 1:
                delimiters += ("".join(current), *word.delimiters[1:-1])
                current = [word.delimiters[-1]]
        return (*delimiters, "".join(current))


class Tokenizer:
    """Tokenizes lines, with a cache of words."""

    def __init__(self) -> None:
        self.words: dict[str, Word] = {}

    def read(self, text: str) -> Line:
        """Tokenize a line; a list of values, or a value and its unit, count as one value.

        >>> Tokenizer().read("Took 25 ms for user root, sizes [1, 2, 3]").key
        ('Took', '<*>', 'for', 'user', '<*>', 'sizes', '<*>')
        """
        if " user " in text:
            text = _user.sub(rf"\1 {OPEN}\2{CLOSE}", text)
        if '"' in text or "'" in text or "=" in text:
            text = mark_message(text)
        if '"' in text or "'" in text:
            text = _agent.sub(_as_value, text)
            text = _quoted.sub(lambda found: found[0].replace(" ", BLANK), text)
        line = self._read(text)
        if _HINTS.isdisjoint(line.key):
            return line
        found = _dump.sub(lambda dump: _byte.sub(_as_value, dump[0]), _date.sub(_as_value, text))
        return line if found == text else self._read(found)

    def _read(self, text: str) -> Line:
        known, words = self.words, []
        tokens: list[str] = []
        for part in text.split():
            word = known.get(part) or self._tokenize(part)
            words.append(word)
            tokens += word.tokens
        return Line(_key(tokens), words)

    def _tokenize(self, part: str) -> Word:
        word = tokenize(part)
        if len(part) <= CACHED_LENGTH:
            if len(self.words) >= CACHED_WORDS:
                self.words.clear()
            self.words[part] = word
        return word


def _as_value(found: re.Match[str]) -> str:
    return OPEN + found[0].replace(" ", BLANK) + CLOSE


def _key(tokens: Sequence[str]) -> Key:
    key: list[str] = []
    last = ""
    for token in tokens:
        if last == WILD and (token == WILD or token in _UNITS):
            continue
        last = token
        key.append(token)
    return tuple(key)


_private = str.maketrans({BLANK: " ", OPEN: None, CLOSE: None, MESSAGE_WORD: None})


def strip_private(text: str) -> str:
    """Remove the private characters that tokenizing inserted."""
    return text.translate(_private)
