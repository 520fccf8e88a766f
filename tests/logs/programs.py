"""Logs of programs that were made up: the true templates, filled with values.

`programs.txt` holds the templates that the rules were chosen with, those of one program under its
name; ``{kind}`` is a value. Those in `fresh.txt` were written later, for rules that were there.
"""

import re
from pathlib import Path

from tests.logs.values import Values

TWO = re.compile(r"\{(bool|onoff|updown)\}")


def programs(file="programs"):
    """The templates of each program."""
    found = {}
    text = (Path(__file__).parent / f"{file}.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if name := re.fullmatch(r"== (.+) ==", line):
            templates = found[name[1]] = []
        else:
            templates.append(line)
    return found


def log(templates, seed, n_lines=500):
    """Lines of a program, and the true template of each: some are common, and all are there."""
    values = Values(seed)
    order = values.sample(templates, len(templates))
    weights = [1 / (1 + rank) for rank in range(len(order))]
    drawn = [*order, *values.choices(order, weights, k=n_lines - len(order))]
    true = [_labelled(template, values) for template in drawn]
    return [values.fill(template) for template in true], true


def _labelled(template, values):
    """A word out of two is text, as it is to those who label logs, but not if there are three."""
    return values.fill(template, TWO) if len(TWO.findall(template)) < 3 else template
