"""The truth that is captured from ``logging``."""

import json
import logging

import pytest

from benchmarks.logging_truth.__main__ import Lines, broken, scores
from benchmarks.logging_truth.programs import PROGRAMS, REQUIREMENTS, TruthHandler
from distinctkv.logs import LogParser


@pytest.fixture
def logged(tmp_path):
    """A logger, and a function that gives what was captured of it."""
    path = tmp_path / "rows.jsonl"
    logger = logging.Logger("truth", logging.DEBUG)
    logger.addHandler(TruthHandler("door", path))
    return logger, lambda: [json.loads(line) for line in path.read_text().splitlines()]


def test_the_template_is_the_format_string(logged):
    logger, rows = logged
    logger.warning("door %d is %-5s at %.1f%%", 7, "open", 2.5)
    logger.info("%(who)s left\nat once", {"who": "ann"})
    assert rows() == [
        {
            "program": "door",
            "level": "WARNING",
            "template": "door <*> is <*> at <*>%",
            "message": "door 7 is open  at 2.5%",
            "wild": False,
        },
        {
            "program": "door",
            "level": "INFO",
            "template": "<*> left",
            "message": "ann left",
            "wild": False,
        },
    ]


def test_a_text_that_holds_its_values_already_is_out_of_scores(logged):
    logger, rows = logged
    number = len(PROGRAMS)
    logger.info(f"door {number} opened")
    logger.info(f"door {number} opened", {"door": number})
    logger.info("door opened")
    logger.info("%s: %s", "door", 7)
    logger.info("door %s", "of", "too many")
    assert [row["wild"] for row in rows()] == [True, True, False, True]


def test_lines_out_of_scores_are_parsed_and_not_scored():
    rows = [{"message": f"door {n} opened", "template": "door <*> opened"} for n in range(9)]
    rows = [row | {"wild": False} for row in rows]
    rows.insert(4, {"message": "so it is", "template": "<*>", "wild": True})
    found = scores(Lines.of("door", rows))
    assert set(broken(Lines.of("door", rows)).values()) == {0}
    assert found["ours"] == found["ours, by match"] == dict.fromkeys(("GA", "FGA", "PA", "FTA"), 1)


def test_each_requirement_has_its_version():
    assert len(PROGRAMS) >= 10
    assert all("==" in one for one in REQUIREMENTS)


def test_a_broken_promise_is_counted(monkeypatch):
    rows = [{"message": f"door {n} opened", "template": "", "wild": True} for n in range(9)]
    monkeypatch.setattr(LogParser, "match", lambda *_: None)
    found = broken(Lines.of("door", rows))
    assert {what: count for what, count in found.items() if count} == {
        "lines that match finds elsewhere": 9
    }
