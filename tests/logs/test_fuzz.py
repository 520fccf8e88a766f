"""The targets of the fuzzer hold on a few hundred inputs."""

from random import Random

import pytest

from fuzz import parser, state
from fuzz.drive import mutate


@pytest.mark.parametrize(
    ("target", "seeds", "runs"),
    [(parser.target, parser.SEEDS, 300), (state.target, state.seeds(), 60)],
    ids=["parser", "state"],
)
def test_a_target_holds(target, seeds, runs, seed):
    random = Random(seed)
    for data in (b"", *seeds):
        target(data)
    for _ in range(runs):
        target(mutate(seeds, random))
