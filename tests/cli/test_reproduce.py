"""``distinctkv reproduce`` where streams are absent, or damaged."""

import json

import pytest
from click.testing import CliRunner

from distinctkv import cli, studies
from distinctkv.data import movielens
from distinctkv.studies import study
from distinctkv.studies.claims import unmeasured
from tests.studies.toys import nowhere

N_CLAIMS = len(unmeasured("real_frontier"))


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """Call it at a tiny scale, on two studies, where there is no data."""
    monkeypatch.setattr(study, "QUICK", study.Scale("tiny", 0.01))
    monkeypatch.setattr(studies, "NAMES", ("recall", "real_frontier"))

    def call(*arguments):
        given = ["reproduce", "--out", str(tmp_path / "out"), "--seeds", "2", *arguments]
        with nowhere(tmp_path):
            return CliRunner().invoke(cli.main, given)

    return call


def test_absent_data_is_told_and_does_not_fail(reproduce):
    answer = reproduce("--only", "real_frontier")
    assert answer.exit_code == 0
    assert "not measured: data absent" in answer.output
    assert "distinctkv data get movielens" in answer.output
    assert f"no claims to check; {N_CLAIMS} claims not measured: data absent" in answer.output


def test_the_rest_is_measured_and_counted_apart(reproduce, tmp_path):
    said = reproduce().output
    assert "claims hold" in said
    assert f"; {N_CLAIMS} claims not measured: data absent. Report:" in said
    raw = json.loads((tmp_path / "out" / "real_frontier.json").read_text())
    assert (raw["rows"], raw["absent"]) == ([], ["movielens"])
    assert "This study is not measured" in (tmp_path / "out" / "report.html").read_text()


def test_a_figure_that_cannot_be_drawn_is_said_not_to_be(reproduce, tmp_path):
    answer = reproduce("--only", "real_frontier", "--figure", str(tmp_path / "figure.svg"))
    assert answer.exit_code == 0
    assert "No figure" in answer.output
    assert not (tmp_path / "figure.svg").exists()


def test_damaged_data_stops_it_and_names_the_file(reproduce, tmp_path):
    for name in movielens.OFFICIAL:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1\t2\n")
    answer = reproduce("--only", "real_frontier")
    assert answer.exit_code == 1
    assert "remove or replace what was read" in answer.output


def test_nothing_is_ever_fetched(reproduce, monkeypatch):
    def refuse(*_):
        raise AssertionError("reproduce must not fetch")

    monkeypatch.setattr("distinctkv.data.fetch.download", refuse)
    monkeypatch.setattr("distinctkv.data.fetch.from_wheel", refuse)
    assert reproduce("--only", "real_frontier").exit_code == 0
