import pytest

from benchmarks import log_holdout, switches
from benchmarks.switches import GRAINS, SWITCHES, Choice, changes, parse
from reproduction.data import loghub
from tests.reproduction.studies.small_streams import nowhere, write_log

UNITS = {"cut": (switches.CUT,), "helps": ("date",), "harms": ("units",), "idle": ("dump",)}
WORTH = {switches.CUT: 0.0, "date": 0.2, "units": -0.1, "dump": 0.0}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_log(folder, "Toy", 80)
    with nowhere(folder):
        return loghub.load("Toy")


def made_up(names, choice):
    """Switches that are worth the same everywhere."""
    return 0.5 + sum(WORTH[name] for name in choice.on), 0.0


@pytest.mark.parametrize("units", GRAINS.values(), ids=GRAINS)
def test_every_switch_is_in_one_rule(units):
    assert sorted(switch for unit in units.values() for switch in unit) == sorted(SWITCHES)


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_parser_works_without_each_switch(log, switch):
    ga, fga = parse(log, Choice(frozenset(SWITCHES) - {switch}))
    assert 0 <= ga <= 1
    assert 0 <= fga <= 1


def test_with_all_switches_on_nothing_is_changed(log):
    changed = [(owner, name) for owner, name, _ in changes(frozenset())]
    before = [getattr(owner, name) for owner, name in changed]
    assert parse(log, Choice(frozenset(SWITCHES))) == (1.0, 1.0)
    parse(log, Choice())
    assert before == [getattr(owner, name) for owner, name in changed]


def test_a_switch_that_is_off_is_missed(log):
    glued = loghub.Log("Toy", (), ("a=1", "a=2", "b=3"), ("E1", "E1", "E2"), ("",) * 3, log.times)
    assert parse(glued, Choice(frozenset(SWITCHES)))[0] == 1.0
    assert parse(glued, Choice(frozenset(SWITCHES) - {switches.CUT}))[0] == 0.0


@pytest.mark.parametrize("select", log_holdout.WAYS.values(), ids=log_holdout.WAYS)
def test_what_helps_is_chosen_and_what_harms_or_idles_is_not(select):
    assert select(made_up, ["a"], UNITS) == {"helps"}


def test_halves_are_measured_where_they_were_not_chosen():
    names = ["a", "b", "c", "d"]
    found = log_holdout.leave(
        made_up, names, UNITS, log_holdout.backward, log_holdout.deals(names, True), False
    )
    assert len(found) == 6
    for one in found:
        assert sorted([*one["fitted"], *one["by system"]]) == names


def test_numbers_to_choose_from_have_the_defaults():
    assert Choice().numbers in log_holdout.NUMBERS
    assert len(log_holdout.NUMBERS) == 7
