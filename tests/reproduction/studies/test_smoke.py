"""Every study runs and has a number for each of its claims; the page is made of the results."""

import pytest
from click.testing import CliRunner

from reproduction import __main__ as main
from reproduction import studies
from reproduction.claims import claims_for
from reproduction.data import NAMES
from reproduction.studies import load, runner, smoke
from tests.reproduction.studies.small_streams import nowhere, streams

DATA = (*(name for name in NAMES if name != "loghub"), "loghub/HDFS", "loghub/BGL")


@pytest.mark.parametrize("name", studies.NAMES)
def test_a_study_runs_and_has_a_number_for_each_of_its_claims(name, seed, tmp_path):
    """Judging a result raises an error where a claim has no number."""
    with streams(tmp_path, *DATA):
        seeds = range(seed, seed + smoke.N_SEEDS)
        result = runner.run_study(name, seeds, runner.SMOKE, tmp_path, runner.silent)
        assert runner.read_result(name, tmp_path) == result
    tables = claims_for(name).values()
    assert len(result.claims) == sum(len(row) for table in tables for row in table.values())
    assert {claim.verdict for claim in result.claims} <= {"not measured"}
    assert (result.missing, result.settings["scale"]) == ((), "smoke")
    assert all(result.findings)


@pytest.mark.parametrize("name", studies.NAMES)
def test_a_study_has_its_size_again_after_a_smoke_run(name):
    before = dict(vars(load(name)))
    with smoke.smaller(name):
        pass
    assert vars(load(name)) == before


def test_the_command_runs_them_and_writes_the_page(tmp_path):
    given = ["--smoke", "--only", "recall,process", "--out", str(tmp_path / "out")]
    with nowhere(tmp_path):
        answer = CliRunner().invoke(main.command, given)
    assert answer.exit_code == 0
    assert "0 hold, 0 differ, 0 inconclusive" in answer.output
    made = {path.name for path in (tmp_path / "out" / "smoke").iterdir()}
    assert made == {"recall.json", "process.json", "report.html"}
