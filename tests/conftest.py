"""Seeds, Hypothesis profiles, and when a marked test is skipped."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Tests and what they start see a terminal of one kind, whoever runs them.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
os.environ["TERM"] = "xterm"

# `ci` draws the same examples in every run; `pytest --hypothesis-profile=nightly` draws new ones.
settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


def pytest_configure(config):
    # Hypothesis also draws constants of the modules loaded so far: others in each order of tests.
    if config.getoption("--hypothesis-profile") != "nightly":
        providers.is_local_module_file = lambda _: False


@pytest.fixture(scope="session")
def seed(pytestconfig) -> int:
    """The one seed of a run: 0, or in the nightly profile the one pytest-randomly drew."""
    if pytestconfig.getoption("--hypothesis-profile") != "nightly":
        return 0
    return int(pytestconfig.getoption("randomly_seed"))


@pytest.fixture
def rng(seed) -> np.random.Generator:
    """A fresh generator on the seed."""
    return np.random.default_rng(seed)


def pytest_runtest_setup(item):
    if item.get_closest_marker("data") and not os.environ.get("DISTINCTKV_DATA"):
        pytest.skip("DISTINCTKV_DATA does not name a folder of real streams")
    if item.get_closest_marker("gpu"):
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
