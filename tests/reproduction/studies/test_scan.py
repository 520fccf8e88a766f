from inspect import signature

import pytest

from reproduction.studies import scan


@pytest.mark.parametrize("name", scan.SCANS)
def test_the_first_setting_is_the_one_in_use(name):
    make, grid = scan.SCANS[name]
    defaults = {
        one: parameter.default
        for one, parameter in signature(make).parameters.items()
        if one in grid and parameter.default is not parameter.empty
    }
    used = {one: values[0] for one, values in grid.items()}
    assert used.items() >= {(one, value) for one, value in defaults.items() if value is not None}


def test_a_setting_that_diverges_is_named():
    lines = [*scan.lines("titans", episodes=1)]
    assert lines[0].startswith("titans     hidden 128, step 1, momentum 0.5")
    assert lines[0].endswith("in use")
    assert any("fails: the weights have diverged" in line for line in lines)
