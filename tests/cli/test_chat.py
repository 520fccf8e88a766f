"""``distinctkv chat`` with a tiny random model and a tokenizer of a few words."""

import gzip
import os
import pty
import re
import shutil
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from distinctkv import cli, snapshot
from distinctkv.cli import chat as module
from distinctkv.cli.snapshots import TALK
from distinctkv.logs import LogParser
from tests.cli.conftest import WORDS

pytest.importorskip("torch")
pytest.importorskip("transformers")
STOPPED = 128 + signal.SIGINT


def seen(result):
    return int(re.findall(r"([\d,]+) tokens seen", result.stderr)[-1].replace(",", ""))


def same(one, other):
    """Whether two saved conversations are equal, bit for bit."""
    (arrays, facts), (others, other_facts) = (snapshot.load(path, TALK) for path in (one, other))
    assert facts == other_facts
    assert arrays.keys() == others.keys()
    return all(np.array_equal(array, others[name]) for name, array in arrays.items())


@pytest.fixture
def state(tmp_path):
    return tmp_path / "chat.safetensors"


@pytest.fixture
def interrupt(monkeypatch):
    """Send a signal at the start of this forward pass."""
    forward = module.Conversation._forward
    # A shell may start tests in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def at(number, times=1, kind=signal.SIGINT):
        passes = iter(range(1, 10_000))

        def interrupted(conversation, ids):
            if next(passes) == number:
                for _ in range(times):
                    signal.raise_signal(kind)
            forward(conversation, ids)

        monkeypatch.setattr(module.Conversation, "_forward", interrupted)

    yield at
    signal.signal(signal.SIGINT, before)


def test_each_line_is_a_question_and_each_answer_a_line(chat, text):
    result = chat("--context", text, "--chunk", "50")
    assert result.exit_code == 0, result.output
    answers = result.stdout.splitlines()
    assert len(answers) == 2
    assert all(set(answer.split()) <= {*WORDS} for answer in answers)
    assert seen(result) > 320
    assert re.search(r"held, [\d.]+ [kM]B saved", result.stderr)


def test_without_a_context_there_are_answers_and_empty_lines_are_skipped(chat):
    few, many = chat(), chat(questions="\none two\n\n  \nthree\n\n")
    assert len(few.stdout.splitlines()) == 2
    assert (many.stdout, seen(many)) == (few.stdout, seen(few))


def test_a_smaller_size_holds_less(chat, text):
    held = [
        float(re.findall(r"\((\d+)%\)", chat("--context", text, *size).stderr)[-1])
        for size in (["--kept", "0.9"], ["--kept", "0.3"], ["--budget", "50"])
    ]
    assert held[0] > held[1] > held[2]


def test_a_conversation_resumes_as_if_it_had_not_stopped(chat, text, state):
    expected = chat("--context", text).stdout.splitlines()
    first = chat("--context", text, "--state", state, questions="one two\n")
    second = chat("--state", state, questions="three\n")
    assert [first.stdout.strip(), second.stdout.strip()] == expected
    assert seen(second) > seen(first)


def test_a_context_is_read_once(chat, text, state, interrupt):
    expected = chat("--context", text)
    chat("--context", text, "--state", state, questions="")
    interrupt(2)  # the second pass is not one of the context any more
    again = chat("--context", text, "--state", state, "--tokens", "1")
    assert again.exit_code == STOPPED
    assert again.stdout.split() == expected.stdout.split()[:1]


@pytest.mark.parametrize("size", [["--threshold", "1"], ["--kept", "0.3"], ["--fast"]])
def test_a_context_that_was_read_in_part_is_continued_to_the_same_slots(
    chat, text, state, tmp_path, interrupt, size
):
    whole = tmp_path / "whole"
    expected = chat("--context", text, "--state", whole, "--chunk", "50", *size)
    for number in (1, 2):
        interrupt(number)
        stopped = chat(
            "--context", text, "--state", state, "--chunk", "50", *(size if number == 1 else [])
        )
        assert (stopped.exit_code, stopped.stdout) == (STOPPED, "")
        assert f"resume with {state}" in stopped.stderr
    interrupt(0)
    assert "150 of 323 tokens" in chat("--state", state).stderr
    again = chat("--context", text, "--state", state)
    assert (again.exit_code, again.stdout) == (0, expected.stdout)
    assert same(state, whole)


def test_without_a_state_nothing_is_saved_and_it_says_so(chat, text, interrupt):
    interrupt(2)
    stopped = chat("--context", text, "--chunk", "50")
    assert stopped.exit_code == STOPPED
    assert "nothing saved" in stopped.stderr


def test_a_second_interrupt_ends_it_at_once(chat, text, state, interrupt):
    interrupt(2, times=2)
    stopped = chat("--context", text, "--state", state, "--chunk", "50")
    assert (stopped.exit_code, state.exists()) == (1, False)
    assert "nothing saved" in stopped.stderr


def test_on_a_terminal_an_interrupt_ends_the_answer_alone(chat, state, interrupt, monkeypatch):
    monkeypatch.setattr(module, "typed", lambda: True)
    whole = chat().stdout.splitlines()
    interrupt(4)  # after the question and two tokens
    result = chat("--state", state)
    cut, after = result.stdout.splitlines()
    assert result.exit_code == 0
    assert whole[0].split()[:3] == cut.split()
    assert after


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_in_a_pipe_a_signal_keeps_the_answer_and_ends_the_conversation(
    chat, state, interrupt, kind
):
    interrupt(4, kind=kind)
    result = chat("--state", state)
    assert result.exit_code == 128 + kind
    assert len(result.stdout.splitlines()) == 1
    assert state.exists()


def test_a_conversation_longer_than_the_model_was_made_for_is_warned_of_once(chat, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("log line one two\n" * 520)
    said = chat("--context", path, "--chunk", "2048").stderr
    assert said.count("unreliable") == 1
    assert said.index("2,083 tokens") < said.index("2,083 tokens seen")
    path.write_text("log line one two\n" * 511)
    said = chat("--context", path, "--chunk", "2048", questions="one\ntwo\n" * 2).stderr
    assert said.count("unreliable") == 1


def test_the_merge_policy_is_saved_in_the_state(chat, text, state):
    from distinctkv.hf import FAST

    assert chat("--fast", "--context", text, "--state", state).exit_code == 0
    _, held = snapshot.load(state, TALK)
    assert held["config"]["merge"] == asdict(FAST)


def test_a_compressed_text_is_read_as_it_is(chat, text, tmp_path):
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    plain, result = chat("--context", text), chat("--context", packed)
    assert (result.stdout, seen(result)) == (plain.stdout, seen(plain))
    packed.write_bytes(packed.read_bytes()[:-9])
    assert str(packed) in chat("--context", packed).stderr


def test_invalid_bytes_are_replaced_with_a_warning(chat, text):
    text.write_bytes(text.read_bytes() + b"\xff\0")
    result = chat("--context", text, questions=b"one \xff two\nthree\n")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 2)
    assert "2 invalid characters" in result.stderr


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"\xff\xfe\x00", "UTF-8"), (b"\x7fELF\0\0\0\1", "UTF-8"), (b" \n", "no text")],
)
def test_a_file_that_is_no_text_is_an_error(chat, tmp_path, content, word):
    path = tmp_path / "file"
    path.write_bytes(content)
    result = chat("--context", path)
    assert result.exit_code == 2
    assert word in result.stderr


def test_options_that_contradict_are_errors(chat, text, state):
    assert "one size" in chat("--kept", "0.5", "--budget", "90").stderr
    assert "(0, 1]" in chat("--kept", "25").stderr
    chat("--context", text, "--state", state)
    assert "leave --kept out" in chat("--kept", "0.5", "--state", state).stderr
    text.write_text("another text")
    assert "another context" in chat("--context", text, "--state", state).stderr


def test_a_state_of_another_kind_or_damaged_is_an_error(chat, text, state):
    LogParser().save(state)
    assert "log parser" in chat("--state", state).stderr
    state.write_bytes(state.read_bytes()[:-3])
    for wrong in (state, text):
        result = chat("--state", wrong)
        assert result.exit_code == 1
        assert str(wrong) in result.stderr


def test_a_model_that_cannot_be_used_is_an_error(chat, text, tmp_path, folder):
    import transformers

    def copy(name):
        return Path(shutil.copytree(folder, tmp_path / name))

    damaged = copy("damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    overflow = copy("overflow")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.model.layers[1].self_attn.v_proj.weight.data[0] = float("inf")
    model.save_pretrained(overflow)
    unsupported = copy("unsupported")
    config = transformers.AutoConfig.for_model(
        "gpt2", n_layer=1, n_head=1, n_embd=8, vocab_size=len(WORDS)
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(unsupported)
    for path, word in (
        (damaged, "cannot load"),
        (overflow, "not finite"),
        (unsupported, "gpt2"),
        (tmp_path, "cannot load"),
    ):
        result = chat("--context", text, model=path)
        assert (result.exit_code, type(result.exception)) == (1, SystemExit)
        assert word in result.stderr
    assert "does not exist" in chat(model=tmp_path / "gone").stderr


def test_without_torch_the_extra_is_named(chat, monkeypatch):
    monkeypatch.setitem(sys.modules, "distinctkv.hf", None)
    assert "distinctkv[hf]" in chat().stderr


def test_on_a_terminal_answers_and_progress_are_shown(folder, text, monkeypatch):
    outer, inner = pty.openpty()
    shown = []

    def read_all():
        with suppress(OSError):  # the other end was closed
            while piece := os.read(outer, 1 << 16):
                shown.append(piece)

    reader = Thread(target=read_all)
    reader.start()
    os.write(outer, b"one two\n\n")
    arguments = ["chat", "--model", str(folder), "--context", str(text), "--tokens", "4"]
    with ExitStack() as files, monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            patch.setattr(sys, name, files.enter_context(open(os.dup(inner), mode)))
        cli.main([*arguments, "--chunk", "100"], standalone_mode=False)
    os.close(inner)
    reader.join()
    os.close(outer)
    said = b"".join(shown)
    assert b"> " in said
    assert said.count(b"tokens seen") >= 3
