"""A cache built in shards is that of one pass, on any map and in spite of deaths."""

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.scale import Processes, ShardError, build, files, lines, rows
from distinctkv.scale import parts as keeping
from distinctkv.streams import LogParser
from tests.scale.work import doomed, flaky, make, saved, stream, survives


def one_pass(keys, values=None):
    cache = make()
    cache.write(keys, values)
    return cache


def assert_alike(merged, whole):
    """Same slots, in the same order, with the same history; usage to rounding."""
    ours, theirs = merged.slots, whole.slots
    for name in ("ids", "keys", "count", "first_seen", "last_seen"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    np.testing.assert_allclose(ours.usage, theirs.usage, rtol=1e-9)
    assert merged.seen == whole.seen


@pytest.mark.parametrize("n_shards", [1, 2, 3, 5, 16])
def test_shards_give_the_slots_of_one_pass(tokens, n_shards):
    keys, _ = tokens
    assert_alike(build(np.array_split(keys, n_shards), make), one_pass(keys))


def test_more_noise_than_the_things_bear_gives_other_slots_but_loses_no_token(rng):
    keys, _ = stream(rng, noise=0.8)
    merged, whole = build(np.array_split(keys, 8), make), one_pass(keys)
    assert merged.slots.count.sum() == whole.slots.count.sum() == len(keys)
    assert len(merged) != len(whole)


def test_a_folder_is_read_in_the_order_of_its_names(folder, tokens):
    (folder / "_note.txt").touch()
    (folder / ".hidden").touch()
    assert_alike(build(folder, make), one_pass(tokens[0]))


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_files_with_columns_are_read(tmp_path, tokens, kind):
    keys, items = tokens
    for number, (some, labels) in enumerate(
        zip(np.array_split(keys, 3), np.array_split(items, 3), strict=True)
    ):
        write(tmp_path / f"part-{number}.{kind}", some.tolist(), labels.tolist())
    merged = build(tmp_path, make, feed=partial(rows, key="vector", value="label"))
    whole = one_pass(keys, items)
    assert_alike(merged, whole)
    assert np.array_equal(merged.slots.values, whole.slots.values)


def write(path, keys, labels):
    if path.suffix == ".parquet":
        arrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
        table = arrow.table({"other": labels, "vector": keys, "label": labels})
        parquet.write_table(table, path, row_group_size=500)
        return
    records = ({"vector": key, "label": label} for key, label in zip(keys, labels, strict=True))
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def test_an_object_store_is_read_and_keeps_the_parts(tokens):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for number, keys in enumerate(np.array_split(tokens[0], 3)):
        with store.open(f"/stream/{number}.npy", "wb") as file:
            np.save(file, keys)
    merged = build("memory://stream", make, parts="memory://parts/one")
    assert_alike(merged, one_pass(tokens[0]))
    assert len(store.find("/parts/one")) == 3 + 2


def test_log_parsers_merge_the_same_way(tmp_path, rng):
    text = [f"user {name} opened {rng.integers(1000)}" for name in "abcdefgh" * 40]
    text += [f"disk {rng.integers(9)} of host{rng.integers(99)} is full" for _ in range(200)]
    text = rng.permutation(text).tolist()
    for number, part in enumerate(np.array_split(text, 4)):
        (tmp_path / f"{number}.log").write_text("".join(f"{line}\n" for line in part))
    merged, whole = build(tmp_path, LogParser, feed=lines), LogParser()
    whole.add_many(text)
    assert [(row.template, row.count) for row in merged.templates()] == [
        (row.template, row.count) for row in whole.templates()
    ]
    listed = build([text[:100], text[100:]], LogParser, feed=lines)
    assert listed.templates() == merged.templates()


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


def test_parts_are_not_taken_for_those_of_another_build(folder, tmp_path):
    parts = tmp_path / "parts"
    shards = files(folder)
    strict = build(shards, make, parts=parts)
    loose = build(shards, partial(Cache, Concentration.fixed(1.5)), parts=parts)
    assert len(loose) < len(strict)
    np.save(folder / "0.npy", np.load(folder / "0.npy")[:10])
    assert build(shards, make, parts=parts).seen == strict.seen - 800 + 10


def test_no_shards_are_refused():
    with pytest.raises(ValueError, match="no shards"):
        build([], make)


def test_an_empty_folder_and_a_strange_file_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no files at"):
        build(tmp_path, make)
    (tmp_path / "a.csv").touch()
    with pytest.raises(ShardError, match=r"a\.csv is of no kind known"):
        build(tmp_path, make)


def test_a_part_that_is_elsewhere_is_explained(tmp_path):
    with pytest.raises(FileNotFoundError, match="a folder or URL that all see"):
        keeping.fetch(Cache, str(tmp_path / "gone.part"))


def test_the_same_build_gives_the_same_bytes(folder, tmp_path):
    ways = [build(folder, make), build([Path(name) for name in files(folder)], make)]
    first, second = (saved(way, tmp_path / "cache") for way in ways)
    assert first == second


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"other": [[1.0]]}, r"no column \['key'\]"),
        ({"key": [[1.0], None]}, "1 empty cells"),
        ({"key": [[1.0], [1.0, 2.0]]}, "lists of 1 to 2"),
    ],
)
def test_columns_that_are_no_keys_are_refused(tmp_path, columns, complaint):
    arrow, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".parquet"))
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ShardError, match=complaint):
        build(tmp_path, make)


def test_a_line_without_the_key_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"key": [1, 2]}\n{"kee": [1, 2]}\n')
    with pytest.raises(ShardError, match="without the field 'key'"):
        build(tmp_path, make)


@pytest.mark.skipif(os.name == "nt", reason="paths")
def test_what_a_build_leaves_behind_is_nothing(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder / "temporary"))
    (folder / "temporary").mkdir()
    build([str(folder / "0.npy"), str(folder / "1.npy")], make)
    assert list((folder / "temporary").iterdir()) == []
