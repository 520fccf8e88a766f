"""``distinctkv merge`` gives what one pass would have given, or says why not."""

import numpy as np
import pytest
from click.testing import CliRunner

from distinctkv import Cache, Concentration, snapshot
from distinctkv.cli import main
from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from distinctkv.novelty import NoveltyDetector

LINES = [f"user {name} logged {way}" for name in ("ann", "bob", "cas") for way in ("in", "out")]


def merge(*arguments):
    return CliRunner().invoke(main, ["merge", *map(str, arguments)])


def parts(tmp_path, make):
    paths = [tmp_path / f"part{n}" for n in range(3)]
    for n, path in enumerate(paths):
        made = make(n)
        made.save(path)
    return paths


def test_caches_become_one(tmp_path, rng):
    rows = rng.standard_normal((40, 32))[rng.integers(0, 40, 300)]

    def make(n):
        cache = Cache(Concentration.fixed(0.2))
        cache.write(rows[100 * n : 100 * n + 100])
        return cache

    answer = merge(*parts(tmp_path, make), "-o", tmp_path / "whole")
    assert answer.exit_code == 0
    whole, once = Cache.load(tmp_path / "whole"), Cache(Concentration.fixed(0.2))
    once.write(rows)
    assert (whole.slots.count == once.slots.count).all()
    assert np.allclose(whole.slots.keys, once.slots.keys)


def test_parsers_become_one_and_forget_how_far_files_were_read(tmp_path):
    def make(n):
        parser = LogParser()
        parser.add_many(LINES[2 * n : 2 * n + 2])
        parser.note.update({"distinctkv parse": {"places": []}, "mine": n})
        return parser

    merge(*parts(tmp_path, make), "-o", tmp_path / "whole")
    whole, once = LogParser.load(tmp_path / "whole"), LogParser()
    once.add_many(LINES)
    found = [sorted((row.template, row.count) for row in one.templates()) for one in (whole, once)]
    assert found[0] == found[1]
    assert whole.note == {"mine": 0}


def test_deduplicators_become_one(tmp_path):
    def make(n):
        seen = Deduplicator(0.95)
        seen.add_many([*LINES[n : n + 2], "always"])
        return seen

    merge(*parts(tmp_path, make), "-o", tmp_path / "whole")
    whole = Deduplicator.load(tmp_path / "whole")
    assert whole.kept == [LINES[0], LINES[1], "always", LINES[2], LINES[3]]
    assert (whole.counts, whole.seen) == ([1, 2, 3, 2, 1], 9)


def test_a_state_in_use_is_not_written(tmp_path):
    from distinctkv.cli.io import lock_state

    paths = parts(tmp_path, lambda _: Deduplicator())
    held = paths[0].read_bytes()
    with lock_state(paths[0]):
        answer = merge(*paths, "-o", paths[0])
        assert merge(*paths, "-o", tmp_path / "whole").exit_code == 0  # reading does no harm
    assert answer.exit_code == 1
    assert "is in use by another run" in answer.stderr
    assert paths[0].read_bytes() == held
    assert merge(*paths, "-o", paths[0]).exit_code == 0


def test_kinds_do_not_mix(tmp_path):
    Cache().save(tmp_path / "a")
    LogParser().save(tmp_path / "b")
    answer = merge(tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
    assert answer.exit_code == 1
    assert "a holds a cache" in answer.stderr
    assert "b a log parser; merge files of one kind" in answer.stderr
    assert not (tmp_path / "c").exists()


def test_settings_do_not_mix(tmp_path):
    Deduplicator(field="a").save(tmp_path / "a")
    Deduplicator(field="b").save(tmp_path / "b")
    answer = merge(tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
    assert "b does not fit the files before it" in answer.stderr


def test_detectors_become_one(tmp_path):
    def make(n):
        detector = NoveltyDetector(0.95)
        detector.add_many([*LINES[n : n + 2], "always"])
        return detector

    assert merge(*parts(tmp_path, make), "-o", tmp_path / "whole").exit_code == 0
    whole = NoveltyDetector.load(tmp_path / "whole")
    found = {thing.record: (thing.count, thing.first_seen) for thing in whole.known.values()}
    assert found["always"] == (3, 2)
    assert found[LINES[2]] == (2, 4)
    assert whole.seen == 9


@pytest.mark.parametrize("wrong", ["one", "folder", "other", "damaged"])
def test_what_cannot_be_merged_is_refused(tmp_path, wrong):
    Cache().save(tmp_path / "a")
    if wrong == "other":
        snapshot.save(tmp_path / "a", "talk", {}, {})
    (tmp_path / "b").write_bytes(b"no" if wrong == "damaged" else (tmp_path / "a").read_bytes())
    files = [tmp_path / "a"] if wrong == "one" else [tmp_path / "a", tmp_path / "b"]
    out = tmp_path / "no" / "c" if wrong == "folder" else tmp_path / "c"
    answer = merge(*files, "-o", out)
    said = {
        "one": "two files or more",
        "folder": "there is no folder",
        "other": "a talk cannot be merged; cache, log parser",
        "damaged": "is no snapshot of distinctkv",
    }
    assert said[wrong] in answer.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("make", "name"),
    [(Deduplicator, "similarity"), (lambda tau: Cache(Concentration.fixed(tau)), "tau")],
)
def test_thresholds_do_not_mix(tmp_path, make, name):
    make(0.5).save(tmp_path / "a")
    make(0.75).save(tmp_path / "b")
    answer = merge(tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
    assert answer.exit_code == 1
    assert f"a was made with {name} 0.5" in answer.stderr
    assert f"b with {name} 0.75" in answer.stderr
    assert not (tmp_path / "c").exists()
