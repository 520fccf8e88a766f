"""Saved parsers: whole, resumable, or refused."""

import json

import numpy as np
import pytest

from distinctkv import Concentration, SnapshotError, snapshot
from distinctkv.streams import LogParser

LINES = [f"the user {name} logged in 3 times" for name in ("ann", "bob", "cas", "dee", "eve")]
LINES += ["odd \udc80 \0 line", "", "open port ssh2"]


@pytest.fixture
def path(tmp_path):
    parser = LogParser(Concentration.surprise(0.3, base=20), few=3, rare=7, max_line=99)
    parser.seed(["shut <*>"])
    parser.add_many(LINES)
    parser.save(tmp_path / "logs")
    return tmp_path / "logs"


def test_a_parser_survives_the_journey(path, tmp_path):
    parser = LogParser.load(path)
    assert (parser.seen, parser.few, parser.rare, parser.max_line) == (8, 3, 7, 99)
    assert [row.count for row in parser.templates()] == [0, 5, 1, 1, 1]
    parser.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_ids_are_good_after_the_journey(path):
    parser = LogParser.load(path)
    first = parser.match(LINES[0]).id
    assert {parser.resolve(number) for number in range(first, first + 5)} == {first}
    assert parser.add("something new").id == parser.match("something new").id == 9


def test_an_empty_parser_survives_the_journey(tmp_path):
    LogParser().save(tmp_path / "empty")
    parser = LogParser.load(tmp_path / "empty")
    assert (parser.seen, parser.templates(), parser.budget) == (0, [], float("inf"))


def test_another_kind_of_snapshot_is_refused(tmp_path):
    snapshot.save(tmp_path / "cache", "cache", {}, {})
    with pytest.raises(SnapshotError, match="holds a 'cache', not a 'log parser'"):
        LogParser.load(tmp_path / "cache")


@pytest.mark.parametrize(
    "texts", [{}, {"leaves": 3}, {"leaves": [[1, 2]], "homes": [0], "templates": []}, []]
)
def test_a_file_that_describes_no_parser_is_refused(path, tmp_path, texts):
    tensors, state = snapshot.load(path, "log parser")
    tensors["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    snapshot.save(tmp_path / "bad", "log parser", tensors, state)
    with pytest.raises(SnapshotError, match="does not describe a parser"):
        LogParser.load(tmp_path / "bad")
