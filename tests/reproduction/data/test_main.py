"""``python -m reproduction.data``."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from reproduction.data import NAMES, data_sets
from reproduction.data.__main__ import command
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay


def data(*arguments):
    return CliRunner().invoke(command, arguments)


def test_every_stream_is_listed_even_if_none_is_here(here):
    said = data().output
    for name in NAMES:
        assert f"python -m reproduction.data get {name}" in said
    assert "Open Database License" in said


def test_what_is_here_is_listed_with_its_folder_and_its_rows(here):
    lay(here["cache"], lookalikes.demo())
    lay(here["data"], lookalikes.log("HDFS") | lookalikes.log("BGL"))
    said = data().output
    assert f"mimic      18,087 rows  {here['cache'] / 'mimic-iv-demo-2.2/hosp'}" in said
    assert f"loghub     4,000 rows, 2 of 16 systems  {here['data'] / 'loghub_2k'}" in said


def test_a_folder_that_does_not_exist_is_named(here, monkeypatch):
    assert data().stderr == ""
    monkeypatch.setenv("DISTINCTKV_DATA", "/no/such")
    assert "/no/such" in data().stderr


def test_damaged_data_is_listed_as_damaged(here):
    lay(here["data"], lookalikes.demo(n_prescriptions=3))
    assert "damaged: there are 3 prescriptions" in data().output


def test_get_says_where_a_stream_is_and_its_licence(here):
    lay(here["data"], lookalikes.log("HDFS"))
    answer = data("get", "loghub/HDFS")
    assert answer.exit_code == 0
    assert f"loghub/HDFS: {here['data']}/loghub_2k/HDFS/HDFS_2k.log" in answer.output
    assert "Licence: research or academic work" in answer.output


def test_get_says_what_to_do_where_nothing_can_be_downloaded(here):
    answer = data("get", "mimic")
    assert answer.exit_code == 1
    assert "Put prescriptions.csv.gz" in answer.output


@pytest.mark.parametrize("name", ["movielense", "loghub/Toaster", "mimic/x"])
def test_an_unknown_stream_is_refused_with_the_known_ones(here, name):
    answer = data("get", name)
    assert answer.exit_code == 2
    assert f"there is no stream '{name}'; there are movielens, loghub, mimic" in answer.output


def test_loghub_stands_for_all_its_systems():
    assert len(data_sets("loghub")) == 2 * 16


def test_it_runs_as_a_module_and_needs_no_pooch():
    code = "import sys, runpy; sys.modules['pooch'] = None; sys.argv[1:] = ['--help']; "
    code += "runpy.run_module('reproduction.data', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "DISTINCTKV_DATA" in done.stdout
