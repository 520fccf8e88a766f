import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from distinctkv import __version__, cli
from reproduction import studies
from reproduction.studies import claims, recall, study

TINY = study.Scale("tiny", 0.01)


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """Call ``distinctkv reproduce`` at a tiny scale, on one study, with results in ``tmp_path``."""
    monkeypatch.setattr(study, "QUICK", TINY)
    monkeypatch.setattr(studies, "NAMES", ("recall",))

    def call(*arguments):
        given = ["reproduce", "--out", str(tmp_path), "--seeds", "2", *arguments]
        return CliRunner().invoke(cli.main, given)

    return call


@pytest.fixture
def all_claims(monkeypatch):
    """Replace what the paper claims of every row by one number."""

    def claim(recall_of_dp):
        wording = {"table": {"dp": {"recall": {"paper": recall_of_dp, "within": 0.01}}}}
        monkeypatch.setattr(claims, "claims_for", lambda study: wording)

    return claim


def test_it_prints_the_table_and_says_where_the_report_is(reproduce, tmp_path):
    said = reproduce().output
    assert "Distinct items (ours)" in said
    assert f"Report: {tmp_path / 'report.html'}" in said


def test_it_leaves_the_result_and_the_report(reproduce, tmp_path):
    reproduce()
    assert {path.name for path in tmp_path.iterdir()} == {"recall.json", "report.html"}
    assert json.loads((tmp_path / "recall.json").read_text())["study"] == "recall"


def test_it_succeeds_when_every_claim_holds(reproduce, all_claims):
    all_claims(1.0)
    answer = reproduce()
    assert answer.exit_code == 0
    assert "1 of 1 claims hold" in answer.output


def test_it_fails_and_says_why_when_a_claim_does_not_hold(reproduce, all_claims):
    all_claims(0.5)
    answer = reproduce()
    assert answer.exit_code == 1
    assert "recall.table.dp.recall fails: paper 0.5, measured 1" in answer.output


def test_what_is_there_is_not_run_again(reproduce, tmp_path):
    reproduce()
    before = (tmp_path / "recall.json").stat().st_mtime_ns
    assert "not run again" in reproduce().output
    assert (tmp_path / "recall.json").stat().st_mtime_ns == before


def test_again_means_again(reproduce, tmp_path):
    reproduce()
    os.utime(tmp_path / "recall.json", (0, 0))
    assert "not run again" not in reproduce("--again").output
    assert (tmp_path / "recall.json").stat().st_mtime > 0


def test_a_key_stroke_stops_it_and_leaves_what_is_finished(reproduce, monkeypatch, tmp_path):
    reproduce()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(recall, "run", interrupted)
    answer = reproduce("--again")
    assert answer.exit_code == 130
    assert "stopped" in answer.output
    assert (tmp_path / "recall.json").exists()


def test_the_figure_is_written_where_asked(reproduce, tmp_path):
    reproduce("--figure", str(tmp_path / "picture.svg"))
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")


def test_one_study_can_be_asked_for(reproduce, all_claims):
    all_claims(1.0)
    assert reproduce("--only", "recall").exit_code == 0


def test_an_unknown_study_is_refused_with_the_known_ones(reproduce):
    answer = reproduce("--only", "recal")
    assert answer.exit_code == 2
    assert "there is no study 'recal'; there are recall" in answer.output


def test_one_seed_is_too_few(reproduce):
    assert reproduce("--seeds", "1").exit_code == 2


def test_the_list_names_every_study_and_runs_none(reproduce, tmp_path):
    answer = reproduce("--list")
    assert answer.exit_code == 0
    assert "recall       Recall at the cost of distinct items" in answer.output
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named_before_anything_runs(reproduce, monkeypatch, tmp_path):
    monkeypatch.setattr(cli.reproduce, "find_spec", lambda name: None if name == "jinja2" else name)
    answer = reproduce()
    assert answer.exit_code == 1
    assert "the report needs jinja2; pip install 'distinctkv[report]'" in answer.output
    assert list(tmp_path.iterdir()) == []


def test_it_tells_its_version():
    answer = CliRunner().invoke(cli.main, ["--version"])
    assert answer.output == f"distinctkv, version {__version__}\n"


def test_the_command_line_brings_in_nothing_heavy():
    heavy = {"rich", "matplotlib", "jinja2", "torch", "numba", "scipy", "reproduction.studies"}
    code = f"import sys, distinctkv.cli; print(*({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
