"""Words of a log line: which are constant text and which are values, in any system's logs.

A word is what stands between blanks. It is cut at structural marks (``= : , ; | ( ) [ ] { } < > @
" '`` and runs of dots) into tokens, and a token is either constant or the wildcard ``<*>``. The
rules are about values that look the same everywhere: numbers, ids, hosts, addresses, paths, URLs.
None of them names a system.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
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


# The message of a line of named fields, such as ``level=info msg="door opened" door=7``.

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


# A log line as the parser sees it: its key, and how a template writes it.

Key = tuple[str, ...]

MEMO = 1 << 15  # words remembered at most
LONG = 100  # characters: longer words are not remembered
_SIZES = "B byte bytes kB KB MB GB TB KiB MiB GiB TiB Kb Mb Gb bit bits kbit Kbit Mbit Gbit".split()  # noqa: SIM905
_UNITS = frozenset(
    "ns us ms s sec secs second seconds min mins minute minutes h hr hrs hour hours "  # noqa: SIM905
    "day days week weeks month months year years AM PM "
    "percent kbps Kbps Mbps Gbps kHz MHz GHz".split()
).union(_SIZES, (f"{size}/{time}" for size in _SIZES for time in ("s", "sec", "second", "min")))
# A digit on its own stays where it belongs to a name: "md5(", "ssh2", "PSR0=".
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
# A line without any of these words has neither a date nor a dump in which letters matter.
_HINTS = {
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Sept"),
    *("January", "February", "March", "April", "June", "July", "August", "September", "October"),
    *("November", "December"),
    *("".join(pair) for case in ("abcdef", "ABCDEF") for pair in product(case, repeat=2)),
}
# Words for which a line, or the words around them, may be read in another way.
CALENDAR = frozenset(word[:3] for word in _HINTS if len(word) > 2) | frozenset(
    ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
)
MEANT = _UNITS | {"user", "from", "invalid", "illegal", "unknown"}


def collapse(line: str) -> str:
    """The line with all numbers made equal: lines that collapse alike have one key.

    >>> collapse("Took 25 ms on eth0, 0x7f3a at 2005-06-03")
    'Took 00 ms on eth0, 00 at 00-00-00'
    """
    return _digits.sub(COLLAPSED, uncoloured(line) if "\x1b" in line else line)


def uncoloured(line: str) -> str:
    """The line without what colours it on a terminal."""
    return _colours.sub("", line)


def glue(text: str) -> str:
    """A collapsed line without the letters that begin its ids; it still has the same key.

    >>> glue("open a00, blk_00 and ssh2")
    'open 00, blk_00 and ssh2'
    """
    return _leading.sub(COLLAPSED, text)


class Line:
    """A line cut into words, and its key: the tokens, with values next to each other as one."""

    __slots__ = ("key", "words")

    def __init__(self, key: Key, words: Sequence[Word]) -> None:
        self.key = key
        self.words = words

    @property
    def shape(self) -> str:
        """The line as a template writes it."""
        return " ".join([word.shape for word in self.words])

    @property
    def places(self) -> tuple[int, ...]:
        """Where in the key each token went; -1 for the unit of a value."""
        places: list[int] = []
        place, last = -1, ""
        for word in self.words:
            for token in word.tokens:
                if last == WILD and token in _UNITS:
                    places.append(-1)
                    continue
                if last != WILD or token != WILD:
                    place += 1
                last = token
                places.append(place)
        return tuple(places)

    @property
    def spelt(self) -> tuple[str, ...]:
        """How a template writes each token."""
        return tuple(spelt for word in self.words for spelt in word.spelt)

    @property
    def texts(self) -> tuple[str, ...]:
        """Each token as it stands in the line."""
        return tuple(text for word in self.words for text in word.texts)

    @property
    def marks(self) -> tuple[str, ...]:
        """What stands before, between and after the tokens."""
        marks: list[str] = []
        open_: list[str] = []  # what the next mark is made of
        for number, word in enumerate(self.words):
            open_ += (" ", word.marks[0]) if number else word.marks[:1]
            if len(word.marks) > 1:
                marks += ("".join(open_), *word.marks[1:-1])
                open_ = [word.marks[-1]]
        return (*marks, "".join(open_))


class Reader:
    """Cuts lines into tokens and remembers the words it has cut, up to a bound."""

    def __init__(self) -> None:
        self.words: dict[str, Word] = {}

    def read(self, text: str) -> Line:
        """A line cut into tokens; a list of values, or a value with its unit, is as good as one.

        >>> Reader().read("Took 25 ms for user root, sizes [1, 2, 3]").key
        ('Took', '<*>', 'for', 'user', '<*>', 'sizes', '<*>')
        """
        if " user " in text:
            text = _user.sub(rf"\1 {OPEN}\2{CLOSE}", text)
        if '"' in text or "'" in text or "=" in text:
            text = marked(text, _special)
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
            word = known.get(part) or self._cut(part)
            words.append(word)
            tokens += word.tokens
        return Line(_fold(tokens), words)

    def _cut(self, part: str) -> Word:
        word = cut(part)
        if len(part) <= LONG:
            if len(self.words) >= MEMO:
                self.words.clear()
            self.words[part] = word
        return word


def _special(word: str) -> bool:
    """Whether a word may be part of a date, a dump or a value with its unit."""
    return word in _UNITS or word in _HINTS


def _as_value(found: re.Match[str]) -> str:
    return OPEN + found[0].replace(" ", BLANK) + CLOSE


def _fold(tokens: Sequence[str]) -> Key:
    key: list[str] = []
    last = ""
    for token in tokens:
        if last == WILD and (token == WILD or token in _UNITS):
            continue
        last = token
        key.append(token)
    return tuple(key)


_plain = str.maketrans({BLANK: " ", OPEN: None, CLOSE: None, TOLD: None})


def plain(text: str) -> str:
    """Text without the private characters of `words`."""
    return text.translate(_plain)
