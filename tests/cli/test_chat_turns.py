"""Ctrl-C in ``distinctkv chat`` ends what goes on at the moment, and loses nothing of it."""

import signal

import numpy as np
import pytest

from distinctkv import snapshot
from distinctkv.cli import chat_text, chat_turns
from distinctkv.cli.snapshots import TALK

pytest.importorskip("torch")
pytest.importorskip("transformers")
STOPPED = 128 + signal.SIGINT


@pytest.fixture(autouse=True)
def heard():
    """Ctrl-C reaches Python, though a shell that starts the tests behind its back turns it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupt(monkeypatch):
    """Press Ctrl-C, or send another signal, in this pass of a model; so many times."""
    from distinctkv.hf.talk import Talk

    feed = Talk._feed

    def at(number, times=1, kind=signal.SIGINT):
        passes = iter(range(1, 10_000))

        def fed(talk, ids):
            if next(passes) == number:
                for _ in range(times):
                    signal.raise_signal(kind)
            feed(talk, ids)

        monkeypatch.setattr(Talk, "_feed", fed)

    return at


@pytest.fixture
def state(tmp_path):
    return tmp_path / "talk.safetensors"


def same(one, other):
    """Whether two talks hold the same, bit for bit."""
    (arrays, told), (others, told_too) = (snapshot.load(path, TALK) for path in (one, other))
    assert told == told_too
    assert arrays.keys() == others.keys()
    return all(np.array_equal(array, others[name]) for name, array in arrays.items())


@pytest.mark.parametrize("size", [["--threshold", "1"], ["--kept", "0.3"], ["--careful"]])
def test_a_context_that_was_left_is_read_on_as_if_it_had_not_been(
    chat, text, state, tmp_path, interrupt, size
):
    whole = tmp_path / "whole"
    want = chat("--context", text, "--state", whole, "--chunk", "50", *size)
    interrupt(3)
    left = chat("--context", text, "--state", state, "--chunk", "50", *size)
    assert (left.exit_code, left.stdout) == (STOPPED, "")
    assert f"{state} holds what was read; name --context and --state again" in left.stderr
    assert "read on from token 150 of 323" in left.stderr
    again = chat("--context", text, "--state", state)
    assert "173 of 323 tokens to read" in again.stderr
    assert (again.exit_code, again.stdout) == (0, want.stdout)
    assert same(state, whole)


def test_a_context_may_be_left_more_than_once(chat, text, state, interrupt):
    want = chat("--context", text, "--chunk", "50").stdout
    for number in (1, 2):
        interrupt(number)
        chat("--context", text, "--state", state, "--chunk", "50")
    interrupt(0)
    assert chat("--context", text, "--state", state).stdout == want


def test_a_context_that_was_left_is_read_to_its_end_before_a_question(
    chat, text, state, tmp_path, interrupt
):
    interrupt(2)
    chat("--context", text, "--state", state, "--chunk", "50")
    interrupt(0)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text() + "five")
    assert "(323 tokens) was not read to its end; name it" in chat("--state", state).stderr
    wrong = chat("--context", other, "--state", state)
    assert "has read 100 of the 323 tokens of a text in chunks of 50" in wrong.stderr
    said = chat("--context", text, "--state", state, "--chunk", "60").stderr
    assert "was read in chunks of 50, got 60; leave --chunk out" in said
    assert "leave --kept out" in chat("--context", text, "--state", state, "--kept", "0.5").stderr
    assert chat("--context", text, "--state", state).exit_code == 0


def test_ctrl_c_in_the_last_chunk_leaves_a_whole_talk(chat, text, state, interrupt):
    want = chat("--context", text, "--chunk", "200").stdout
    interrupt(2)
    left = chat("--context", text, "--state", state, "--chunk", "200")
    assert left.exit_code == STOPPED
    assert f"{state} holds what was read\n" in left.stderr
    interrupt(0)
    assert chat("--state", state).stdout == want


@pytest.mark.parametrize("every", [0.0, 1e6])
def test_what_was_read_is_saved_now_and_then(chat, text, state, interrupt, monkeypatch, every):
    monkeypatch.setattr(chat_turns, "SAVING", every)
    monkeypatch.setattr(chat_turns, "PART", 0)
    interrupt(4, times=2)  # the second does not wait for the chunk
    left = chat("--context", text, "--state", state, "--chunk", "50")
    assert left.exit_code == 1
    assert state.exists() == (every == 0)
    assert ("holds the context as far as it was saved" in left.stderr) == (every == 0)
    assert ("nothing was kept" in left.stderr) == (every > 0)
    interrupt(0)
    again = chat("--context", text, "--state", state, "--chunk", "50")
    assert again.stdout == chat("--context", text, "--chunk", "50").stdout


def test_a_last_saving_that_is_stopped_leaves_a_part_and_says_so(chat, text, state, monkeypatch):
    from distinctkv.hf import DistinctCache

    save, times = DistinctCache.save, iter(range(1, 10))

    def stopped(cache, path):
        for _ in range(2 if next(times) > 1 else 0):
            signal.raise_signal(signal.SIGINT)
        save(cache, path)

    monkeypatch.setattr(DistinctCache, "save", stopped)
    monkeypatch.setattr(chat_turns, "SAVING", 0.0)
    left = chat("--context", text, "--state", state, "--chunk", "200")
    assert left.exit_code == 1
    assert "holds the context as far as it was saved" in left.stderr
    assert "(323 tokens) was not read to its end" in chat("--state", state).stderr


def test_without_a_state_ctrl_c_ends_reading_at_once(chat, text, interrupt):
    interrupt(2)
    left = chat("--context", text, "--chunk", "50")
    assert left.exit_code == 1
    assert "stopped; nothing was kept" in left.stderr


def test_ctrl_c_in_an_answer_ends_the_answer_alone(chat, state, interrupt, monkeypatch):
    monkeypatch.setattr(chat_text, "typed", lambda: True)
    whole = chat().stdout.splitlines()
    interrupt(4)  # the question, and two tokens before
    result = chat("--state", state)
    cut, after = result.stdout.splitlines()
    assert result.exit_code == 0
    assert "the answer was stopped; an empty line ends the talk" in result.stderr
    assert whole[0].split()[:3] == cut.split()
    assert after


def test_a_question_after_a_stopped_answer_is_one_after_a_short_answer(
    chat, state, tmp_path, interrupt, monkeypatch
):
    monkeypatch.setattr(chat_text, "typed", lambda: True)
    short = tmp_path / "short"
    chat("--state", short, "--tokens", "3", questions="one two\n")
    want = chat("--state", short, questions="three\n").stdout.splitlines()[-1]
    interrupt(4)
    assert chat("--state", state).stdout.splitlines()[-1] == want


def test_in_a_pipe_ctrl_c_ends_the_talk(chat, state, interrupt):
    interrupt(4)
    result = chat("--state", state)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "stopped; nothing was kept" in result.stderr


def test_a_polite_kill_in_an_answer_keeps_it_and_ends_the_talk(chat, state, interrupt, monkeypatch):
    monkeypatch.setattr(chat_text, "typed", lambda: True)
    interrupt(4, kind=signal.SIGTERM)
    result = chat("--state", state)
    assert result.exit_code == 128 + signal.SIGTERM
    assert len(result.stdout.splitlines()) == 1
    assert state.exists()
