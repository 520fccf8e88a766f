"""What the parser reaches on real logs, with one setting."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from distinctkv.logs import LogParser
from reproduction.studies.log_parsers import score

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def systems():
    found = {}
    for path in sorted(Path(os.environ["DISTINCTKV_DATA"]).glob("loghub_2k/*/*_structured.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found[path.parent.name] = list(csv.DictReader(file))
    return found or pytest.skip("no loghub_2k folder in DISTINCTKV_DATA")


def parse(rows):
    parser = LogParser()
    parser.add_many(row["Content"] for row in rows)
    texts = {row.id: row.template for row in parser.templates()}
    ids = [parser.match(row["Content"]).id for row in rows]
    true = ([row[column] for row in rows] for column in ("EventId", "EventTemplate"))
    return score(ids, [texts[number] for number in ids], *true)


def templates(parser):
    return sorted((row.template, row.count) for row in parser.templates())


@pytest.fixture(scope="module")
def scores(systems):
    return {name: parse(rows) for name, rows in systems.items()}


@pytest.mark.parametrize(
    ("measure", "floor"), [("ga", 0.975), ("fga", 0.93), ("pa", 0.82), ("fta", 0.75)]
)
def test_the_average_is_at_least(scores, measure, floor):
    assert np.mean([getattr(one, measure) for one in scores.values()]) >= floor


def test_no_system_is_far_behind(scores):
    assert min(one.ga for one in scores.values()) >= 0.9


def test_hdfs_has_its_fourteen_templates(scores):
    assert (scores["HDFS"].found, scores["HDFS"].ga) == (14, 1.0)


def test_the_order_of_lines_does_not_matter(systems, rng):
    for rows in systems.values():
        lines = [row["Content"] for row in rows]
        one, other = LogParser(), LogParser()
        one.add_many(lines)
        other.add_many(rng.permutation(lines).tolist())
        assert templates(one) == templates(other)


@pytest.mark.parametrize("n_parts", [2, 8])
def test_parts_absorbed_are_the_whole(systems, n_parts):
    for rows in systems.values():
        lines = [row["Content"] for row in rows]
        whole, parts = LogParser(), LogParser()
        whole.add_many(lines)
        for part in range(n_parts):
            one = LogParser()
            one.add_many(lines[part::n_parts])
            parts.absorb(one)
        assert templates(parts) == templates(whole)
