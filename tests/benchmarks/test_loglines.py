import pytest

from benchmarks import loglines
from distinctkv.logs.tokenizer import mask
from reproduction.data import loghub
from tests.reproduction.studies.small_streams import nowhere, write_log


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_log(folder, "Toy", 80)
    with nowhere(folder):
        return [loghub.load("Toy")]


def drawn(make, logs, seed):
    return [pair for chunk in make(logs, loglines.CHUNK, seed) for pair in chunk]


def forms(lines):
    return len({mask(line) for line, _ in lines}) / len(lines)


def test_lines_fit_their_events(logs, seed):
    starts = {"Toy E0": "Opening file ", "Toy E1": "Closed session ", "Toy E2": "Worker "}
    for line, event in drawn(loglines.mixed, logs, seed):
        assert line.startswith(starts.get(event, "Retrying in "))


def test_a_form_hardly_comes_twice_when_names_are_fresh(logs, seed):
    assert forms(drawn(loglines.mixed, logs, seed)) > 0.9
    assert forms(drawn(loglines.renumbered, logs, seed)) < 0.1


def test_a_seed_draws_the_same_lines_again(logs, seed):
    for make in (loglines.mixed, loglines.renumbered, loglines.torn):
        assert drawn(make, logs, seed) == drawn(make, logs, seed)


def test_names_in_values_are_fresh_and_no_other_is_added(seed):
    one = ("user root left", "user ann left")
    log = loghub.Log("Toy", one, one, ("E0",) * 2, ("user <*> left",) * 2, None)
    lines = drawn(loglines.mixed, [log], seed)
    assert all(line.startswith("user ") and line.endswith(" left") for line, _ in lines)
    assert len({line for line, _ in lines}) > 0.9 * len(lines)
    assert {line for line, _ in drawn(loglines.renumbered, [log], seed)} == set(one)


def test_without_a_system_the_way_out_is_told(tmp_path):
    with (
        nowhere(tmp_path),
        pytest.raises(SystemExit, match="get loghub"),
    ):
        loglines.systems()
