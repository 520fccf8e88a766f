"""``distinctkv info`` on every kind of snapshot; ``merge`` gives what one pass would have given."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from distinctkv import Cache, Concentration, snapshot
from distinctkv.cli import main
from distinctkv.cli.io import lock_state
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from distinctkv.novelty import NoveltyDetector

LINES = [f"user {name} logged {way}" for name in ("ann", "bob", "cas") for way in ("in", "out")]


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def cache():
    held = Cache(Concentration.fixed(0.3))
    held.write(np.eye(3)[[0, 1, 1]], [4, 5, 5])
    return held


def filled(held):
    held.add_many(LINES)
    return held


KINDS = {
    "cache": cache,
    "log parser": lambda: filled(LogParser()),
    "deduplicator": lambda: filled(Deduplicator()),
    "novelty detector": lambda: filled(NoveltyDetector()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_info_names_kind_size_and_content(tmp_path, kind):
    path, held = tmp_path / "snapshot", KINDS[kind]()
    held.save(path)
    found = json.loads(run("info", path, "--json").stdout)
    assert (found["kind"], found["content"]) == (kind, repr(held))
    assert found["bytes"] == path.stat().st_size
    shown = run("info", path, "--tensors").stdout
    assert f"kind: {kind}" in shown
    assert all(name in shown for name in snapshot.load(path, kind)[0])


def test_info_describes_other_kinds_by_their_state(tmp_path):
    snapshot.save(tmp_path / "x", "other", {"a": np.zeros((2, 3))}, {"b": 1, "c": "\x1b[31m"})
    shown = run("info", tmp_path / "x").stdout
    assert "b  1" in shown
    assert "\x1b" not in shown


def test_info_refuses_what_is_no_snapshot(tmp_path):
    path = tmp_path / "x"
    path.write_text("no")
    assert "is no snapshot" in run("info", path).stderr
    cache().save(path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    answer = run("info", path)
    assert (answer.exit_code, "was changed" in answer.stderr) == (1, True)


def parts(tmp_path, make):
    paths = [tmp_path / f"part{n}" for n in range(3)]
    for n, path in enumerate(paths):
        make(n).save(path)
    return paths


def test_caches_become_one(tmp_path, rng):
    rows = rng.standard_normal((40, 32))[rng.integers(0, 40, 300)]

    def make(n):
        cache = Cache(Concentration.fixed(0.2))
        cache.write(rows[100 * n : 100 * n + 100])
        return cache

    answer = run("merge", *parts(tmp_path, make), "-o", tmp_path / "whole")
    assert answer.exit_code == 0
    whole, once = Cache.load(tmp_path / "whole"), Cache(Concentration.fixed(0.2))
    once.write(rows)
    assert (whole.slots.count == once.slots.count).all()
    assert np.allclose(whole.slots.keys, once.slots.keys)


def test_parsers_become_one_and_forget_how_far_files_were_read(tmp_path):
    def make(n):
        parser = LogParser()
        parser.add_many(LINES[2 * n : 2 * n + 2])
        parser.note.update({"distinctkv parse": {"positions": []}, "mine": n})
        return parser

    run("merge", *parts(tmp_path, make), "-o", tmp_path / "whole")
    whole, once = LogParser.load(tmp_path / "whole"), filled(LogParser())
    found = [sorted((row.template, row.count) for row in one.templates()) for one in (whole, once)]
    assert found[0] == found[1]
    assert whole.note == {"mine": 0}


def test_deduplicators_become_one(tmp_path):
    def make(n):
        seen = Deduplicator(0.95)
        seen.add_many([*LINES[n : n + 2], "always"])
        return seen

    run("merge", *parts(tmp_path, make), "-o", tmp_path / "whole")
    whole = Deduplicator.load(tmp_path / "whole")
    assert whole.kept == [LINES[0], LINES[1], "always", LINES[2], LINES[3]]
    assert (whole.counts, whole.seen) == ([1, 2, 3, 2, 1], 9)


def test_states_of_other_fields_are_not_merged(tmp_path):
    paths = [tmp_path / "title", tmp_path / "body"]
    for path in paths:
        content = json.dumps({path.name: "a"})
        CliRunner().invoke(main, ["dedup", "--state", str(path)], input=content)
    answer = run("merge", *paths, "-o", tmp_path / "whole")
    assert answer.exit_code == 1
    assert "--field body" in answer.stderr
    assert not (tmp_path / "whole").exists()


def test_a_state_in_use_is_not_written(tmp_path):
    paths = parts(tmp_path, lambda _: Deduplicator())
    before = paths[0].read_bytes()
    with lock_state(paths[0]):
        answer = run("merge", *paths, "-o", paths[0])
        assert run("merge", *paths, "-o", tmp_path / "whole").exit_code == 0  # it is only read
    assert "in use" in answer.stderr
    assert paths[0].read_bytes() == before
    assert run("merge", *paths, "-o", paths[0]).exit_code == 0


def save_other(path):
    snapshot.save(path, "talk", {}, {})


PAIRS = {
    "one kind": (Cache().save, LogParser().save),
    "cannot be merged; cache": (save_other, save_other),
    "tau 0.5": (Cache(Concentration.fixed(0.5)).save, Cache(Concentration.fixed(0.75)).save),
    "similarity 0.5": (Deduplicator(0.5).save, Deduplicator(0.75).save),
    "b cannot be merged": (Deduplicator(field="a").save, Deduplicator(field="b").save),
    "is no snapshot": (Cache().save, lambda path: path.write_bytes(b"no")),
}


@pytest.mark.parametrize("reason", PAIRS)
def test_what_does_not_fit_together_is_refused(tmp_path, reason):
    for save, name in zip(PAIRS[reason], "ab", strict=True):
        save(tmp_path / name)
    answer = run("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
    assert reason in answer.stderr
    assert not (tmp_path / "c").exists()


def test_a_wrong_call_is_refused(tmp_path):
    Cache().save(tmp_path / "a")
    one = [tmp_path / "a"]
    assert "two files" in run("merge", *one, "-o", tmp_path / "c").stderr
    assert "no folder" in run("merge", *one, *one, "-o", tmp_path / "no" / "c").stderr
