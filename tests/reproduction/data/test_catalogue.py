import pytest
from click.testing import CliRunner

from distinctkv import cli
from reproduction.data import catalogue
from tests.reproduction.data import lookalikes
from tests.reproduction.data.lookalikes import lay


def data(*arguments):
    return CliRunner().invoke(cli.main, ["data", *arguments], env={"COLUMNS": "40"})


def test_every_stream_is_listed_even_if_none_is_here(here):
    said = data().output
    for name in catalogue.NAMES:
        assert f"no; distinctkv data get {name}" in said
    assert "Open Database License" in said


def test_what_is_here_is_listed_with_its_place_and_its_rows(here):
    lay(here["cache"], lookalikes.demo())
    lay(here["data"], lookalikes.log("HDFS") | lookalikes.log("BGL"))
    found = {entry.name: entry for entry in catalogue.entries()}
    assert found["mimic"].where == here["cache"] / "mimic-iv-demo-2.2/hosp"
    assert found["mimic"].n_rows == 18_087
    assert found["loghub"].where == here["data"] / "loghub_2k"
    assert (found["loghub"].n_rows, found["loghub"].note) == (4_000, "2 of 16 systems")
    assert found["movielens"].where is None


def test_a_folder_that_is_not_there_is_told(here, monkeypatch):
    assert data().stderr == ""
    monkeypatch.setenv("DISTINCTKV_DATA", "/no/such")
    assert data().stderr == "DISTINCTKV_DATA names /no/such, and there is no such folder\n"


def test_in_a_pipe_the_table_shows_rows_and_places_unfolded(here):
    lay(here["data"], lookalikes.demo())
    said = data().output
    assert f"{here['data'] / 'mimic-iv-demo-2.2/hosp'}  18,087" in said


def test_damaged_data_is_listed_as_damaged(here):
    lay(here["data"], lookalikes.demo(n_prescriptions=3))
    said = data().output
    assert "damaged: there are 3 prescriptions" in said


def test_get_says_where_a_stream_is_and_its_licence(here):
    lay(here["data"], lookalikes.log("HDFS"))
    answer = data("get", "loghub/HDFS")
    assert answer.exit_code == 0
    assert f"loghub/HDFS: {here['data']}/loghub_2k/HDFS/HDFS_2k.log" in answer.output
    assert "Licence: research or academic work" in answer.output


def test_get_says_what_to_do_where_nothing_can_be_fetched(here):
    answer = data("get", "mimic")
    assert answer.exit_code == 1
    assert "Error: mimic is not in" in answer.output
    assert "Put prescriptions.csv.gz" in answer.output


@pytest.mark.parametrize("name", ["movielense", "loghub/Toaster", "mimic/x"])
def test_an_unknown_stream_is_refused_with_the_known_ones(here, name):
    answer = data("get", name)
    assert answer.exit_code == 2
    assert f"there is no stream '{name}'; there are movielens, loghub, mimic" in answer.output


def test_loghub_stands_for_all_its_systems():
    assert len(catalogue.members("loghub")) == 2 * 16
