"""An interrupted update leaves its object dirty, and a dirty object can not be used."""

import copy

import pytest

from distinctkv.guard import UpdateGuard


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_an_interrupted_update_leaves_the_object_dirty(error):
    guard = UpdateGuard("parser")
    with pytest.raises(error), guard:
        raise error
    for use in (guard.check, guard.__enter__, copy.deepcopy(guard).check):
        with pytest.raises(RuntimeError, match="parser was interrupted"):
            use()


def test_a_finished_update_leaves_the_object_consistent():
    guard = UpdateGuard("parser")
    with guard:
        assert guard.dirty
        with pytest.raises(RuntimeError, match="another thread"):
            guard.check()
    guard.check()
