"""An interrupted update leaves its object dirty: it is not used again, and never saved."""

import copy
from functools import partial

import numpy as np
import pytest

from distinctkv import Concentration
from distinctkv.dedup import Deduplicator
from distinctkv.dedup.records import RecordEncoder
from distinctkv.guard import UpdateGuard
from distinctkv.logs import LogParser
from distinctkv.novelty import NoveltyDetector

KINDS = [Deduplicator, NoveltyDetector]
CHANGES = {
    "add": lambda made, rows: [made.add(row) for row in rows],
    "add_many": lambda made, rows: made.add_many(rows),
    "absorb": lambda made, rows: made.absorb(filled(type(made), rows)),
}
USES = {
    "save": lambda made, path: made.save(path),
    "add": lambda made, path: made.add(np.eye(8)[0]),
    "absorb": lambda made, path: made.absorb(type(made)()),
    "be absorbed": lambda made, path: type(made)().absorb(made),
}


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


def filled(kind, rows):
    made = kind(0.9)
    made.add_many(rows)
    return made


class Struck(dict):
    """A dict that is interrupted when the second thing is put into it."""

    def __init__(self, held, error):
        super().__init__(held)
        self.left, self.error = 1, error

    def __setitem__(self, name, value):
        if self.left == 0:
            raise self.error
        self.left -= 1
        super().__setitem__(name, value)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("way", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_interrupted_leaves_the_last_snapshot(kind, way, error, tmp_path):
    old, new = np.split(np.eye(8), 2)
    made, path = filled(kind, old), tmp_path / "made"
    made.save(path)
    before = path.read_bytes()
    name = "_records" if kind is Deduplicator else "_items"
    setattr(made, name, Struck(getattr(made, name), error))  # strikes between cache and records
    with pytest.raises(type(error)):
        CHANGES[way](made, new)
    for use in USES.values():
        with pytest.raises(RuntimeError, match="interrupted"):
            use(made, path)
    assert path.read_bytes() == before
    assert kind.load(path).seen == 4


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_before_anything_changed_can_be_used_on(kind, tmp_path):
    made, other = filled(kind, np.eye(3)), filled(kind, np.eye(2))
    with pytest.raises(ValueError, match="numbers"):
        made.absorb(other)
    with pytest.raises(ValueError, match="numbers"):
        made.add([1.0, 2.0])
    made.save(tmp_path / "made")
    assert kind.load(tmp_path / "made").seen == made.seen == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_encoder_has_changed_nothing(kind, monkeypatch, tmp_path):
    made = kind(0.9)
    made.add("one")
    monkeypatch.setattr(RecordEncoder, "rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        made.add_many(["two", "three"])
    made.save(tmp_path / "made")
    assert kind.load(tmp_path / "made").seen == 1


def encode(texts):
    """The lengths of words, as rows."""
    return np.array([[1.0, *map(len, text.split())] for text in texts])


@pytest.mark.parametrize(
    "make",
    [
        LogParser,
        partial(LogParser, Concentration.fixed(0.3, 4)),
        partial(Deduplicator, encode=encode),
        partial(NoveltyDetector, encode=encode, budget=4),
    ],
)
def test_a_copy_learns_for_itself_alone(make, tmp_path):
    first, before, after = make(), tmp_path / "before", tmp_path / "after"
    first.add_many(["the door opened", "the door closed"])
    first.save(before)
    other = copy.copy(first)
    other.add_many([f"{'a' * n} {'b' * (9 - n)} c" for n in range(1, 9)])
    first.save(after)
    assert after.read_bytes() == before.read_bytes()
    assert (other.seen, first.seen) == (10, 2)


@pytest.mark.parametrize("kind", [Deduplicator, NoveltyDetector])
def test_a_copy_has_the_encoder_of_the_first(kind):
    class Model:
        def __call__(self, texts):
            return encode(texts)

    first = kind(encode=Model())
    assert copy.copy(first)._encoder.encode is first._encoder.encode
