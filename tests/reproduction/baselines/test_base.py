import inspect

import numpy as np
import pytest

from reproduction import baselines as peers

BUDGETED = [
    peers.Recency, peers.Sinks, peers.H2O, peers.SnapKV, peers.SnapKVOnce, peers.TOVA,
    peers.Redundancy, peers.KeyDiff,
]  # fmt: skip
CLASSES = [getattr(peers, name) for name in peers.__all__]
SETTINGS = [
    (make, setting.name)
    for make in CLASSES
    for setting in list(inspect.signature(make).parameters.values())
]


def made(make, **settings):
    """A peer with the settings it cannot do without."""
    signature = inspect.signature(make).parameters.values()
    needed = {one.name: 8 for one in signature if one.default is one.empty}
    return make(**(needed | settings))


@pytest.mark.parametrize(("make", "name"), SETTINGS)
@pytest.mark.parametrize("wrong", ["3", [2], 1j, True, np.array([1.0, 2.0])])
def test_a_setting_that_is_no_number_is_refused_by_name(make, name, wrong):
    with pytest.raises(TypeError, match=f"{name} must be"):
        made(make, **{name: wrong})


@pytest.mark.parametrize(("make", "name"), SETTINGS)
def test_a_count_is_a_whole_number(make, name):
    if inspect.signature(make).parameters[name].annotation in ("int", "int | None"):
        with pytest.raises(TypeError, match=f"{name} must be a whole number"):
            made(make, **{name: 2.5})


@pytest.mark.parametrize(("make", "name"), SETTINGS)
@pytest.mark.parametrize(
    ("wrong", "rule"), [(10**400, "fit into a float"), (np.nan, "be a number")]
)
def test_a_number_that_no_float_holds_is_refused_by_name(make, name, wrong, rule):
    if "float" in inspect.signature(make).parameters[name].annotation:
        with pytest.raises(ValueError, match=f"{name} must {rule}"):
            made(make, **{name: wrong})


@pytest.mark.parametrize("make", BUDGETED)
def test_a_budget_of_one_needs_no_other_setting(make, rng):
    keys, values = rng.normal(size=(9, 4)), rng.normal(size=(9, 2))
    memory = make(1)
    memory.write(keys, values)
    assert memory.read(keys).shape == (9, 2)


@pytest.mark.parametrize("make", BUDGETED)
@pytest.mark.parametrize("budget", [10**9, 2**52, 2**63, np.int64(10**9)])
def test_a_budget_without_end_is_attention(make, budget, rng):
    keys, values = rng.normal(size=(70, 4)), rng.normal(size=(70, 2))
    memory, full = make(budget), peers.Attention()
    for part in (slice(0, 33), slice(33, 70)):
        memory.write(keys[part], values[part])
        full.write(keys[part], values[part])
    np.testing.assert_allclose(memory.read(keys), full.read(keys), atol=1e-6)


@pytest.mark.parametrize("make", CLASSES)
def test_an_empty_list_is_an_empty_stream(make, rng):
    memory = made(make)
    memory.write(rng.normal(size=(5, 4)), np.eye(5)[:, :3])
    assert memory.write([], []).shape == (0,)
    assert memory.read([]).shape == (0, 3)


@pytest.mark.parametrize("make", CLASSES)
def test_one_token_may_come_without_a_row(make, rng):
    key, value = rng.normal(size=4), np.array([0.0, 1.0])
    plain, rows = made(make), made(make)
    np.testing.assert_array_equal(plain.write(key, value), rows.write(key[None], value[None]))
    np.testing.assert_array_equal(plain.read(key), rows.read(key[None]))


@pytest.mark.parametrize("make", [peers.Superposition, peers.KVM, peers.Ridge, peers.Based])
def test_a_sum_beyond_float32_is_refused_at_the_read(make):
    memory = make()
    memory.write(np.eye(3)[[0, 1, 2] * 24], np.full((72, 2), 3e38))
    with pytest.raises(ValueError, match="beyond float32"):
        memory.read(np.eye(3))


@pytest.mark.parametrize("make", [peers.Attention, peers.TTL, peers.SubGen])
def test_a_theta_that_divides_beyond_floats_is_named_at_the_read(make):
    memory = make(theta=1e-320)
    memory.write(np.eye(3), np.eye(3))
    with pytest.raises(ValueError, match="a theta this near 0"):
        memory.read(np.eye(3))


def test_a_start_that_fails_can_be_tried_again(monkeypatch):
    memory = peers.Fourier()
    with monkeypatch.context() as broken:
        broken.setattr(memory, "scale", "wide")
        with pytest.raises(TypeError):
            memory.write(np.eye(3), np.eye(3))
    memory.write(np.eye(3), np.eye(3))
    assert memory.read(np.eye(3)).shape == (3, 3)
