import hashlib

import pytest

from reproduction.data import DataDamaged, fetch
from reproduction.data.fetch import Source, download, from_wheel
from tests.reproduction.data.lookalikes import wheel


def digest(content):
    return hashlib.sha256(content).hexdigest()


def test_a_file_comes_whole(web):
    folder, url = web
    content = bytes(range(256)) * 999
    (folder / "u.data").write_bytes(content)
    assert download(Source(f"{url}/u.data", digest(content))) == content


def test_a_digest_is_not_needed(web):
    folder, _ = web
    (folder / "u.data").write_bytes(b"apple")
    assert download(Source((folder / "u.data").as_uri())) == b"apple"


def test_a_wrong_digest_is_refused(web):
    folder, url = web
    (folder / "u.data").write_bytes(b"pear")
    with pytest.raises(DataDamaged, match=f"it should have {digest(b'apple')}"):
        download(Source(f"{url}/u.data", digest(b"apple")))


def test_an_answer_that_breaks_off_is_refused(web):
    with pytest.raises(DataDamaged, match="broke off after 9 of 1,000 bytes"):
        download(Source(f"{web[1]}/broken"))


def test_an_answer_without_end_is_refused(web, monkeypatch):
    folder, url = web
    (folder / "u.data").write_bytes(bytes(1000))
    monkeypatch.setattr(fetch, "MAX_BYTES", 999)
    with pytest.raises(DataDamaged, match="more than 999 bytes"):
        download(Source(f"{url}/u.data"))


def test_an_absent_file_is_named(web):
    with pytest.raises(ConnectionError, match=r"/u\.data: .*not found"):
        download(Source(f"{web[1]}/u.data"))


def test_only_https_is_fetched():
    with pytest.raises(ConnectionError, match="only https is fetched"):
        download(Source("http://127.0.0.1/u.data"))


def test_a_redirect_leads_nowhere_else(web):
    with pytest.raises(
        ConnectionError, match=r"only http and file is fetched, not ftp://127\.0\.0\.1/file"
    ):
        download(Source(f"{web[1]}/elsewhere"))


@pytest.fixture
def wheels(here, tmp_path):
    """The only folder pip looks in, with one wheel."""
    name, content = wheel("fruit", "1.0", {"fruit/apple.txt": b"red"})
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(content)


@pytest.mark.usefixtures("wheels")
def test_pip_brings_a_wheel_and_its_files_are_checked():
    found = from_wheel("fruit==1.0", {"fruit/apple.txt": digest(b"red")})
    assert found == {"fruit/apple.txt": b"red"}
    with pytest.raises(DataDamaged, match=r"fruit/apple\.txt has the SHA-256 digest"):
        from_wheel("fruit==1.0", {"fruit/apple.txt": digest(b"green")})


@pytest.mark.usefixtures("wheels")
def test_pip_says_why_it_brings_nothing(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with pytest.raises(ConnectionError, match=r"pip download fruit==2\.0: .*fruit==2\.0"):
        from_wheel("fruit==2.0", {})


@pytest.mark.usefixtures("wheels")
def test_pip_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(fetch, "PIP_TIMEOUT", 0.001)
    with pytest.raises(TimeoutError, match="no end in"):
        from_wheel("fruit==1.0", {})
