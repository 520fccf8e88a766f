"""Log parsers that the studies compare, and measures of how good a parse is.

A parser takes lines and gives, for each, a group and the text of its template. There are three:
our `LogParser`; Drain3; and a word-overlap baseline, which is the paper's parser as far as the
paper describes it: a line is a key, a template is a slot, and nothing else. The paper names no
similarity, so the baseline has three. Spell (Du and Li 2016), which the paper cites, has no row: in
the benchmark of Zhu et al. (2019) Drain groups better on average, and stands for the tuned parsers.

A group is right when the truth has the same group. *GA* is the share of lines in right groups (Zhu
et al. 2019); *FGA* weighs every template alike: the F1 of the share of found groups that are right
and the share of true groups that were found. *PA* is the share of lines whose template text is
right, and *FTA* the F1 over template texts (Khan et al. 2022; Jiang et al. 2024). Texts are
compared after `normalize`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from distinctkv.cache import Cache
from distinctkv.logs import LogParser
from distinctkv.policy import Concentration

from .sweep import Method

Parse = tuple[Sequence[Hashable], Sequence[str]]  # group and template text of each line
Groups = list[tuple[int, int]]  # for each line a number of words, and the id of its slot

WILDCARD = "<*>"
TAU, FEW = 0.3, 4  # the defaults of our parser
GOOD_TAU, PAPER_TAU = 0.3, 0.69  # of the baseline: a good one, and that of the paper's numbers


# Our parser


def parse(lines: Sequence[str], tau: float = TAU, few: int = FEW) -> Parse:
    """The parse of our `LogParser`, after the last line.

    >>> parse(["open a1", "open b2", "shut"])
    ([0, 0, 1], ['open <*>', 'open <*>', 'shut'])
    """
    parser = LogParser(Concentration.fixed(tau), min_distinct_values=few + 1)
    ids = parser.add_many(lines).tolist()
    texts: dict[int | None, str] = {row.id: row.template for row in parser.templates()}
    current = {number: parser.resolve(number) for number in set(ids)}
    groups = [current[number] for number in ids]
    return groups, [texts[group] for group in groups]


def shards_agree(lines: Sequence[str], n_shards: int) -> bool:
    """Whether parsers of shards, absorbed into one, have the templates of one pass.

    >>> shards_agree(["open a1", "open b2", "shut"], 2)
    True
    """
    single, merged = LogParser(), LogParser()
    single.add_many(lines)
    for start in range(n_shards):
        shard = LogParser()
        shard.add_many(lines[start::n_shards])
        merged.absorb(shard)
    counts = ([(row.template, row.count) for row in one.templates()] for one in (single, merged))
    return sorted(next(counts)) == sorted(next(counts))


# The word-overlap baseline


def in_place(lines: Sequence[str], tau: float) -> Groups:
    """Groups by the share of words that differ, place by place, among lines of equal length.

    >>> in_place(["open a", "open b", "shut all doors"], tau=0.5)
    [(2, 0), (2, 0), (3, 0)]
    """
    words = [line.split() for line in lines]
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for place, line in enumerate(words):
        by_length[len(line)].append(place)
    groups: Groups = [(0, 0)] * len(lines)
    for length, places in by_length.items():
        ids = _slots([Counter(enumerate(words[place])) for place in places], tau)
        for place, slot in zip(places, ids, strict=True):
            groups[place] = (length, slot)
    return groups


def numbers_alike(lines: Sequence[str], tau: float) -> Groups:
    """The same, after all words with a digit are replaced by the wildcard.

    >>> numbers_alike(["open a1", "open b2", "open c"], tau=0.3)
    [(2, 0), (2, 0), (2, 1)]
    """
    return in_place([mask_numbers(line) for line in lines], tau)


def bags(lines: Sequence[str], tau: float) -> Groups:
    """Groups by one less the cosine between the word counts of two lines, whatever the order.

    >>> bags(["open a door", "a door open", "shut"], tau=0.3)
    [(0, 0), (0, 0), (0, 1)]
    """
    return [(0, slot) for slot in _slots([Counter(line.split()) for line in lines], tau)]


SIMILARITIES: Mapping[str, Callable[[Sequence[str], float], Groups]] = {
    "numbers_alike": numbers_alike,
    "in_place": in_place,
    "bags": bags,
}


def word_overlap(lines: Sequence[str], tau: float) -> Parse:
    """The parse of the baseline with words in place and numbers alike."""
    groups = numbers_alike(lines, tau)
    return groups, common_words([mask_numbers(line) for line in lines], groups)


def mask_numbers(line: str) -> str:
    """The line with a wildcard for each word that has a digit.

    >>> mask_numbers("took 3 ms at 10:20")
    'took <*> ms at <*>'
    """
    return " ".join(WILDCARD if any(map(str.isdigit, word)) else word for word in line.split())


def common_words(lines: Sequence[str], groups: Groups) -> list[str]:
    """The template of each line: the words that all lines of its group share, place by place.

    >>> common_words(["open a", "open b"], [(2, 0), (2, 0)])
    ['open <*>', 'open <*>']
    """
    shared: dict[tuple[int, int], list[str]] = {}
    for line, group in zip(lines, groups, strict=True):
        words = line.split()
        before = shared.setdefault(group, words)
        shared[group] = [a if a == b else WILDCARD for a, b in zip(before, words, strict=True)]
    return [" ".join(shared[group]) for group in groups]


def _slots(lines: Sequence[Counter[Hashable]], tau: float) -> list[int]:
    """The slot of each line in a cache whose keys are word counts; an empty line has one word."""
    counts = [line or Counter([None]) for line in lines]
    columns = {word: column for column, word in enumerate(dict.fromkeys(chain(*counts)))}
    keys = np.zeros((len(counts), len(columns)), dtype=np.float32)
    for row, line in enumerate(counts):
        keys[row, [columns[word] for word in line]] = [*line.values()]
    ids: list[int] = Cache(Concentration.fixed(tau)).write(keys).tolist()
    return ids


# Drain3

INSTALL_DRAIN3 = "pip install 'drain3==0.9.11'"
# The masking of examples/drain3.ini in Drain3's repository (MIT licence).
MASKS = (
    (r"((?<=[^A-Za-z0-9])|^)(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))((?=[^A-Za-z0-9])|$)", "ID"),
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9a-f]{6,} ?){3,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)([0-9A-F]{4} ?){4,}((?=[^A-Za-z0-9])|$)", "SEQ"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
    (r"(?<=executed cmd )(\".+?\")", "CMD"),
)


@dataclass(frozen=True, slots=True)
class Drain3Setting:
    """How Drain3 is configured; the defaults are its own.

    >>> print(DRAIN3_BEST)
    example masking, depth 5, similarity 0.5, delimiters = : ,
    """

    masked: bool = False
    depth: int = 4
    similarity: float = 0.4
    delimiters: str = ""
    max_clusters: int | None = None

    def __str__(self) -> str:
        """The setting in words."""
        words = ["example masking" if self.masked else "no masking"]
        words += [f"depth {self.depth}, similarity {self.similarity}"]
        words += [f"delimiters {' '.join(self.delimiters)}"] * bool(self.delimiters)
        words += [f"at most {self.max_clusters} clusters"] * (self.max_clusters is not None)
        return ", ".join(words)


DRAIN3_DEFAULT, DRAIN3_MASKED = Drain3Setting(), Drain3Setting(masked=True)
# Of 72 settings (depth 4 to 6, similarity .4 to .6, four sets of delimiters, with and without
# masking), the one with the largest mean GA on the twelve systems: chosen by looking at the truth.
DRAIN3_BEST = Drain3Setting(masked=True, depth=5, similarity=0.5, delimiters="=:,")


def has_drain3() -> bool:
    """Whether Drain3 can be imported."""
    return find_spec("drain3") is not None


def drain3(setting: Drain3Setting = DRAIN3_DEFAULT) -> Callable[[str], dict[str, Any]]:
    """The ``add_log_message`` of a new Drain3."""
    if not has_drain3():
        raise ModuleNotFoundError(f"Drain3 is not installed; {INSTALL_DRAIN3}")
    logging.getLogger("drain3").setLevel(logging.ERROR)
    config = import_module("drain3.template_miner_config").TemplateMinerConfig()
    if setting.masked:
        instruction = import_module("drain3.masking").MaskingInstruction
        config.masking_instructions = [instruction(*mask) for mask in MASKS]
    config.drain_depth, config.drain_sim_th = setting.depth, setting.similarity
    config.drain_extra_delimiters = [*setting.delimiters]
    config.drain_max_clusters = setting.max_clusters
    add: Callable[[str], dict[str, Any]] = (
        import_module("drain3").TemplateMiner(config=config).add_log_message
    )
    return add


def parse_with_drain3(
    lines: Sequence[str], setting: Drain3Setting = DRAIN3_DEFAULT
) -> tuple[list[int], list[str]]:
    """The parse of Drain3, after the last line; every mask is a wildcard."""
    add = drain3(setting)
    answers = [add(line) for line in lines]
    last = {answer["cluster_id"]: answer["template_mined"] for answer in answers}
    texts = {number: re.sub("<[A-Z]+>", WILDCARD, text) for number, text in last.items()}
    groups = [answer["cluster_id"] for answer in answers]
    return groups, [texts[number] for number in groups]


# All of them; ``make`` of a parser takes lines and gives a `Parse`

PARSERS = (
    Method(
        "ours",
        "LogParser (ours)",
        f"tau {TAU}, few {FEW}",
        parse,
        role="cache",
    ),
    *(
        Method(name, label, str(setting), partial(parse_with_drain3, setting=setting))
        for name, label, setting in (
            ("drain3", "Drain3", DRAIN3_DEFAULT),
            ("drain3_masked", "Drain3, masked", DRAIN3_MASKED),
            ("drain3_best", "Drain3, at its best", DRAIN3_BEST),
        )
    ),
    *(
        Method(
            f"bare_{100 * tau:.0f}",
            f"Bare rule, tau {tau}",
            "words in place, digits alike",
            partial(word_overlap, tau=tau),
            role="paper" if tau == PAPER_TAU else "added",
        )
        for tau in (GOOD_TAU, PAPER_TAU)
    ),
)


# How good a parse is


class Scores(NamedTuple):
    """The four measures, and the number of templates found and true."""

    ga: float
    fga: float
    pa: float
    fta: float
    found: int
    true: int


def score(
    groups: Sequence[Hashable],
    texts: Sequence[str],
    true_groups: Sequence[Hashable],
    true_texts: Sequence[str],
) -> Scores:
    """All measures of a parse, given the group and the template text of each line.

    >>> score([7, 7, 8], ["open <*>", "open <*>", "shut 3"], ["a"] * 3, ["open <*>"] * 3)
    Scores(ga=0.0, fga=0.0, pa=0.6666666666666666, fta=0.6666666666666666, found=2, true=1)
    """
    found, true = _members(groups), _members(true_groups)
    right = found & true
    own, truth = [*map(normalize, texts)], [*map(normalize, true_texts)]
    n_lines = max(1, len(groups))
    return Scores(
        ga=sum(map(len, right)) / n_lines,
        fga=_f1(len(right), len(found), len(true)),
        pa=sum(a == b for a, b in zip(own, truth, strict=True)) / n_lines,
        fta=_f1(_right_texts(own, truth), len(set(own)), len(set(truth))),
        found=len(found),
        true=len(true),
    )


_delimiters = re.compile(r"""([\s,!;:=|"'\[\](){}.+@#$%&-])""")
_adjacent_wildcards = re.compile(r"<\*>[.:#/@]?<\*>")


def normalize(template: str) -> str:
    """The form in which template texts are compared: that of the Loghub-2.0 benchmark.

    Runs of blanks are one blank. Between delimiters, a number is a wildcard, and so is a word with
    a wildcard in it unless it is a path. Wildcards joined by nothing or by one of ``. : # / @`` are
    one wildcard. A wildcard between blanks has no quotes and no ``#``.

    >>> normalize('blk_<*> from  10.<*>:80 took "<*>" ms')
    '<*> from <*> took <*> ms'
    """
    words = _delimiters.split(" ".join(template.split()))
    text = "".join(
        "<*>" if word.isdecimal() or ("<*>" in word and "/" not in word) else word for word in words
    )
    while (shorter := _adjacent_wildcards.sub("<*>", text)) != text:
        text = shorter
    for quoted in (" #<*># ", " #<*> ", ' "<*>" ', " '<*>' "):
        text = text.replace(quoted, " <*> ")
    return text


def _members(groups: Iterable[Hashable]) -> set[tuple[int, ...]]:
    lines: defaultdict[Hashable, list[int]] = defaultdict(list)
    for line, group in enumerate(groups):
        lines[group].append(line)
    return {tuple(members) for members in lines.values()}


def _right_texts(own: Iterable[str], truth: Iterable[str]) -> int:
    """Texts all of whose lines have exactly this text in truth."""
    by_text: defaultdict[str, set[str]] = defaultdict(set)
    for text, true_text in zip(own, truth, strict=True):
        by_text[text].add(true_text)
    return sum(true_texts == {text} for text, true_texts in by_text.items())


def _f1(right: int, found: int, true: int) -> float:
    return 2 * right / (found + true) if right else 0.0
