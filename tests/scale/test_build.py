"""A cache built in shards is that of one pass, on any map and in spite of deaths."""

import errno
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.dedup import Deduplicator
from distinctkv.scale import Processes, ShardError, build, files, on_dask, records
from distinctkv.scale import parts as keeping
from tests.scale.work import (
    assert_alike,
    doomed,
    flaky,
    make,
    one_pass,
    opened,
    saved,
    stream,
    survives,
)


@pytest.mark.parametrize("n_shards", [1, 2, 3, 5, 16])
def test_shards_give_the_slots_of_one_pass(tokens, n_shards):
    keys, _ = tokens
    assert_alike(build(np.array_split(keys, n_shards), make), one_pass(keys))


@pytest.mark.parametrize("n_shards", [1, 15, 16, 17, 18, 33, 257, 273])
def test_every_step_of_the_tree_is_told_and_all_shards_are_in_it(n_shards):
    told = []
    shards = [np.eye(3)[[number % 3]] for number in range(n_shards)]
    cache = build(shards, make, tell=lambda *step: told.append(step))
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
        build([str(folder / "2.npy")], make, processes, feed=doomed)


def test_a_shard_that_fails_is_tried_again_from_its_beginning(folder, tokens):
    shards = [str(folder / "0.npy")]
    cache = build(shards, make, feed=partial(flaky, marker=str(folder / "tries")))
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
        build(shards, make, parts=parts, tell=stop)
    before = {part: part.stat().st_mtime_ns for part in parts.iterdir()}
    assert len(before) == 3
    again = build(shards, make, parts=parts)
    assert all(part.stat().st_mtime_ns == written for part, written in before.items())
    assert saved(again, tmp_path / "a") == saved(build(shards, make), tmp_path / "b")


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


def test_an_edited_feed_does_not_take_old_parts(folder, tmp_path):
    def feed(part, shard):
        part.write(np.abs(np.load(shard)))

    def edited(part, shard):
        part.write(np.sign(np.load(shard)))

    edited.__qualname__ = feed.__qualname__
    first, second = (build(files(folder), make, feed=f, parts=tmp_path) for f in (feed, edited))
    assert len(first) != len(second)
    assert_alike(second, build(files(folder), make, feed=edited))


@pytest.mark.parametrize("wrapped", [lambda encode: encode, lambda encode: partial(encode)])
def test_another_encoder_does_not_take_old_parts(tmp_path, wrapped):
    texts = ["x" * length for length in range(1, 30)]

    def lengths_below(limit):
        return wrapped(lambda texts: np.array([[len(text) % limit, 1.0] for text in texts]))

    for limit in (2, 7):
        makes = partial(Deduplicator, 0.999, encode=lengths_below(limit))
        whole = makes()
        whole.add_many(texts)
        built = build([texts[:15], texts[15:]], makes, feed=records, parts=tmp_path)
        assert built.kept == whole.kept


@pytest.mark.parametrize("kept", [False, True])
def test_shards_of_two_long_arrays_are_told_apart(tokens, tmp_path, kept):
    keys, items = tokens
    keys, other, items = keys[:2000], keys[:2000].copy(), items[:2000]
    other[100:1900] = np.roll(keys[100:1900], 1, axis=1)  # where a printed array is cut short
    shards = [(keys, items), (other, items)]
    parts = tmp_path / "parts" if kept else None
    merged = build(shards, make, feed=lambda part, shard: part.write(*shard), parts=parts)
    assert_alike(merged, one_pass(*map(np.concatenate, zip(*shards, strict=True))))


def test_equal_shards_count_twice(tokens, tmp_path):
    keys, _ = tokens
    for parts in (None, tmp_path):
        assert_alike(build([keys, keys], make, parts=parts), one_pass(np.concatenate([keys, keys])))


def test_shards_of_any_kind_are_built_but_not_kept(tokens, tmp_path):
    shards = [SimpleNamespace(keys=keys) for keys in np.array_split(tokens[0], 3)]
    assert_alike(build(shards, make, feed=opened), one_pass(tokens[0]))
    with pytest.raises(TypeError, match=r"shard 0: a SimpleNamespace cannot.*leave parts= out"):
        build(shards, make, feed=opened, parts=tmp_path)
    with pytest.raises(TypeError, match="the feed, or something that it holds: a SimpleNamespace"):
        build([tokens[0]], make, feed=partial(opened, shards[0]), parts=tmp_path)


@pytest.mark.parametrize(
    "wrap", [iter, lambda keys: (row for row in keys), lambda keys: (iter(keys),)]
)
def test_a_shard_that_can_be_read_only_once_is_refused(tokens, wrap):
    with pytest.raises(
        TypeError, match=r"shard 1, a .*, is or holds an iterator.* give a list or a path"
    ):
        build([tokens[0], wrap(tokens[0])], make)


def test_a_cache_that_is_not_empty_is_refused(tokens, folder):
    full, same = one_pass(tokens[0]), make()
    with pytest.raises(ValueError, match="new and empty each time, but this has seen 4000"):
        build(folder, lambda: full)
    with pytest.raises(ShardError, match="new and empty each time, but this has seen 800"):
        build(folder, lambda: same)


def test_no_shards_are_refused():
    with pytest.raises(ValueError, match="no shards"):
        build([], make)


def test_a_part_that_is_elsewhere_is_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match="a folder or URL that all see"):
        keeping.fetch(Cache, str(tmp_path / "gone.part"))


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


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ((make(),), r"make must be a function .*partial\(Cache"),
        ((dict,), "what can absorb, save and load, .* got dict"),
        ((make, 2), r"map must be a function .*scale\.on_dask\(client\)"),
        ((make, Processes), r"map must be a function .*scale\.Processes\(2\)"),
    ],
)
def test_a_build_of_wrong_things_is_refused(given, complaint):
    with pytest.raises(TypeError, match=complaint):
        build([np.eye(3)], *given)


@pytest.mark.parametrize("shards", [None, 5])
def test_what_is_no_list_of_shards_is_refused(shards):
    with pytest.raises(TypeError, match=r"a list of shards, or the folder or URL .* got"):
        build(shards, make)


def test_one_array_is_not_taken_for_its_rows():
    with pytest.raises(TypeError, match=r"of shape \(6, 2\); cut it: np\.array_split"):
        build(np.ones((6, 2)), make)


def test_shards_without_an_order_are_refused():
    with pytest.raises(TypeError, match=r"a set has no order; give a list: sorted\(shards\)"):
        build({"a.npy", "b.npy"}, make)


def test_a_map_that_gives_promises_is_refused():
    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match=r"gave a Future.*on_dask"):
        build([np.eye(3)], make, lambda work, *columns: map(partial(pool.submit, work), *columns))
    with pytest.raises(TypeError, match="not its map"):
        on_dask(len)


def test_a_worker_that_still_writes_does_not_hide_why_it_failed(monkeypatch, tmp_path):
    def still_written(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOTEMPTY, "a part came in meanwhile")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", still_written)
        with pytest.raises(ShardError, match="nan"):
            build([np.eye(3), np.full((2, 3), np.nan)], make)


def test_what_cannot_be_sent_to_a_process_is_refused():
    with Processes(1) as processes, pytest.raises(TypeError, match=r"functools\.partial.*lambda"):
        build([np.eye(3)], lambda: make(), processes)
    with pytest.raises(ValueError, match="1 process or more, got 0"):
        Processes(0)
    assert Processes(np.int64(2)).n == 2


UNGUARDED = """
import numpy as np
from distinctkv import Cache
from distinctkv.scale import Processes, build
build([np.eye(3)], Cache, Processes(1))
"""


def test_a_script_without_its_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    last = run.stderr.strip().rpartition("\n")[2]
    assert run.returncode == 1
    assert 'if __name__ == "__main__":' in last


UNNAMED = """
def feed(part, shard):
    part.write(shard)

build([np.eye(3)], Cache, Processes(1), feed=rows)
build([np.eye(3)], Cache, Processes(1), feed=feed)
"""


def test_a_function_of_a_session_that_no_process_can_import_is_refused():
    code = UNGUARDED.rpartition("build(")[0].replace("build\n", "build, rows\n") + UNNAMED
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    last = run.stderr.strip().rpartition("\n")[2]
    assert last.startswith("TypeError: ")
    assert "in a session" in last
    assert "put it in a module" in last
