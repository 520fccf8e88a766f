import gzip
from contextlib import suppress
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.data import DataDamaged
from reproduction.data.archives import MAX_RATIO, gunzip, unzip
from tests.reproduction.data.lookalikes import packed

ZEROS = bytes(2 * MAX_RATIO * 2**16)


def test_only_the_wanted_members_are_read():
    content = packed({"a/u.data": b"1", "a/u.item": b"2", "a/README": b"3"})
    assert unzip(content, ["a/u.data", "a/u.item"]) == {"a/u.data": b"1", "a/u.item": b"2"}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "..\\x", "\\x", "C:\\x", "C:/x"])
def test_a_name_that_leaves_its_folder_is_refused(name):
    content = packed({"u.data": b"1", name: b"2"})
    with pytest.raises(DataDamaged, match="leaves its folder"):
        unzip(content, ["u.data"])


def test_a_link_is_refused():
    link = ZipInfo("u.item")
    link.external_attr = 0o120777 << 16
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        archive.writestr("u.data", b"1")
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataDamaged, match=r"a link in it: 'u\.item'"):
        unzip(made.getvalue(), ["u.data"])


@pytest.mark.parametrize(("field", "value"), [(8, b"\x01"), (10, b"\x0e")])
def test_a_locked_or_strangely_packed_member_is_refused(field, value):
    content = packed({"u.data": b"1"})
    place = content.index(b"PK\x01\x02") + field
    strange = content[:place] + value + content[place + 1 :]
    with pytest.raises(DataDamaged, match="locked or packed in a rare way"):
        unzip(strange, ["u.data"])


def test_a_zip_bomb_is_refused():
    made = BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as archive:
        archive.writestr("u.data", ZEROS)
    with pytest.raises(DataDamaged, match=r"unpacks [\d,]+ bytes to more than 6,553,600"):
        unzip(made.getvalue(), ["u.data"])


def test_a_truncated_zip_is_refused():
    content = packed({"u.data": b"1" * 1000})
    for end in (0, 10, len(content) // 2, len(content) - 1):
        with pytest.raises(DataDamaged, match="not a whole zip file"):
            unzip(content[:end], ["u.data"])


def test_a_changed_member_is_refused():
    content = packed({"u.data": b"1" * 1000}).replace(b"11111", b"11211", 1)
    with pytest.raises(DataDamaged, match="not a whole zip file"):
        unzip(content, ["u.data"])


def test_a_member_must_be_there_once():
    content = packed({"a.csv": b"1", "b.csv": b"2"})
    with pytest.raises(DataDamaged, match=r"0 members named u\.data"):
        unzip(content, ["u.data"])
    with pytest.raises(DataDamaged, match=r"2 members named \*\.csv"):
        unzip(content, ["*.csv"])


@given(st.data())
def test_a_changed_archive_is_refused_or_the_same(data):
    content = bytearray(packed({"a/é.csv": b"1,2" * 9, "u.data": b"1" * 99}))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    with suppress(DataDamaged):
        assert unzip(bytes(content), ["u.data"]) == {"u.data": b"1" * 99}


def test_a_gzip_bomb_is_refused():
    with pytest.raises(DataDamaged, match="more than 6,553,600"):
        gunzip(gzip.compress(ZEROS))


CUT = gzip.compress(b"grass" * 99, mtime=0)[:-9]


@pytest.mark.parametrize("content", [CUT, b"grass", b"\x1f\x8bgrass"], ids=["cut", "text", "head"])
def test_what_is_not_a_whole_gzip_file_is_refused(content):
    with pytest.raises(DataDamaged, match="not a whole gzip file"):
        gunzip(content)
