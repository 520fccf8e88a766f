"""``distinctkv reproduce`` where streams are absent, or damaged."""

import json

import pytest
from click.testing import CliRunner

from distinctkv import cli
from reproduction import studies
from reproduction.data import movielens
from reproduction.studies import study
from reproduction.studies.claims import unmeasured
from reproduction.studies.result import Measure, Result, Row
from tests.reproduction.studies.toys import nowhere

N_CLAIMS = len(unmeasured("real_frontier"))


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """Call it at a tiny scale, on two studies, where there is no data."""
    monkeypatch.setattr(study, "QUICK", study.Scale("tiny", 0.01))
    monkeypatch.setattr(studies, "NAMES", ("recall", "real_frontier"))

    def call(*arguments, charset="utf-8"):
        given = ["reproduce", "--out", str(tmp_path / "out"), "--seeds", "2", *arguments]
        with nowhere(tmp_path):
            return CliRunner(charset).invoke(cli.main, given)

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


@pytest.mark.parametrize("charset", ["ascii", "cp1252"])
def test_tables_are_utf8_whatever_the_locale(reproduce, charset):
    said = reproduce("--only", "recall", charset=charset).stdout_bytes.decode()
    assert "✓ holds" in said
    assert "Report: " in said


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

    monkeypatch.setattr("reproduction.data.fetch.download", refuse)
    monkeypatch.setattr("reproduction.data.fetch.from_wheel", refuse)
    assert reproduce("--only", "real_frontier").exit_code == 0


@pytest.fixture
def toys(reproduce, monkeypatch):
    """The call, on results that are at hand, of as many seeds as the study's name says."""

    def find(name, seeds, scale, folder):
        row = Row("dp", "Ours", {"recall": Measure(1.0, 0.0, int(name[3:]))}, "", "cache")
        return Result(name, name, "", (), (row,), {}, (), versions={"distinctkv": "0"})

    monkeypatch.setattr("reproduction.studies.shelf.find", find)
    monkeypatch.setattr(studies, "NAMES", ("toy2", "toy3", "toy5"))
    return reproduce


def test_studies_may_be_named_with_commas(toys):
    answer = toys("--only", "toy3, toy5", "--only", "toy3", "--seeds", "5")
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("not run again") == 2


def test_an_unknown_name_among_commas_is_the_one_refused(toys):
    answer = toys("--only", "toy3,toy4")
    assert answer.exit_code == 2
    assert "there is no study 'toy4'" in answer.output


@pytest.mark.parametrize("only", ["", ",", " , "])
def test_no_name_at_all_is_not_all_of_them(toys, only):
    answer = toys("--only", only)
    assert answer.exit_code == 2
    assert "names no study; there are toy2" in answer.output


def test_a_figure_that_has_no_folder_is_refused_before_anything_runs(toys, tmp_path):
    answer = toys("--only", "toy3", "--figure", str(tmp_path / "none" / "x.svg"))
    assert answer.exit_code == 2
    assert "there is no folder" in answer.output
    assert "not run again" not in answer.output


def test_a_figure_may_go_into_the_folder_that_is_still_to_be_made(reproduce, tmp_path):
    answer = reproduce("--only", "recall", "--figure", str(tmp_path / "out" / "recall.svg"))
    assert answer.exit_code in (0, 1), answer.output
    assert (tmp_path / "out" / "recall.svg").exists()


def test_studies_that_used_fewer_seeds_are_named(toys):
    said = toys("--seeds", "5").output
    assert "Fewer than 5 seeds, for their length: toy2 2, toy3 3; --full uses more" in said
    assert "Fewer" not in toys("--seeds", "2").output
    assert "use fewer" in " ".join(toys("--help").output.split())


@pytest.mark.parametrize("name", ["real_frontier.json", "report.html"])
def test_what_cannot_be_written_is_named(reproduce, tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    answer = reproduce("--only", "real_frontier")
    assert (answer.exit_code, type(answer.exception)) == (1, SystemExit)
    assert name in answer.stderr
