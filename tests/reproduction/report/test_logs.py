from dataclasses import replace

import pytest

from reproduction.report import logs
from reproduction.studies import log_parsers
from reproduction.studies import logs as study
from reproduction.studies.runner import Scale
from tests.reproduction.studies.toys import nowhere, write_log

TINY = Scale("tiny", 0.1)


@pytest.fixture(scope="module")
def toy(seed, tmp_path_factory):
    """A system that is not in the paper, without Drain3."""
    folder = tmp_path_factory.mktemp("data")
    write_log(folder, "Toy", 80)
    with nowhere(folder) as patch:
        patch.setattr(log_parsers, "has_drain3", lambda: False)
        return study.run((seed, seed + 1), TINY)


@pytest.fixture(scope="module")
def hdfs(toy):
    """The same, with the bare rule as if HDFS had been here."""
    ours = next(row for row in toy.rows if row.table == "systems")
    measures = {"HDFS GA": ours.measures["GA"], "HDFS found": ours.measures["found"]}
    rows = [
        replace(row, measures=measures, absent="") if row.table == "bare" else row
        for row in toy.rows
    ]
    return replace(toy, rows=(*rows, replace(ours, name="HDFS", label="HDFS")))


def test_systems_and_parsers_are_named(toy):
    [picture] = logs.pictures(toy)
    drawn = picture.inline()
    assert all(name in drawn for name in ("Toy", "mean", "LogParser (ours)", "Bare rule, tau 0.3"))
    assert "LogParser (ours): 1.000" in picture.alt


def test_a_parser_that_is_not_here_is_not_drawn(toy):
    [picture] = logs.pictures(toy)
    assert "Drain3" not in picture.inline()
    assert "Drain3" not in picture.alt


def test_the_bare_rule_is_drawn_by_what_makes_lines_alike(hdfs):
    drawn = logs.pictures(hdfs)[1].inline()
    for name in ("Equal words, digits alike", "Bags of words", "0.69", "LogParser (ours)"):
        assert name in drawn


def test_the_bare_rule_is_told_in_words(hdfs):
    assert "Bags of words, tau 0.55: GA 1.000, 4 templates" in logs.pictures(hdfs)[1].alt
