"""Texts and questions that ``distinctkv chat`` reads."""

import gzip
import tarfile

import pytest

from distinctkv.cli import chat_text
from tests.cli.test_chat import seen

pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_the_memory_that_a_large_text_takes_is_told(chat, text, monkeypatch):
    assert "of memory" not in chat("--context", text).stderr
    monkeypatch.setattr(chat_text, "LARGE", 100)
    assert "tokens of 1.5 kB of text takes up to 296.0 kB of memory" in (
        chat("--context", text).stderr
    )


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tar_archive_is_refused_by_its_content(chat, text, tmp_path, mode):
    path = tmp_path / "logs"
    with tarfile.open(path, mode) as archive:
        archive.add(text, "log.txt")
    result = chat("--context", path)
    assert result.exit_code == 2
    assert f"{path} is a tar archive, no text; unpack it and name a file in it" in result.stderr


def test_empty_lines_in_a_pipe_are_skipped(chat):
    few, many = chat(), chat(questions="\none two\n\n  \nthree\n\n")
    assert (many.stdout, seen(many)) == (few.stdout, seen(few))


def test_a_packed_text_is_read_as_it_is(chat, text, tmp_path):
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    unpacked, result = chat("--context", text), chat("--context", packed)
    assert (result.stdout, seen(result)) == (unpacked.stdout, seen(unpacked))
    packed.write_bytes(packed.read_bytes()[:-9])
    assert f"{packed} is damaged, read up to there" in chat("--context", packed).stderr


@pytest.mark.parametrize("odd", [b"\xff", b"\0"])
def test_a_byte_that_is_no_text_is_told_and_read_on(chat, text, odd):
    text.write_bytes(text.read_bytes() + odd)
    result = chat("--context", text)
    assert result.exit_code == 0
    assert f"{text} is not all UTF-8; read as \ufffd: 1\n" in result.stderr


def test_a_question_that_is_no_text_does_not_end_the_talk(chat):
    result = chat(questions=b"one \xff two\nthree\n")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "not all UTF-8" in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (b"\x7fELF\0\0\0\1", "no UTF-8 text"),
        (b" \n", "is empty"),
        (b"\x1f\x8b\x08", "is damaged"),
    ],
)
def test_a_file_that_is_no_text_is_refused(chat, tmp_path, content, said):
    path = tmp_path / "file"
    path.write_bytes(content)
    result = chat("--context", path)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_log_that_begins_with_zeros_is_no_archive(chat, text, tmp_path):
    path = tmp_path / "cut.log"
    path.write_bytes(bytes(600) + 20 * text.read_bytes())
    result = chat("--context", path)
    assert result.exit_code == 0
    assert "archive" not in result.stderr
