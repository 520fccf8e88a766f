"""Tokens of a log line: words, marks, and values, by rules for any system's logs.

1. `mask` replaces what is a value by its own form: quoted text, a bracket with structure in it
   (``{'a': [1, 2]}``, ``<open file 'x' at 0x7f>``), a number, a path. Lines that differ in such
   values only are equal then, so almost every line is found in a dictionary by its masked text.
2. `tokenize` splits a masked line into words, marks and values. URLs, hosts, dates, dotted names,
   lists and calls (``Fetch(day=3)``) are values as well. Adjacent values are one.

No rule names a system.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

WILD = "<*>"
# Characters that no text may contain (Unicode: noncharacters) stand for values in a masked line.
VALUE = "\ufdd0"
KINDS = {"(": "\ufdd1", "[": "\ufdd2", "{": "\ufdd3", "<": "\ufdd4", "'": "\ufdd5", '"': "\ufdd6"}
MESSAGE_WORD = "\ufdd7"  # begins a word of a message field
BLANK = "\ufdda"  # stands for any plain word
NEW_WORD = f"{BLANK}w"  # a word that no line has
_MASKS = VALUE + "".join(KINDS.values())
_STRUCTURES = "".join(KINDS.values())
_private = re.compile("[\ufdd0-\ufddf]")

Key = tuple[str, ...]


class Line(NamedTuple):
    """A tokenized line: ``separators[0] literals[0] separators[1] ... separators[-1]``.

    ``key`` has the tokens that are compared, a wildcard for each value. ``literals`` are what a
    template shows for them; separators are blanks and marks that are not compared. Joined, they are
    the line with a wildcard for each masked value.
    """

    key: Key
    literals: tuple[str, ...]
    separators: tuple[str, ...]


# Masking

# Quoted text: the first quote follows no word (as in "don't"), or the prefix of a string (b"...").
_quoted = re.compile(
    r"['\"](?:(?<![\w'\"].)|(?<=\b[bruf].))(?:"
    r"(?<=')(?:[^'\\]++|\\.|(?<=\w)'(?=\w))*+'|(?<=\")(?:[^\"\\]++|\\.)*+\")(?![\w'\"])"
)
_quoted_value = re.compile(_quoted.pattern + r"(?!\s*:)")  # but not the name of a field
# The method of a request is a verb, so it is kept: "GET /index.html HTTP/1.1".
_request = re.compile(r'"(?:GET|POST|PUT|DELETE|HEAD|PATCH|OPTIONS|CONNECT|TRACE) (?=\S)')
# The innermost bracket around quoted text or another bracket with structure in it. It may contain
# a bracket of words, arrows and comparisons.
_PLAIN = r"[^()\[\]{}<>]"
_INSIDE = rf"(?:{_PLAIN}++|\({_PLAIN}*\)|\[{_PLAIN}*\]|(?<=[ =-])>|<(?=[ =-]))*"
_HAS = rf"(?=[^()\[\]{{}}<>{_MASKS}'\"]*+[{_MASKS}'\"(\[])"
_bracket = re.compile(
    rf"[(\[{{<](?:(?<=\{{){_INSIDE}\}}|(?<=\[){_HAS}{_INSIDE}\]|(?<=\(){_HAS}{_INSIDE}\)|"
    rf"(?<![\w<>-]<)(?<=<)(?=[\w#]){_INSIDE}>|(?<=<)\*>)"
)
# A path, or a number with all that is joined to it. One digit at the end of a name is kept (ssh2).
PATH = (
    rf"(?<![\w/.]/)(?!\d+(?:\.\d+){{3}})[\w.~%+@-][^\s\"'<>|,;:=()\[\]{{}}?{_STRUCTURES}]*"
    r"(?:\?[^\s\"'<>]*)?"
)
NUMBER = (
    r"[A-Za-z0-9]*+(?:[.,:_-][0-9][A-Za-z0-9]*+)++|[A-Za-z0-9]++|(?<![A-Za-z][0-9])|"
    r"(?![A-Za-z_.]*+[(=])(?:(?=\w)|(?<![A-Za-z]{2}[0-9]))"
)


# An id as a whole, so that lines that differ in ids have the same masked text: at least eight hex
# digits and dashes, with a letter, and with a digit that is not the last.
HEX = (
    r"(?<=[ =\"'\[].)(?=(?<=[0-9])|[a-f-]*[0-9][0-9a-f-])(?=(?<=[a-f])|[0-9-]*[a-f])"
    r"[0-9a-f-]{7,}(?=[ ,;)\]\"']|$)"
)


def numbers(path: str = PATH, number: str = NUMBER, name: str = HEX) -> re.Pattern[str]:
    """The expression that finds paths, numbers and ids, by what follows their first character.

    Most letters are within words, where no id begins: they are passed over first.
    """
    return re.compile(
        r"[/0-9a-f](?<![^ =\"'\[][a-f])"
        rf"(?:(?<!/){name}|(?<=[0-9])(?:{number})|(?<=/){path})"
    )


_number = numbers()
_colours = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
MESSAGE_FIELDS = frozenset(("msg", "message", "Message", "MESSAGE", "event", "log"))
_message = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(sorted(MESSAGE_FIELDS))})(?:\\?[\"']\s*:\s*(?=\\?[\"'])|=)"
    r"(?:(\\?[\"'])(?!\{)(?P<text>.*?)(?<!\\)\1|(?P<word>[^\s\"'=]+)(?<!:)(?!\S))"
)
# What stands before each record of a container: "api-1  | ", "[pod/api/web] ", a pod and its
# container, a time with or without "stdout F".
BEFORE_RECORD = re.compile(
    r"(?:\S+ *\| *|\[\S+\] |(?=\S*\d)[\w.-]+-[\w.-]+ [a-z][\w-]* |"
    r"(?P<time>\d[\d:.,TZ+-]{9,}) (?:std(?:out|err) [FP] )?)(?=\{\s*\")"
)
_level_name = re.compile(r"[{,]\s*\"(?:level|severity|lvl|levelname)\"\s*:")
# Quoted text is the message if it is the whole line, or only name=value pairs follow.
_opening = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*+)"(?=\s+[\w.-]+=|$)')
_logfmt = re.compile(r"[\w.]++=")
# Scripts that put no blanks between words: a run of their letters is a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_word = re.compile(rf"[{_UNSPACED}]+|[^\W\d_{_UNSPACED}]+")


def clean(line: str) -> str:
    r"""The line without colours of a terminal; private characters are replaced.

    >>> clean("\x1b[31mdisk failed\x1b[0m")
    'disk failed'
    """
    if "\x1b" in line:
        line = strip_colours(line)
    return line if line.isascii() else _private.sub("\ufffd", line)


def strip_colours(line: str) -> str:
    """Remove the escape sequences that colour a line on a terminal."""
    return _colours.sub("", line)


def mask(line: str) -> str:
    """Replace values by private characters: lines with the same masked text have the same key.

    >>> show(mask("Took 25 ms, call f(3, x='a b') for '10.0.0.1' in /var/log"))
    "Took <*> ms, call f(<*>) for '<*>' in <*>"
    """
    json = line[:1] == "{" and line[-1:] == "}"
    before = BEFORE_RECORD.match(line) if line[-1:] == "}" and not json else None
    if before and _level_name.search(line, before.end()):
        return _mask(before[0], json) + mask(line[before.end() :])
    if line[:1] == '"':
        found = _opening.match(line)
    else:
        found = _message.search(line) if json or _logfmt.match(line) else None
    if found:
        start, end = found.span(found.lastgroup or 0)
        words = _word.sub(_mark, _number.sub(VALUE, line[start:end]))
        return _mask(line[:start], json) + words + _mask(line[end:], json)
    return _mask(line, json)


def _mark(word: re.Match[str]) -> str:
    """A word of a message, marked but if it may be part of a date or the unit of a value."""
    return word[0] if word[0] in _UNITS or word[0] in _CALENDAR else MESSAGE_WORD + word[0]


def _mask(line: str, json: bool) -> str:
    """Brackets from the inside out. Fields of a line that is a JSON object keep their names."""
    if "'" in line or '"' in line:
        line = (_quoted_value if json else _quoted).sub(_kind, line)
    if _has_bracket(line):
        outer = json and line[:1] == "{" and line[-1:] == "}"
        inner, n_found = line[1:-1] if outer else line, 1
        while n_found and _has_bracket(inner):
            inner, n_found = _bracket.subn(_kind, inner)
        line = "{" + inner + "}" if outer else inner
    return _number.sub(VALUE, line)


def _has_bracket(line: str) -> bool:
    return "(" in line or "[" in line or "{" in line or "<" in line


def _kind(found: re.Match[str]) -> str:
    text = found[0]
    if text[0] == '"' and (request := _request.match(text)):
        return request[0] + VALUE + text[-1]
    return VALUE if text == WILD else KINDS[text[0]]


# How a template shows a masked value.
_SHOWN = str.maketrans(
    {VALUE: WILD, MESSAGE_WORD: None}
    | {KINDS[quote]: quote + WILD + quote for quote in ("'", '"')}
    | {KINDS[left]: WILD for left in "([{<"}
)
_arguments = re.compile(rf"(?<=\w){KINDS['(']}")


@lru_cache(1 << 12)
def show(masked: str) -> str:
    """Masked text with a wildcard for each value."""
    return _arguments.sub(f"({WILD})", masked).translate(_SHOWN)


# Tokens

_SIZES = "B byte bytes kB KB MB GB TB KiB MiB GiB TiB Kb Mb Gb bit bits kbit Kbit Mbit Gbit".split()  # noqa: SIM905
_UNITS = frozenset(
    "ns us ms s sec secs second seconds min mins minute minutes h hr hrs hour hours "  # noqa: SIM905
    "day days week weeks month months year years AM PM "
    "percent kbps Kbps Mbps Gbps kHz MHz GHz".split()
).union(_SIZES, (f"{size}/{time}" for size in _SIZES for time in ("s", "sec", "second", "min")))
_NOTHING = frozenset("None True False null nil NaN nan inf NULL".split())  # noqa: SIM905
_CALENDAR = frozenset(
    "Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec "  # noqa: SIM905
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April June "
    "July August September October November December".split()
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_ZONE = r"(?: (?:UTC|GMT|[A-Z]{1,3}[DS]T|[CEMW]ET))?"
_CALENDAR_START = (
    "(?=[ADFJMNOSTW])(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|"
    "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
)
_HOST = rf"[A-Za-z0-9{VALUE}_-]+"
_HEX, _BYTE = f"[0-9A-Fa-f{VALUE}]", f"(?:[A-Fa-f]?{VALUE}|[A-Fa-f]{{2}})"
_DELIMITERS = rf"\s=:,;|()\[\]{{}}<>@\"'%#!?*`、。「」（）：{_STRUCTURES}"
_FLAT = r"(?:[^()\[\]{}<>]|\([^()\[\]{}<>]*\)|\[[^()\[\]{}<>]*\])*"
_NONE = r"(?:None|True|False|null|NULL)[)\]]"
_SIMPLE = rf"[(\[](?=[^()\[\]]*[{_MASKS}\d=,]|{_NONE}){_FLAT}[)\]]"
# What a masked line consists of, the first that matches.
SCANNED: dict[str, str] = {
    # Most tokens are words and values between blanks, and signs: found first, as it is fastest.
    # Dates, dumps, addresses and errors begin or end like them.
    "plain": (
        rf"{MESSAGE_WORD}?(?!{_CALENDAR_START}|[A-Fa-f]{{2}} |[A-Fa-f]+:)"
        r"_*+[A-Za-z][A-Za-z_]*+(?:-[A-Za-z_]++)*+"
        r"(?=[ \t);'\"\]}>|]|,\s|=(?!=)|(?<!Error|ption|ailed)(?:\Z|:(?![:/\\])))"
    ),
    "number": (
        rf"{VALUE}(?=(?: |\Z)(?!{_CALENDAR_START}|[A-Fa-f]?{VALUE}|[A-Fa-f]{{2}} )|"
        r"[\t);'\"\]}>|]|[,:]\s)"
    ),
    "sign": r"[:=,;|)\]}<>\"'%#!?*`]",
    "kind": rf"[{_STRUCTURES}]",
    "blanks": r"\s+",
    "url": rf"(?<![A-Za-z+.-])[A-Za-z][A-Za-z+.-]*+://[^\s\"'<>|,;)\]}}{_STRUCTURES}]+",
    # A word, a comma and one more part are words of a message, unless a name is before them.
    "list": (
        rf"(?:(?<=[=:])|(?<=\s)(?![^\W\d_]+,[^\s,;]+(?:[\s;]|$)))"
        rf"[\w.@/+{VALUE}-]++(?:,[\w.@/+{VALUE}-]++)++(?![^\s;])"
    ),
    "address": (
        rf"(?<![\w:{VALUE}])(?={_HEX}*+:)(?:{_HEX}{{1,6}}(?:::?{_HEX}{{1,6}}){{2,}}|"
        rf"(?:[A-Fa-f]{{2,4}}:)+:?{_HEX}*{VALUE}|{_HEX}*{VALUE}(?:::?[A-Fa-f]{{2,4}})+)(?![\w:{VALUE}])"
    ),
    "dump": rf"(?<!\S)(?:{_BYTE} ){{3,}}{_BYTE}(?!\S)",
    "base64": (
        rf"(?<![\w+/{VALUE}])(?=[\w+/{VALUE}]++=)(?:\w{{8,}}==|[\w+/{VALUE}]*[+{VALUE}][\w+/{VALUE}]*==?)(?![^\s,;])"
    ),
    "mail": rf"(?<![\w.+{VALUE}-])[\w.+{VALUE}-]++@{_HOST}(?:\.{_HOST})*+",
    "date": (
        r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\.?,? +)?(?:"
        rf"{_MONTH} +{VALUE}(?:,? +{VALUE}){{0,2}}{_ZONE}(?: {VALUE})?|"
        rf"{VALUE}[ /-]{_MONTH}[ /-]{VALUE}(?: {VALUE})?{_ZONE})(?!\w)"
    ),
    "error": (
        r"(?<![\w.])[A-Za-z_][\w.]*+(?=:|\(|$)"
        r"(?:(?<=[\w.]Error)|(?<=[\w.]Exception)|(?<=[\w.]Failed))"
    ),
    "call": rf"(?<=[\s:=,])[A-Za-z_][\w.]*+(?:[{_STRUCTURES}]|{_SIMPLE})",
    # A capitalised word in brackets at the start may be what happened: [FAILED].
    "tag": rf"\[(?!(?<=\A\[)(?:[A-Z][a-z]+|[A-Z]{{2,}})\] ){_FLAT}\]|{_SIMPLE}|(?<!\w)\(\)",
    "open": (
        r"(?<![^\s:=])(?:[A-Za-z_]+(?=\())?"
        r"[\[{(](?:[^()\[\]{}]|\([^()\[\]{}]*\)|\[[^()\[\]{}]*\])*$|"
        # Cut structure of any depth: all that is closed was masked before.
        rf"(?<![^\s:=])[\[{{(](?=[{_STRUCTURES}]).*$"
    ),
    "host": rf"(?<![\w.@/-])[a-z0-9{VALUE}-]++(?:\.[a-z0-9{VALUE}-]++)++(?=:{VALUE})",
    "windows": (
        r"(?:[A-Za-z]:|(?<![\w\\])\w++|\\)?(?<!\\[nr])\\(?!\\?[nrt](?:[\s\"'\\]|$))"
        rf"[^\s\"'<>|,;()\[\]{_STRUCTURES}]+"
    ),
    "stem": (
        rf"(?<![\w.{VALUE}/-])(?:[A-Za-z_]{{2,}}+(?=\.{VALUE}(?!\w))|"
        rf"(?:[A-Z_]{{2,}}+|[A-Z]?[a-z_]{{2,}}+)(?=/{VALUE}(?![^\s,;:)\]\"'])))"
    ),
    "word": rf"{MESSAGE_WORD}?(?:[{_UNSPACED}]+|[^{_DELIMITERS}{_UNSPACED}]+)",
    "mark": r".",
}


def scanner(kinds: Mapping[str, str] = SCANNED) -> re.Pattern[str]:
    """The expression that finds these kinds of tokens, each as a group of its name.

    A single blank before a token is passed over.
    """
    either = "|".join(f"(?P<{kind}>{one})" for kind, one in kinds.items())
    return re.compile(rf"(?: (?=\S))?(?:{either})", re.DOTALL)


_scan = scanner()
_url = re.compile(SCANNED["url"])
_NEVER_PLAIN = _UNITS | _NOTHING
_DRAWN = frozenset(("", *"|^~+-=*>"))  # what lines and arrows are made of: blanks before are room
_repeated = re.compile(r"([^\w\s])\1{2,}")
_SKIPPED = frozenset("#.,")  # marks that are not compared
_DOMAINS = frozenset("com net org edu gov mil io local localdomain lan internal".split())  # noqa: SIM905
_named = re.compile(r"[A-Za-z_-]{2,}\d$")
_dotted = re.compile(r"[\w-]+(?:\.[\w-]+)+\.?$")
_USER = frozenset("for by of as from invalid illegal unknown new".split())  # noqa: SIM905
_user = re.compile(r"[A-Za-z_][\w.-]*$")
_EDGES = "/.+~&$\\-"  # marks before a value that a template shows
_CONSTANT = frozenset(("plain", "word", "sign", "mark", "blanks"))  # all other kinds are values
_OPAQUE = frozenset(
    ("url", "mail", "address", "dump", "base64", "windows", "date", "list", "host", "error")
)


def tokenize(masked: str) -> Line:
    """Split a masked line into tokens.

    >>> line = tokenize(mask("src:/10.0.0.1:80, took 5 ms for [1, 2]"))
    >>> line.key
    ('src', ':', '<*>', 'took', '<*>', 'for', '<*>')
    >>> line.literals
    ('src', ':', '/<*>', 'took', '<*> ms', 'for', '[<*>, <*>]')
    """
    tokens: list[str] = []
    literals: list[str] = []
    separators: list[str] = []  # before each token, still masked
    reached = 0  # the end of the last token
    value = -1  # the last token that is a value, if only marks came since then
    value_end = 0
    before, last = "", ""  # the last two words, to know "for user X"
    for found in _scan.finditer(masked):
        kind = found.lastgroup
        assert kind is not None
        text, end = found[kind], found.end()
        start = end - len(text)
        if start < reached:
            break
        if kind == "plain" and last != "user" and text not in _NEVER_PLAIN:
            before, last, value = last, text, -1
        elif kind == "sign":
            pass
        elif kind == "word" or kind == "plain":
            if _is_value(text, masked[end : end + 1], first=not tokens) or (
                last == "user" and before in _USER and _user.match(text)
            ):
                kind = "value"
            elif value == len(tokens) - 1 >= 0 and text.rstrip("-.") in _UNITS:
                literals[value] += masked[reached:end]
                reached = value_end = end
                continue
            elif any(map(str.isalnum, text)):
                value = -1
            before, last = last, text
        elif kind == "number":
            before, last = last, text
        elif kind == "error":  # the class of an exception at the start names the event
            if any(map(_is_text, tokens)):  # elsewhere it is a value, with its message
                end = len(masked)
            else:
                kind = "word"
                before, last, value = last, text, -1
        elif kind == "stem":  # of a name with a number: TCP_MISS/200
            kind, value = "word", -1
        if kind in _CONSTANT:
            # Indentation before a word is compared; other blanks are not.
            if text in _SKIPPED or (
                kind == "blanks" and (start or len(text) == 1 or masked[end : end + 1] in _DRAWN)
            ):
                continue
            token = text
            if kind == "word":
                if not (text[-1].isalnum() or is_word(text)):
                    token = _repeated.sub(r"\1", text)  # a mark that is drawn out is one mark
            elif kind != "plain" and tokens[-1:] == [text] and reached == start:
                third = tokens[-2:] == [text, text] and not separators[-1]
                if third:
                    _drop(1, tokens, literals, separators)
                if third or len(literals[-1]) > 2:
                    literals[-1] += text if not third else 2 * text
                    reached = end
                    continue
            tokens.append(token)
            literals.append(text)
        else:
            literal = WILD if kind == "number" else _literal(kind, text)
            if value >= 0:  # adjacent values are one
                _drop(len(tokens) - 1 - value, tokens, literals, separators)
                literals[value] += show(masked[value_end:start]) + literal
                reached = value_end = end
                continue
            # Padding of a value, "less than a value"
            if tokens and (tokens[-1].isspace() or (tokens[-1] in "<>" and reached == start)):
                reached -= len(separators[-1]) + len(literals[-1])
                _drop(1, tokens, literals, separators)
            value, value_end = len(tokens), end
            tokens.append(WILD)
            literals.append(literal)
        separators.append(masked[reached:start])
        reached = end
    separators.append(masked[reached:])
    if MESSAGE_WORD in masked:
        literals = [literal.replace(MESSAGE_WORD, "") for literal in literals]
    return Line(tuple(tokens), tuple(literals), tuple(map(show, separators)))


def _is_text(token: str) -> bool:
    """Whether a token is a word of a sentence: not a level, nor of "Caused by:"."""
    return token[-1:].islower() and token not in ("Caused", "by")


def _literal(kind: str | None, text: str) -> str:
    """How a template shows a value: structures (without URLs), names with a digit by their text."""
    if kind == "value":
        if _named.match(text):
            return text
        core = text.lstrip(_EDGES)
        return text[: len(text) - len(core)] + WILD + core[len(core.rstrip(".")) :]
    quoted = kind == "call" and text[-1] in KINDS["'"] + KINDS['"']  # b"..." and the like
    return WILD if quoted or kind in _OPAQUE else show(_url.sub(VALUE, text))


def _drop(number: int, *lists: list[Any]) -> None:
    if number > 0:
        for one in lists:
            del one[-number:]


def _is_value(word: str, after: str, *, first: bool) -> bool:
    if VALUE in word:
        return True
    if word.isalpha():
        return word in _NOTHING
    if _named.match(word.rstrip(".")):
        return True
    core = word.strip(".-+~&$/\\")
    dots, slashes = core.count("."), core.count("/")
    last = core.rpartition(".")[2]
    if dots >= 2 or slashes >= 2 or (dots and slashes):
        return not (dots and last.isupper())
    if dots and last.lower() in _DOMAINS:
        return True
    return not first and after not in ("(", "=", ":") and _dotted.match(word) is not None


@lru_cache(1 << 14)
def is_word(token: str) -> bool:
    """Whether a token has letters or digits: not a mark, not a value."""
    return token.isalnum() or (token != WILD and any(map(str.isalnum, token)))


# Blanking

_TELLING = _NEVER_PLAIN | _USER | {"user", "Caused"}  # words that decide what others are
# A word that is one token whatever its letters are, and tells nothing about its neighbours.
_blankable = re.compile(
    rf"(?<![^\s=(])(?!{_CALENDAR_START}|[A-Fa-f]+:)([A-Za-z]{{2,}}[a-z])(?<!Error|ption|ailed)"
    r"(?= \S|\)|$|:(?![:/\\]))"
)


def blank(masked: str, known: Container[str]) -> tuple[str, list[str]]:
    """A masked line with one character for each plain word that is not known, and these words.

    >>> blank(mask("door 7 of house Elm is open"), {"door", "of", "house", "is", "open"})[1]
    ['Elm']
    """
    parts, unknown = _blankable.split(masked), []
    for place in range(1, len(parts), 2):
        word = parts[place]
        if word not in known and word not in _TELLING:
            unknown.append(word)
            parts[place] = BLANK
    return "".join(parts), unknown
