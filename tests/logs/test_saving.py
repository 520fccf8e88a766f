"""Saved parsers: whole, resumable, or refused."""

import json

import numpy as np
import pytest

from distinctkv import Concentration, SnapshotError, snapshot
from distinctkv.logs import LogParser, templates

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
    parser.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    assert [row.count for row in parser.templates()] == [0, 5, 1, 1, 1]


def test_ids_are_good_after_the_journey(path):
    parser = LogParser.load(path)
    first = parser.templates()[1].id
    assert {parser.resolve(number) for number in range(first, first + 5)} == {first}
    assert parser.add("something new").id == parser.match("something new").id == 9


@pytest.mark.parametrize("asked", [False, True])
def test_to_save_gives_no_other_ids(tmp_path, asked):
    never, saved = LogParser(), LogParser()
    for line in LINES[:5]:
        assert saved.add(line).id == never.add(line).id
    if asked:
        assert saved.templates() == never.templates()
    saved.save(tmp_path / "state")
    loaded = LogParser.load(tmp_path / "state")
    for line in (*LINES, *LINES):
        assert saved.add(line).id == loaded.add(line).id == never.add(line).id
    assert (len(saved), saved.born) == (len(loaded), loaded.born) == (len(never), never.born)


def test_a_template_goes_on_standing_for_a_rare_one(tmp_path):
    parser = LogParser()
    parser.add_many(["open 7 failed"] * 20 + ["open my 7 failed"])
    assert [row.count for row in parser.templates()] == [21]
    parser.save(tmp_path / "state")
    loaded = LogParser.load(tmp_path / "state")
    assert loaded.match("open my 8 failed").id == parser.match("open 8 failed").id == 0
    answers = [one.add_log_message("open 9 failed") for one in (parser, loaded)]
    assert answers[0] == answers[1]
    assert answers[0]["cluster_size"] == 22


def test_templates_that_stand_for_each_other_are_refused(path, tmp_path):
    tensors, state = snapshot.load(path, "log parser")
    texts = json.loads(tensors["texts"].tobytes())
    one, two = (row[0] for row in texts["templates"][:2])
    texts["into"] = [[one, two], [two, one]]
    tensors["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
    snapshot.save(tmp_path / "bad", "log parser", tensors, state)
    with pytest.raises(SnapshotError, match="itself part of another"):
        LogParser.load(tmp_path / "bad")


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


def test_a_line_counted_as_a_value_is_found_as_a_loaded_parser_finds_it(tmp_path, monkeypatch):
    monkeypatch.setattr(templates, "SETTLED", 6)
    words = [f"{a}{b}{c}q" for a in "bcdf" for b in "aeiou" for c in "lmnp"]
    parser = LogParser()
    parser.add_many([f"open {word}" for word in words[:40]])
    parser.add("open ab")  # counted by `open <*>`, which keeps no values any more
    parser.add_many([f"{word} ab" for word in words[40:]])
    parser.save(tmp_path / "state")
    assert LogParser.load(tmp_path / "state").add("open ab").id == parser.add("open ab").id
