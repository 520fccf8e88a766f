"""The rows of log lines in study ``domains``: the bare rule beside the log parser.

The bare rule compares words (``wordwise``); study ``logs`` tries more thresholds, and all systems.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from ..data import loghub
from ..data.loghub import Log
from ..result import Measure, Role, Row
from .log_parsers import PAPER_TAU, SIMILARITIES, parse, score

SYSTEMS = ("HDFS", "BGL")
# Similarity, its label, tau: the paper's numbers come out at the first, chosen with the truth in
# view; .5 is the tau of the other streams.
RULES: tuple[tuple[str, str, float], ...] = (
    ("numbers_alike", "equal words, digits alike", PAPER_TAU),
    ("numbers_alike", "equal words, digits alike", 0.5),
    ("in_place", "equal words", 0.5),
    ("bags", "bags of words", 0.5),
)
PARSER = "one setting for all systems"


def log_rows(missing: Sequence[str], n_seeds: int) -> Iterator[Row]:
    """Each system by the bare rule and by the log parser; nothing here depends on a seed."""
    for system in SYSTEMS:
        absent = f"loghub/{system}" if f"loghub/{system}" in missing else ""
        log = None if absent else loghub.load(system)
        for rule, words, tau in RULES:
            role: Role = "paper" if (system, tau) == ("HDFS", PAPER_TAU) else "added"
            measures = scored(log, SIMILARITIES[rule](log.lines, tau), n_seeds) if log else {}
            name = f"{system}_{rule}_{round(100 * tau)}"
            setting = f"tau {tau:g}, similarity {round(1 - tau, 2):g}"
            yield Row(name, f"{system}, {words}", measures, setting, role, "logs", absent)
        measures = scored(log, parse(log.lines)[0], n_seeds) if log else {}
        label = f"{system}, LogParser (ours)"
        yield Row(f"{system}_parser", label, measures, PARSER, "cache", "logs", absent)


def scored(log: Log, groups: Sequence[Hashable], n_seeds: int) -> Mapping[str, Measure]:
    """Lines in groups that are just those of the truth, and how many groups there are."""
    found = score(groups, log.templates, log.event_ids, log.templates)
    numbers = {
        "lines": len(log),
        "distinct": found.true,
        "redundancy": len(log) / found.true,
        "templates": found.found,
        "GA": found.ga,
    }
    return {name: Measure(float(number), 0.0, n_seeds) for name, number in numbers.items()}
