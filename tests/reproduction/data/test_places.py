from pathlib import Path

import pytest

from reproduction.data import places


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("DISTINCTKV_DATA", "DISTINCTKV_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_the_named_folder_comes_before_the_cache(monkeypatch):
    monkeypatch.setenv("DISTINCTKV_DATA", "/data")
    monkeypatch.setenv("DISTINCTKV_CACHE", "/cache")
    assert places.folders() == (Path("/data"), Path("/cache"))


def test_without_a_named_folder_the_cache_is_all_there_is(monkeypatch):
    monkeypatch.setenv("DISTINCTKV_CACHE", "/cache")
    assert places.folders() == (Path("/cache"),)


def test_the_cache_is_in_the_users_cache_folder(monkeypatch):
    assert places.cache() == Path.home() / ".cache" / "distinctkv"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert places.cache() == Path("/elsewhere/distinctkv")


def test_a_relative_cache_folder_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "elsewhere")
    assert places.cache() == Path.home() / ".cache" / "distinctkv"


def test_missing_data_is_a_missing_file():
    assert issubclass(places.DataMissing, FileNotFoundError)
