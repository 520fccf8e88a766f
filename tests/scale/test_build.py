"""A cache built in shards is that of one pass, on any map and in spite of deaths."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.scale import Processes, ShardError, build, files, rows
from tests.scale.work import (
    assert_alike,
    doomed,
    flaky,
    make,
    one_pass,
    saved,
    stream,
    survives,
    with_options,
)


@pytest.mark.parametrize("n_shards", [1, 2, 3, 5, 16])
def test_shards_give_the_slots_of_one_pass(tokens, n_shards):
    keys, _ = tokens
    assert_alike(build(np.array_split(keys, n_shards), make), one_pass(keys))


@pytest.mark.parametrize("n_shards", [1, 15, 16, 17, 18, 33, 257, 273])
def test_every_step_of_the_tree_is_told_and_all_shards_are_in_it(n_shards):
    told = []
    shards = [np.eye(3)[[number % 3]] for number in range(n_shards)]
    cache = build(shards, make, progress=lambda *step: told.append(step))
    assert [done for done, _ in told] == [*range(1, len(told) + 1)]
    assert {total for _, total in told} == {len(told)}
    assert cache.slots.first_seen.tolist() == [*range(min(3, n_shards))]
    assert cache.seen == n_shards


def test_sixteen_shards_are_near_one_pass_where_things_touch(rng):
    things = rng.standard_normal((3000, 32))  # near enough for some to be within tau
    numbers = rng.zipf(1.2, 20_000) % 3000
    keys = things[numbers]
    keys = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    keys = keys + 0.25 / np.sqrt(32) * rng.standard_normal(keys.shape)
    merged, whole = build(np.array_split(keys, 16), make), one_pass(keys)
    assert len(whole) < 0.95 * len(np.unique(numbers))
    assert abs(len(merged) / len(whole) - 1) <= 0.015  # pairs of parts, pair by pair, lose .03


def test_things_that_touch_give_other_slots_but_lose_no_token():
    angles = np.radians([0, 50, 80])  # tau .4 is 53 degrees
    keys = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    merged, whole = build([keys[:1], keys[1:]], make), one_pass(keys)
    assert whole.slots.count.tolist() == [2, 1]
    assert merged.slots.count.tolist() == [3]


@pytest.mark.parametrize("noise", [0.5, 0.8, 2.0])
def test_no_token_is_lost_however_noisy_the_stream(rng, noise):
    keys, _ = stream(rng, noise=noise)
    merged = build(np.array_split(keys, 8), make)
    assert merged.slots.count.sum() == merged.seen == len(keys)


def test_any_pool_with_a_map_will_do(folder, tokens):
    with ThreadPoolExecutor(2) as pool:
        assert_alike(build(folder, make, pool.map), one_pass(tokens[0]))


def test_a_killed_process_changes_nothing(folder):
    with Processes(2) as processes:
        assert survives(folder, processes)


def test_processes_that_always_die_are_given_up(folder):
    with Processes(1) as processes, pytest.raises(ShardError, match="died 3 times"):
        build([str(folder / "2.npy")], make, processes, loader=doomed)


def test_a_shard_that_fails_is_tried_again_from_its_beginning(folder, tokens):
    shards = [str(folder / "0.npy")]
    cache = build(shards, make, loader=partial(flaky, marker=str(folder / "tries")))
    assert cache.seen == len(np.load(shards[0]))
    assert (folder / "tries").read_text() == "xxx"


def test_a_shard_that_keeps_failing_is_named(tmp_path):
    with pytest.raises(ShardError, match=r"nowhere\.npy' failed 3 times.*No such file"):
        build([str(tmp_path / "nowhere.npy")], make)


def test_bad_rows_fail_at_once_and_name_their_shard(folder):
    np.save(folder / "3.npy", np.full((3, 48), np.nan))
    with pytest.raises(ShardError, match=r"shard .*3\.npy.*nan"):
        build(folder, make)


def test_a_build_goes_on_where_it_was_stopped(folder, tmp_path):
    shards, parts, told = files(folder), tmp_path / "parts", []

    def stop(done, _):
        told.append(done)
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(shards, make, parts=parts, progress=stop)
    before = {part: part.stat().st_mtime_ns for part in parts.iterdir()}
    assert len(before) == 3
    again = build(shards, make, parts=parts)
    assert all(part.stat().st_mtime_ns == written for part, written in before.items())
    assert saved(again, tmp_path / "a") == saved(build(shards, make), tmp_path / "b")


def test_a_part_is_used_again_only_for_the_same_loader(tmp_path):
    (tmp_path / "0.jsonl").write_text('{"a": [1, 0], "b": [0, 1]}\n')

    def first_key(loader):
        cache = build([tmp_path / "0.jsonl"], make, loader=loader, parts=tmp_path / "parts")
        return cache.slots.keys.tolist()

    for key, expected in [("a", [1, 0]), ("b", [0, 1]), ("a", [1, 0])]:
        assert first_key(partial(rows, key=key)) == [expected]
    assert len([*(tmp_path / "parts").iterdir()]) == 2
    offsets = [np.arange(2000.0), np.arange(2000.0)]
    offsets[1][1000] = 5  # NumPy's repr leaves it out
    for number, offset in enumerate(offsets):
        first_key(partial(with_options, options={"offset": 0}, encode=print, offset=offset))
        assert len([*(tmp_path / "parts").iterdir()]) == 3 + number


@pytest.mark.parametrize("parts", ["", ".", "below"])
def test_parts_at_a_relative_path_lie_below_the_folder_we_are_in(parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = []

    def run(function, shards, names):
        places.extend(names)
        return map(function, shards, names)

    build([np.eye(3)], Cache, run, parts=parts)
    assert [Path(place).parent for place in places] == [tmp_path / parts]


def test_parts_are_not_taken_for_those_of_another_build(folder, tmp_path):
    parts = tmp_path / "parts"
    shards = files(folder)
    strict = build(shards, make, parts=parts)
    loose = build(shards, partial(Cache, Concentration.fixed(1.5)), parts=parts)
    assert len(loose) < len(strict)
    np.save(folder / "0.npy", np.load(folder / "0.npy")[:10])
    assert build(shards, make, parts=parts).seen == strict.seen - 800 + 10


def test_shards_may_be_any_objects_of_a_loader(tokens):
    keys, items = tokens
    shards = [*zip(np.array_split(keys, 3), np.array_split(items, 3), strict=True)]
    merged = build(shards, make, loader=lambda part, shard: part.write(*shard))
    assert_alike(merged, one_pass(keys, items))


def test_equal_shards_count_twice(tokens, tmp_path):
    keys, _ = tokens
    for parts in (None, tmp_path):
        assert_alike(build([keys, keys], make, parts=parts), one_pass(np.concatenate([keys, keys])))


def test_only_files_and_arrays_can_be_kept_as_parts(tokens, tmp_path):
    with pytest.raises(TypeError, match="leave parts= out"):
        build([[*tokens[0]]], make, parts=tmp_path)


def test_a_shard_that_can_be_read_only_once_is_refused(tokens):
    with pytest.raises(TypeError, match="shard 1 is an iterator"):
        build([tokens[0], iter(tokens[0])], make)


def test_a_cache_that_is_not_empty_is_refused(tokens, folder):
    full, same = one_pass(tokens[0]), make()
    with pytest.raises(ValueError, match="new and empty each time, but this has seen 4000"):
        build(folder, lambda: full)
    with pytest.raises(ShardError, match="new and empty each time, but this has seen 800"):
        build(folder, lambda: same)


@pytest.mark.parametrize("step", [1, 2])
def test_a_cluster_without_a_shared_folder_names_the_way_out(tokens, step):
    """Workers on another machine do not see the temporary folder of this one."""
    calls = []

    def elsewhere(function, *columns):
        calls.append(function)
        folder = Path(columns[-1][0]).parent
        if len(calls) == step:
            shutil.rmtree(folder)
        return map(function, *columns)

    with pytest.raises(ShardError, match="give parts= a folder or URL that all workers"):
        build(np.array_split(tokens[0], 3), make, elsewhere)


def test_the_same_build_gives_the_same_bytes(folder, tmp_path):
    ways = [build(folder, make), build([Path(name) for name in files(folder)], make)]
    first, second = (saved(way, tmp_path / "cache") for way in ways)
    assert first == second


@pytest.mark.skipif(os.name == "nt", reason="paths")
def test_what_a_build_leaves_behind_is_nothing(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder / "temporary"))
    (folder / "temporary").mkdir()
    build([str(folder / "0.npy"), str(folder / "1.npy")], make)
    assert list((folder / "temporary").iterdir()) == []


WRONG = {
    "one array": (lambda: build(np.ones((6, 2)), make), "np.array_split"),
    "no shards": (lambda: build([], make), "no shards"),
    "what cannot merge": (lambda: build([np.eye(3)], dict), "absorb, save and load"),
}


@pytest.mark.parametrize(("call", "why"), WRONG.values(), ids=WRONG)
def test_a_build_of_wrong_things_is_refused(call, why):
    with pytest.raises((TypeError, ValueError), match=why):
        call()


def test_a_map_that_gives_promises_is_refused():
    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match=r"gave a Future.*on_dask"):
        build([np.eye(3)], make, lambda work, *columns: map(partial(pool.submit, work), *columns))


def test_a_worker_that_still_writes_does_not_hide_why_it_failed(monkeypatch, tmp_path):
    def still_written(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOTEMPTY, "a part came in meanwhile")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", still_written)
        with pytest.raises(ShardError, match="nan"):
            build([np.eye(3), np.full((2, 3), np.nan)], make)


UNGUARDED = """
import numpy as np
from distinctkv import Cache
from distinctkv.scale import Processes, build
build([np.eye(3)], Cache, Processes(1))
"""


@pytest.mark.slow
def test_a_script_without_its_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    last = run.stderr.strip().rpartition("\n")[2]
    assert run.returncode == 1
    assert 'if __name__ == "__main__":' in last
