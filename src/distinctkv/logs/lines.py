"""A log line as the parser sees it: its key, and how a template writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from .messages import marked
from .words import BLANK, CLOSE, COLLAPSED, OPEN, TOLD, WILD, Word, cut

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
