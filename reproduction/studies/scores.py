"""How good a log parse is, by the measures of the benchmarks.

Lines are grouped by their template. A group is right when the truth has the same group. *GA* is
the share of lines in right groups (Zhu et al. 2019); *FGA* weighs every template alike: the F1 of
the share of found groups that are right and the share of true groups that were found. *PA* is the
share of lines whose template text is right, and *FTA* the F1 over template texts (Khan et al. 2022;
Jiang et al. 2024). Texts are compared in their normal form.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

_delimiters = re.compile(r"""([\s,!;:=|"'\[\](){}.+@#$%&-])""")
_joined = re.compile(r"<\*>[.:#/@]?<\*>")


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
    written, wanted = [*map(normal, texts)], [*map(normal, true_texts)]
    lines = max(1, len(groups))
    return Scores(
        ga=sum(map(len, right)) / lines,
        fga=_f1(len(right), len(found), len(true)),
        pa=sum(a == b for a, b in zip(written, wanted, strict=True)) / lines,
        fta=_f1(_right_texts(written, wanted), len(set(written)), len(set(wanted))),
        found=len(found),
        true=len(true),
    )


def normal(template: str) -> str:
    """The form in which template texts are compared: that of the Loghub-2.0 benchmark.

    Runs of blanks are one blank. Between delimiters, a number is a wildcard, and so is a word with
    a wildcard in it unless it is a path. Wildcards joined by nothing or by one of ``. : # / @`` are
    one wildcard. A wildcard between blanks has no quotes and no ``#``.

    >>> normal('blk_<*> from  10.<*>:80 took "<*>" ms')
    '<*> from <*> took <*> ms'
    """
    words = _delimiters.split(" ".join(template.split()))
    text = "".join(
        "<*>" if word.isdecimal() or ("<*>" in word and "/" not in word) else word for word in words
    )
    while (joined := _joined.sub("<*>", text)) != text:
        text = joined
    for dressed in (" #<*># ", " #<*> ", ' "<*>" ', " '<*>' "):
        text = text.replace(dressed, " <*> ")
    return text


def _members(groups: Iterable[Hashable]) -> set[tuple[int, ...]]:
    lines: defaultdict[Hashable, list[int]] = defaultdict(list)
    for line, group in enumerate(groups):
        lines[group].append(line)
    return {tuple(members) for members in lines.values()}


def _right_texts(written: Iterable[str], wanted: Iterable[str]) -> int:
    """Texts all of whose lines have just this text."""
    truth: defaultdict[str, set[str]] = defaultdict(set)
    for text, true_text in zip(written, wanted, strict=True):
        truth[text].add(true_text)
    return sum(true_texts == {text} for text, true_texts in truth.items())


def _f1(right: int, found: int, true: int) -> float:
    return 2 * right / (found + true) if right else 0.0
