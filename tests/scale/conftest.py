import numpy as np
import pytest

from tests.scale.work import stream


@pytest.fixture
def tokens(rng):
    """Keys of a stream, and the thing of each."""
    return stream(rng)


@pytest.fixture
def folder(tmp_path, tokens):
    """The keys in five files."""
    for number, keys in enumerate(np.array_split(tokens[0], 5)):
        np.save(tmp_path / f"{number}.npy", keys)
    return tmp_path
