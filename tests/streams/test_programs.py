"""Logs of 34 made-up programs: how many of their lines are grouped as their templates are."""

import numpy as np
import pytest

from distinctkv.streams import LogParser
from distinctkv.streams.parsing.scores import score
from tests.streams.programs import log, programs

PROGRAMS = programs()
# Names at two places of a short line, free text, and words joined to a number by a slash.
WEAK = {"sudo and cron": 0.45, "proxy": 0.4, "game server": 0.65, "build": 0.5}


def grouping(templates, seed):
    lines, true = log(templates, seed)
    parser = LogParser()
    ids = parser.add_many(lines).tolist()
    parser.templates()
    return score([parser.resolve(number) for number in ids], true, true, true).ga


@pytest.fixture(scope="module")
def accuracy(seed):
    return {name: grouping(templates, seed) for name, templates in PROGRAMS.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_grouped_by_its_templates(accuracy, name):
    assert accuracy[name] >= WEAK.get(name, 0.9)


def test_the_average_over_programs_is_at_least(accuracy):
    assert np.mean(list(accuracy.values())) >= 0.95


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[instance: a1b2] VM {} (Lifecycle Event)", ("Started", "Paused", "Resumed", "Stopped")),
        ('10.0.0.1 "{} /a/b HTTP/1.1" status: 200 len: 7', ("GET", "POST", "DELETE")),
        ("eth0: link is {}", ("up", "down")),
        ("onReceive action: android.intent.action.{}", ("SCREEN_ON", "SCREEN_OFF")),
    ],
)
def test_one_word_can_make_another_template(line, words):
    parser = LogParser()
    parser.add_many([line.format(word) for word in words] * 100)
    assert len(parser.templates()) == len(words)
