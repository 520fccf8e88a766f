"""Templates as a whole: which lines share one, and what it shows."""

import pytest

from distinctkv.logs import LogParser

NAMES = "perl libgdbm6 curl gpgv tar vim zlib1g make bash dash sed grep gawk less file mount"


def test_values_beside_each_other_are_one_however_they_were_recognised():
    # A name with a digit is a value by its form; other names become one by evidence.
    lines = [f"unpacked {name}:amd64 1.{n}-2" for n, name in enumerate(NAMES.split())]
    for order in (lines, lines[::-1], sorted(lines)):
        parser = LogParser()
        parser.add_many(order)
        assert [one.template for one in parser.templates()] == ["unpacked <*>:<*> <*>"]


@pytest.mark.parametrize("lines", [["==12787==", "== =="], ["= 5", "="], [":5", ":"]])
def test_every_template_of_marks_has_lines(lines):
    parser = LogParser()
    parser.add_many(lines)
    assert sum(one.count for one in parser.templates()) == len(lines)
