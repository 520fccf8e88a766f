"""What ``distinctkv chat`` tells while it reads."""

import os
import pty
import re
import sys
from contextlib import ExitStack, suppress
from threading import Event, Thread

import numpy as np
import pytest

from distinctkv import cli
from distinctkv.cli import chat_progress

pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_a_pipe_is_told_how_far_a_long_text_was_read(chat, tmp_path, monkeypatch):
    monkeypatch.setattr(chat_progress, "LONG", 300)
    path = tmp_path / "long.txt"
    path.write_text("log line one two\n" * 80)
    said = chat("--context", path, "--chunk", "20", questions="").stderr
    assert 5 <= said.count("reading: ") <= 10


def test_a_pipe_is_told_by_time_from_the_start(monkeypatch):
    monkeypatch.setattr(chat_progress, "EVERY", 1e-3)
    said, both = [], Event()

    def hear(line, **_):
        said.append(line)
        if len({*said}) == 2:
            both.set()

    monkeypatch.setattr(chat_progress.click, "echo", hear)
    with chat_progress.lines() as advance:
        while not said:
            both.wait(1e-3)
        advance(1, 50)
        assert both.wait(60)
    assert said[0] == "making tokens of the text"
    assert said[-1] == "reading: 1 of 50 tokens"


def test_the_size_is_told_before_the_model_is_loaded_and_the_tokens_before_they_are_read(
    chat, text
):
    said = chat("--context", text, questions="").stderr.splitlines()
    assert said[0] == f"reading {text}: 1.5 kB"
    assert said[1].startswith("loading ")
    assert said[2] == "323 tokens to read"


def test_what_stands_beside_the_bar_fits_in_80_columns():
    from distinctkv.hf.summary import Summary

    held = Summary(10**8, 100, np.full((2, 2), 999), 10**9, 999 * 10**9, 0, 1.0)
    said = chat_progress.beside(held, 10**8, 10**8)
    assert said == "100,000,000/100,000,000 <1% held, 1.0 GB, 998.0 GB saved"
    assert len(said) + 1 + 16 <= 80


def read_all(terminal, shown):
    with suppress(OSError):  # the other end was closed
        while piece := os.read(terminal, 1 << 16):
            shown.append(piece)


def test_on_a_terminal_numbers_are_shown_as_they_change(folder, text, monkeypatch):
    outer, inner = pty.openpty()
    shown = []
    reader = Thread(target=read_all, args=(outer, shown))
    reader.start()
    os.write(outer, b"one two\n\n")
    arguments = ["chat", "--model", str(folder), "--context", str(text), "--tokens", "4"]
    with ExitStack() as files, monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            patch.setattr(sys, name, files.enter_context(open(os.dup(inner), mode)))
        cli.main([*arguments, "--chunk", "100"], standalone_mode=False)
    os.close(inner)
    reader.join()
    os.close(outer)
    said = b"".join(shown)
    assert b"> " in said
    assert b"\n323 tokens to read" in re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\r", b"", said)
    assert re.search(rb"323/323 \d+% held, [\d.]+ kB, [\d.]+ kB saved", said)
    assert said.count(b"tokens seen") >= 3
