"""Snapshots: whole or refused, bit for bit, and written so that a crash leaves the old one."""

import errno
import os
import stat
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from math import inf

import numpy as np
import pytest
from safetensors.numpy import save_file

from distinctkv import Cache, Concentration, Merge, SnapshotError, snapshot


@pytest.fixture
def path(tmp_path, rng):
    cache = Cache(Concentration.surprise(), merge=Merge(value="counts"))
    cache.write(rng.standard_normal((200, 8)), rng.integers(0, 5, 200))
    cache.save(tmp_path / "cache.safetensors")
    return tmp_path / "cache.safetensors"


def test_an_empty_cache_survives_the_journey(tmp_path):
    cache = Cache(Concentration.fixed(0.25), centre=True, on_bad="skip")
    cache.save(tmp_path / "empty")
    loaded = Cache.load(tmp_path / "empty")
    assert repr(loaded) == repr(cache)
    assert (loaded.on_bad, loaded.concentration) == ("skip", cache.concentration)


def test_an_endless_budget_survives_the_journey(tmp_path):
    Cache().save(tmp_path / "empty")
    assert Cache.load(tmp_path / "empty").budget == np.inf


def test_the_same_cache_gives_the_same_bytes_however_its_rows_lie(tmp_path, rng):
    keys = rng.standard_normal((100, 8))[rng.zipf(1.3, 20000) % 100]
    whole, cut = Cache(), Cache()
    whole.write(keys)
    for part in np.array_split(keys, 37):
        cut.write(part)
    whole.save(tmp_path / "whole")
    cut.save(tmp_path / "cut")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "cut").read_bytes()


def test_saving_leaves_nothing_else_behind(path):
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_saved_file_has_ordinary_permissions(path):
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_private_file_stays_private_when_it_is_saved_again(path):
    path.chmod(0o600)
    Cache().save(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_failed_save_leaves_the_old_snapshot(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Cache().save(path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_is_replaced_once_the_block_ends_without_an_error(path):
    path.chmod(0o600)
    with snapshot.replacing(path) as one, snapshot.replacing(path) as other:
        one.write(b"one")
        other.write(b"other")
        assert len({path.name, *(file.name for file in path.parent.iterdir())}) == 3
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    with suppress(KeyboardInterrupt), snapshot.replacing(path) as file:
        file.write(b"two")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"one"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_saving_removes_what_a_killed_save_left_and_no_more(path):
    old, young, other = (
        path.with_name(f".{name}.part") for name in (f"{path.name}.a", f"{path.name}.b", "other.a")
    )
    for file in (old, young, other):
        file.touch()
    for file in (old, other):
        os.utime(file, (0, 0))
    Cache().save(path)
    assert not old.exists()
    assert young.exists()
    assert other.exists()


def test_two_savers_never_spoil_a_file_for_a_reader(tmp_path, rng):
    caches = [Cache() for _ in range(2)]
    for cache, n in zip(caches, (20, 2000), strict=True):
        cache.write(rng.standard_normal((n, 8)))
        cache.save(tmp_path / "shared")
    savers = [
        threading.Thread(
            target=lambda cache=cache: [cache.save(tmp_path / "shared") for _ in "x" * 40]
        )
        for cache in caches
    ]
    for saver in savers:
        saver.start()
    sizes = {len(Cache.load(tmp_path / "shared")) for _ in range(60)}
    for saver in savers:
        saver.join()
    assert sizes <= {len(cache) for cache in caches}


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        Cache.load(tmp_path / "nothing")


def test_a_file_that_cannot_be_opened_is_not_told_as_missing(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        Cache.load(tmp_path / "circle")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, -1, -100])
def test_a_truncated_file_is_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SnapshotError, match="not a complete snapshot"):
        Cache.load(path)


def test_an_extended_file_is_refused(path):
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(SnapshotError, match="not a complete snapshot"):
        Cache.load(path)


@pytest.mark.parametrize("content", [b"hello", b"\x80\x04K\x01.", b"{}", os.urandom(500)])
def test_a_foreign_file_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(SnapshotError):
        Cache.load(path)


def test_a_safetensors_file_of_another_origin_is_refused(path):
    save_file({"weight": np.ones(3)}, path)
    with pytest.raises(SnapshotError, match="but not a distinctkv"):
        Cache.load(path)


def test_a_folder_is_no_snapshot(tmp_path):
    with pytest.raises(SnapshotError, match="not a complete snapshot"):
        Cache.load(tmp_path)


def test_a_flipped_bit_is_refused_wherever_it_is(path, rng):
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    places = [*rng.integers(0, header, 150), *rng.integers(header, len(content), 150)]
    for place in places:
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(spoilt)
        with pytest.raises(SnapshotError):
            Cache.load(path)


def test_another_spelling_of_the_same_number_is_a_change(path):
    content = path.read_bytes()
    path.write_bytes(content.replace(rb"\"rate\": 0.05", rb"\"rate\":0.050"))
    assert path.read_bytes() != content
    with pytest.raises(SnapshotError, match="changed after it was written"):
        Cache.load(path)


@pytest.mark.parametrize("head", ["[" * 100_000, "[]", "7", '{"version": "1", "digest": "0"}'])
def test_a_header_of_another_shape_is_refused(path, head):
    save_file({"weight": np.ones(3)}, path, metadata={"distinctkv": head})
    with pytest.raises(SnapshotError, match="not a complete snapshot"):
        Cache.load(path)


def test_a_flipped_bit_of_data_is_refused(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="changed after it was written"):
        Cache.load(path)


def test_a_version_from_the_future_is_refused(path, monkeypatch):
    monkeypatch.setattr(snapshot, "VERSION", "99")
    Cache().save(path)
    monkeypatch.undo()
    with pytest.raises(SnapshotError, match="version '99', this release reads '1'"):
        Cache.load(path)


def test_a_snapshot_of_another_kind_is_refused(path):
    snapshot.save(path, "parser", {}, {})
    with pytest.raises(SnapshotError, match="holds a 'parser', not a 'cache'"):
        Cache.load(path)


def test_a_state_that_means_nothing_is_refused_even_with_a_true_digest(path):
    tensors, known = snapshot.load(path, "cache")
    for change in (
        {"metric": "taxi"},
        {"concentration": {"tau": -1}},
        {"counters": None},
        {"values": {"kind": "label"}},
        {"values": {"kind": "colour", "size": [], "classes": []}},
        {"values": {**known["values"], "classes": [4, 3, 2, 1, 0]}},
        {"numbers": {}},
        {"numbers": {**known["numbers"], "n_opened": 0}},
        {"numbers": {**known["numbers"], "temperature": 7.0}},
        {"numbers": {**known["numbers"], "use_weight": 0.0}},
        {"counters": ["a", "b"]},
        {"counters": [3, 5]},
        {"counters": [inf, 0]},
        {"counters": [2**70, 0]},
        {"counters": [150, 0]},  # of which 200 were tokens
        {"numbers": {**known["numbers"], "tokens": -inf}},
        {"values": {**known["values"], "classes": [0, 1, 2, 3, 2**70]}},
        {"values": {**known["values"], "size": ["x"]}},
        {"centre": 5},
    ):
        snapshot.save(path, "cache", tensors, {**known, **change})
        with pytest.raises(SnapshotError, match="does not describe a cache"):
            Cache.load(path)


@pytest.mark.parametrize("value", ["first", "counts"])
def test_classes_that_nothing_counts_are_refused_even_with_a_true_digest(path, value):
    Cache(merge=Merge(value=value)).save(path)
    tensors, known = snapshot.load(path, "cache")
    known["values"]["classes"] = [3]
    snapshot.save(path, "cache", tensors, known)
    with pytest.raises(SnapshotError, match="classes where nothing is counted"):
        Cache.load(path)


def test_columns_that_do_not_fit_are_refused_even_with_a_true_digest(path):
    tensors, known = snapshot.load(path, "cache")
    for name, column in (
        ("keys", tensors["keys"][:-1]),
        ("ids", tensors["ids"][::-1].copy()),
        ("usage", tensors["usage"].astype(np.float32)),
        ("extra", np.zeros(3)),
        ("keys", tensors["keys"][:, 0].copy()),
        ("keys", tensors["keys"] * np.nan),
        ("keys", tensors["keys"] * 2),
        ("count", tensors["count"] * 0),
        ("count", tensors["count"] + 200),
        ("usage", tensors["usage"] * np.nan),
        ("usage", -tensors["usage"]),
        ("first_seen", tensors["last_seen"] + 1),
        ("last_seen", tensors["last_seen"] + 200),
        ("values", tensors["values"] + 1),
    ):
        snapshot.save(path, "cache", {**tensors, name: column}, known)
        with pytest.raises(SnapshotError, match="does not describe a cache"):
            Cache.load(path)


def test_a_mean_that_does_not_fit_the_keys_is_refused_even_with_a_true_digest(path, rng):
    cache = Cache(centre=True)
    cache.write(rng.standard_normal((20, 8)))
    cache.save(path)
    tensors, known = snapshot.load(path, "cache")
    for centre in (tensors["centre"][:-1], tensors["centre"].astype(np.float32)):
        snapshot.save(path, "cache", {**tensors, "centre": centre}, known)
        with pytest.raises(SnapshotError, match="does not describe a cache"):
            Cache.load(path)


def test_loading_imports_no_pickle(path):
    code = (
        "import sys, distinctkv; distinctkv.Cache; before = set(sys.modules)\n"
        f"distinctkv.Cache.load({str(path)!r})\n"
        "print(*(set(sys.modules) - before))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert loaded
    assert not {"pickle", "_pickle", "dill", "cloudpickle", "joblib"} & set(loaded)


def test_a_folder_that_may_not_be_opened_can_be_saved_to(path, monkeypatch):
    plain = os.open

    def shut(name, *given, **named):
        if os.path.isdir(name):
            raise PermissionError(13, "Permission denied", str(name))
        return plain(name, *given, **named)

    cache = Cache.load(path)
    path.unlink()
    monkeypatch.setattr(os, "open", shut)
    cache.save(path)
    assert repr(Cache.load(path)) == repr(cache)


def test_a_folder_whose_file_system_syncs_none_can_be_saved_to(path, monkeypatch):
    sync = os.fsync

    def files_only(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    Cache().save(path)
    assert len(Cache.load(path)) == 0
