"""``distinctkv chat`` with a tiny random model and a tokenizer of a few words."""

import os
import pty
import re
import sys
from contextlib import ExitStack, suppress
from threading import Thread

import pytest
from click.testing import CliRunner

from distinctkv import cli

pytest.importorskip("torch")
pytest.importorskip("transformers")

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>"
WORDS = ["<unk>", "</s>", *"abcdef", "log", "line", "one", "two", "three", "four"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory, seed):
    """A model saved with its tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    from tests.hf.models import build

    inner = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", eos_token="</s>", chat_template=TEMPLATE
    )
    path = tmp_path_factory.mktemp("model")
    build(seed, vocab_size=len(WORDS)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("log line one two\nlog line three four\n" * 40)
    return path


@pytest.fixture
def chat(folder):
    def call(*arguments, questions="one two\nthree\n", model=folder):
        given = ["chat", "--model", str(model), "--tokens", "6", *map(str, arguments)]
        return CliRunner().invoke(cli.main, given, input=questions)

    return call


def seen(result):
    return int(re.findall(r"([\d,]+) tokens seen", result.stderr)[-1].replace(",", ""))


def test_each_line_is_a_question_and_each_answer_a_line(chat, text):
    result = chat("--context", text, "--chunk", "50")
    assert result.exit_code == 0, result.output
    answers = result.stdout.splitlines()
    assert len(answers) == 2
    assert all(set(answer.split()) <= {*WORDS} for answer in answers)
    assert seen(result) > 320
    assert "MB saved" in result.stderr


def test_a_conversation_goes_on_from_its_state_as_if_it_had_not_stopped(chat, text, tmp_path):
    state = tmp_path / "talk.safetensors"
    whole = chat("--context", text).stdout.splitlines()
    first = chat("--context", text, "--state", state, questions="one two\n")
    second = chat("--state", state, questions="three\n")
    assert [first.stdout.strip(), second.stdout.strip()] == whole
    assert seen(second) > seen(first)


def test_a_smaller_size_holds_less(chat, text):
    held = [
        float(re.findall(r"\((\d+)%\)", chat("--context", text, *size).stderr)[0])
        for size in (["--kept", "0.9"], ["--kept", "0.3"], ["--budget", "50"])
    ]
    assert held[0] > held[1] > held[2]


def test_without_a_file_there_is_still_a_talk(chat):
    assert len(chat().stdout.splitlines()) == 2


def test_a_text_too_long_for_the_model_is_told(chat, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("log line one two\n" * 520)
    said = chat("--context", path, questions="").stderr
    assert "the model was made for 2,048; do not trust" in said


@pytest.mark.parametrize(
    ("content", "said"), [(b"\xff\xfe\x00", "no UTF-8 text"), (b" \n", "is empty")]
)
def test_a_file_that_is_no_text_is_refused(chat, tmp_path, content, said):
    path = tmp_path / "file"
    path.write_bytes(content)
    result = chat("--context", path)
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_is_not_there_is_named(chat, tmp_path):
    gone = tmp_path / "gone"
    assert f"{gone} holds no model" in chat(model=gone).stderr
    assert f"{gone} cannot be read: No such file" in chat("--context", gone).stderr
    assert "there is no folder" in chat("--state", gone / "talk").stderr


def test_sizes_are_checked_before_the_model_is_loaded(chat, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    said = chat("--kept", "1.5", model=tmp_path).stderr
    assert "kept must lie in (0, 1], got 1.5" in said
    assert "choose one" in chat("--kept", "0.5", "--budget", "90").stderr


def test_a_model_we_cannot_stand_behind_is_refused(chat, tmp_path, folder, seed):
    import transformers

    config = transformers.AutoConfig.for_model(
        "gpt2", n_layer=1, n_head=1, n_embd=8, vocab_size=len(WORDS)
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    for part in folder.glob("token*"):
        (tmp_path / part.name).write_bytes(part.read_bytes())
    result = chat(model=tmp_path)
    assert result.exit_code == 1
    assert "'gpt2' is not one this cache was tested with" in result.stderr


def test_a_state_is_not_begun_anew_and_must_be_whole(chat, text, tmp_path):
    state = tmp_path / "talk.safetensors"
    chat("--context", text, "--state", state)
    assert "leave --context out" in chat("--context", text, "--state", state).stderr
    assert "leave --kept out" in chat("--kept", "0.5", "--state", state).stderr
    state.write_bytes(state.read_bytes()[:-3])
    result = chat("--state", state)
    assert result.exit_code == 1
    assert str(state) in result.stderr


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
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            patch.setattr(sys, name, files.enter_context(open(os.dup(inner), mode)))
        cli.main([*arguments, "--chunk", "100"], standalone_mode=False)
    os.close(inner)
    reader.join()
    os.close(outer)
    said = b"".join(shown)
    assert b"> " in said
    assert said.count(b"tokens seen") >= 3
