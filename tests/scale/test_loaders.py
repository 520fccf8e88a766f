"""Shards are read from folders, files of many kinds and object stores."""

import gzip
import json
from codecs import BOM_UTF8
from decimal import Decimal
from functools import partial

import fsspec
import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from distinctkv.dedup import Deduplicator
from distinctkv.logs import LogParser
from distinctkv.scale import ShardError, build, lines, records, rows
from tests.scale.work import assert_alike, make, one_pass


def test_a_folder_is_read_in_the_order_of_its_names(folder, tokens):
    (folder / "_note.txt").touch()
    for hidden in (".hidden", "_temporary/0", "deep/.git"):
        (folder / hidden).mkdir(parents=True)
        (folder / hidden / "4.npy").touch()
    assert_alike(build(folder, make), one_pass(tokens[0]))


def test_folders_above_the_one_given_may_be_hidden_and_so_may_a_file_given(tmp_path, tokens):
    (tmp_path / ".data" / "_x").mkdir(parents=True)
    np.save(tmp_path / ".data" / "_x" / "a.npy", tokens[0])
    assert_alike(build(tmp_path / ".data" / "_x", make), one_pass(tokens[0]))
    np.save(tmp_path / "_b.npy", tokens[0])
    assert_alike(build(tmp_path / "_b.npy", make), one_pass(tokens[0]))


@pytest.mark.parametrize("inside", ["", "parts"])
def test_parts_may_be_kept_among_the_shards(folder, inside):
    first = build(folder, make, parts=folder / inside)
    for again in (build(folder, make, parts=folder / inside), build(folder, make)):
        assert_alike(again, first)


def test_parts_may_be_kept_among_the_shards_of_an_object_store(tokens):
    store = fsspec.filesystem("memory")
    for name in ("0.npy", "_old/1.npy", "deep/.x/2.npy"):
        with store.open(f"/among/{name}", "wb") as file:
            np.save(file, tokens[0])
    for _ in range(2):
        assert_alike(build("memory://among", make, parts="memory://among"), one_pass(tokens[0]))


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_files_with_columns_are_read(tmp_path, tokens, kind):
    keys, items = tokens
    for number, (some, labels) in enumerate(
        zip(np.array_split(keys, 3), np.array_split(items, 3), strict=True)
    ):
        write(tmp_path / f"part-{number}.{kind}", some.tolist(), labels.tolist())
    merged = build(tmp_path, make, loader=partial(rows, key="vector", value="label"))
    whole = one_pass(keys, items)
    assert_alike(merged, whole)
    assert np.array_equal(merged.slots.values, whole.slots.values)


def write(path, keys, labels):
    if path.suffix == ".parquet":
        table = arrow.table({"other": labels, "vector": keys, "label": labels})
        parquet.write_table(table, path, row_group_size=500)
        return
    records = ({"vector": key, "label": label} for key, label in zip(keys, labels, strict=True))
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def test_an_object_store_is_read_and_keeps_the_parts(tokens):
    store = fsspec.filesystem("memory")
    for number, keys in enumerate(np.array_split(tokens[0], 3)):
        with store.open(f"/stream/{number}.npy", "wb") as file:
            np.save(file, keys)
    merged = build("memory://stream", make, parts="memory://parts/one")
    assert_alike(merged, one_pass(tokens[0]))
    assert len(store.find("/parts/one")) == 3 + 1


def test_log_parsers_merge_the_same_way(tmp_path, rng):
    text = [f"user {name} opened {rng.integers(1000)}" for name in "abcdefgh" * 40]
    text += [f"disk {rng.integers(9)} of host{rng.integers(99)} is full" for _ in range(200)]
    text = rng.permutation(text).tolist()
    for number, part in enumerate(np.array_split(text, 4)):
        (tmp_path / f"{number}.log").write_text("".join(f"{line}\n" for line in part))
    merged, whole = build(tmp_path, LogParser, loader=lines), LogParser()
    whole.add_many(text)
    assert [(row.template, row.count) for row in merged.templates()] == [
        (row.template, row.count) for row in whole.templates()
    ]
    listed = build([text[:100], text[100:]], LogParser, loader=lines)
    assert listed.templates() == merged.templates()


@pytest.mark.parametrize("rest", [b"", b"no such file\r\n", b"no such file\ndisk full"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, rest):
    (tmp_path / "a.txt").write_bytes(b"no such file\n")
    (tmp_path / "b.txt").write_bytes(BOM_UTF8 + rest)
    seen = build(tmp_path, Deduplicator, loader=lines)
    assert seen.kept == ["no such file", *(["disk full"] if b"disk" in rest else [])]
    assert seen.seen == 1 + len(rest.splitlines())


@pytest.mark.parametrize("name", ["app.log", "app.log.gz"])
def test_a_compressed_file_is_known_by_its_first_bytes(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"user 7 came\nuser 8 came\n"))
    parser = build(tmp_path, LogParser, loader=lines)
    assert [(row.template, row.count) for row in parser.templates()] == [("user <*> came", 2)]


def test_an_empty_folder_and_a_strange_file_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no files at"):
        build(tmp_path, make)
    (tmp_path / "a.csv").touch()
    with pytest.raises(ShardError, match=r"a\.csv is not \.npy"):
        build(tmp_path, make)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"other": [[1.0]]}, r"no column \['key'\]"),
        ({"key": [[1.0], None]}, "is empty in row 1"),
        ({"key": [[1.0], [1.0, 2.0]]}, r"column 'key' .* of 2 in row 1"),
    ],
)
def test_columns_that_are_no_keys_are_refused(tmp_path, columns, complaint):
    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ShardError, match=complaint):
        build(tmp_path, make)


def test_blank_lines_are_passed_over(tmp_path):
    text = '{"key": [1, 0]}\n' + "\n \n\r\n\n\n" + '{"key": [0, 1]}\n\n'
    (tmp_path / "a.jsonl").write_text(text)
    assert build(tmp_path, make).seen == 2


def test_a_line_without_the_key_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"key": [1, 2]}\n{"kee": [1, 2]}\n')
    with pytest.raises(ShardError, match="without the field 'key'"):
        build(tmp_path, make)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"key": [1, 2]}\n\n{"key": [1, 2, 3]}\n', r"line 3: .*shape \(3,\), those before \(2,\)"),
        ('{"key": [1, 2]}\n{"key": null}\n', "line 2: .*only numbers, got None"),
        ('{"key": [1, 2]}\n{"key": [1, null]}\n', r"line 2: .*only numbers, got \[1, None\]"),
        ('{"key": [1, 2]}\n{"key": [1, [2]]}\n', "line 2: .*only numbers"),
        ('{"key": "a"}\n', "line 1: .*only numbers, got 'a'"),
        ('{"key": [1, 2]}\n{"key": [1\n', "line 2 is not JSON"),
        ('{"key": [1, 2]}\n[1, 2]\n', "line 2 is without the field 'key'"),
        ('{"key": 1}\n{"key": 2}\n', "line 1: the field 'key' holds 1, .*a list of numbers"),
    ],
)
def test_a_line_that_is_no_key_is_named(tmp_path, text, complaint):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ShardError, match=complaint):
        build(tmp_path, make)


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ([1.0, 2.0], "'key' .* holds .*1.0.* a key is a list of numbers"),
        ([[1.0, 2.0], [1.0, None]], "list of row 1 has an empty place"),
        (["a", "b"], "'key' .* holds string; it must hold numbers"),
        ([{"a": 1.0}], "'key' .* holds struct<a: double>; it must hold numbers"),
        ([[[1.0, 2.0]]], "'key' .* holds list<.*list<.*; it must hold numbers"),
        ([[Decimal("1.5")]], "'key' .* holds list<.*decimal.*; it must hold numbers"),
    ],
)
def test_a_column_that_is_no_key_is_refused(tmp_path, column, complaint):
    parquet.write_table(arrow.table({"key": column}), tmp_path / "a.parquet")
    with pytest.raises(ShardError, match=complaint):
        build(tmp_path, make)


LISTS = {
    "short": arrow.list_(arrow.float64()),
    "long": arrow.large_list(arrow.float64()),  # as Polars writes them
    "even": arrow.list_(arrow.float32(), 8),
    "tensor": arrow.fixed_shape_tensor(arrow.float64(), [8]),
}


@pytest.mark.parametrize("kind", LISTS.values(), ids=LISTS)
def test_lists_of_every_type_are_keys(tmp_path, rng, kind):
    keys = rng.standard_normal((50, 8)).astype(np.float32)
    stored = getattr(kind, "storage_type", kind)
    column = arrow.array(keys.astype(float).tolist(), stored)
    if stored is not kind:
        column = arrow.ExtensionArray.from_storage(kind, column)
    parquet.write_table(arrow.table({"key": column}), tmp_path / "a.parquet")
    assert_alike(build(tmp_path, make), one_pass(keys))


def test_keys_and_values_in_one_shard_are_told_to_bring_a_loader(rng):
    with pytest.raises(ShardError, match=r"rows of keys \(L, D\).*loader of your own"):
        build([(rng.standard_normal((5, 3)), np.arange(5))], make)


@pytest.mark.parametrize("shard", [np.ones(5), [1.0, 2.0], np.ones((2, 2, 2))])
def test_a_shard_that_is_no_rows_is_refused(tmp_path, shard):
    with pytest.raises(ShardError, match=r"rows of keys \(L, D\)"):
        build([shard], make)
    np.save(tmp_path / "a.npy", shard)
    with pytest.raises(ShardError, match=r"rows of keys \(L, D\)"):
        build(tmp_path, make)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "listed"])
def test_records_of_files_are_deduplicated(tmp_path, kind):
    texts = ["the door is open", "no such file", "the door is open", "disk full", "no such file"]
    rows = [{"id": number, "text": text} for number, text in enumerate(texts)]
    shards = [rows[:3], rows[3:]]
    for number, some in enumerate(shards):
        path = tmp_path / f"{number}.{kind}"
        if kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in some))
        elif kind == "parquet":
            parquet.write_table(arrow.Table.from_pylist(some), path)
    given = shards if kind == "listed" else tmp_path
    seen = build(given, partial(Deduplicator, 0.9, field="text"), loader=records)
    assert (seen.kept, seen.numbers) == ([rows[0], rows[1], rows[3]], [0, 1, 3])
    with pytest.raises(ShardError, match=r"loader=scale\.lines"):
        build(["a.txt"], partial(Deduplicator, 0.9), loader=records)


@pytest.mark.parametrize("loader", [lines, records, rows])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_utf16_is_refused_with_the_way_out(tmp_path, loader, pack):
    (tmp_path / "a.jsonl").write_bytes(pack('{"key": [1, 0]}\n'.encode("utf-16")))
    blank = LogParser if loader is lines else partial(Deduplicator, 0.9)
    with pytest.raises(ShardError, match=r"a\.jsonl is UTF-16.*iconv"):
        build(tmp_path, make if loader is rows else blank, loader=loader)
