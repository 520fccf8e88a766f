import os

import pytest

from reproduction.data import DataDamaged, DataMissing, dataset
from reproduction.data.dataset import DataSet
from tests.reproduction.data.lookalikes import lay


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


def test_the_named_folder_is_read_first(here):
    lay(here["data"], {"fruit.txt": b"named"})
    lay(here["cache"], {"fruit.txt": b"cached"})
    assert fruit().load() == "named"


def test_the_cache_is_read_where_the_named_folder_has_none(here):
    lay(here["cache"], {"fruit.txt": b"cached"})
    assert fruit().load() == "cached"


def test_part_of_a_choice_is_no_choice(here):
    lay(here["data"], {"fruit/apple": b"apple"})
    assert fruit().find() is None
    lay(here["data"], {"fruit/pear": b"pear"})
    assert fruit().load() == "apple pear"


def test_what_is_fetched_is_kept(here):
    assert fruit(lambda: {"fruit.txt": b"fetched"}).load() == "fetched"
    assert fruit().get() == {"fruit.txt": here["cache"] / "fruit.txt"}
    assert os.listdir(here["cache"]) == ["fruit.txt"]


def test_a_second_source_is_asked_when_the_first_fails(here):
    sources = (unreachable, lambda: {"fruit.txt": b"bad"}, lambda: {"fruit.txt": b"good"})
    assert fruit(*sources).load() == "good"


def test_what_is_not_right_never_enters_the_cache(here):
    with pytest.raises(DataMissing, match="bad fruit"):
        fruit(lambda: {"fruit.txt": b"bad"}).get()
    assert os.listdir(here["cache"]) == []


def test_missing_data_says_what_to_put_where(here):
    with pytest.raises(DataMissing) as caught:
        fruit(unreachable).load()
    assert str(caught.value).splitlines() == [
        f"fruit is not in {here['data']} or {here['cache']}, and could not be fetched:",
        "  no road",
        "Put fruit.txt into such a folder; DISTINCTKV_DATA names another one.",
        "Licence: eat freely.",
    ]


def test_damaged_data_is_named_and_left_alone(here):
    lay(here["data"], {"fruit.txt": b"bad"})
    with pytest.raises(DataDamaged, match=rf"bad fruit; remove .* {here['data']}/fruit\.txt"):
        fruit().load()
    assert (here["data"] / "fruit.txt").read_bytes() == b"bad"


def test_a_file_larger_than_any_stream_is_not_read(here, monkeypatch):
    lay(here["data"], {"fruit.txt": b"apple"})
    monkeypatch.setattr(dataset, "MAX_BYTES", 4)
    with pytest.raises(DataDamaged, match="5 bytes, more than the 4 we read"):
        fruit().load()


def test_a_cache_that_cannot_be_written_is_said(here):
    here["cache"].rmdir()
    here["cache"].touch()
    with pytest.raises(DataMissing, match=f"exists: '{here['cache']}'"):
        fruit(lambda: {"fruit.txt": b"fetched"}).load()
