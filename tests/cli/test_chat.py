"""``distinctkv chat`` with a tiny random model and a tokenizer of a few words."""

import re
import warnings
from dataclasses import asdict

import pytest

from distinctkv import snapshot
from distinctkv.cli.chat import told
from distinctkv.cli.snapshots import TALK
from distinctkv.logs import LogParser
from tests.cli.conftest import WORDS

pytest.importorskip("torch")
pytest.importorskip("transformers")


def seen(result):
    return int(re.findall(r"([\d,]+) tokens seen", result.stderr)[-1].replace(",", ""))


def test_each_line_is_a_question_and_each_answer_a_line(chat, text):
    result = chat("--context", text, "--chunk", "50")
    assert result.exit_code == 0, result.output
    answers = result.stdout.splitlines()
    assert len(answers) == 2
    assert all(set(answer.split()) <= {*WORDS} for answer in answers)
    assert seen(result) > 320
    assert re.search(r"held, [\d.]+ [kM]B saved", result.stderr)


def test_a_conversation_goes_on_from_its_state_as_if_it_had_not_stopped(chat, text, tmp_path):
    state = tmp_path / "talk.safetensors"
    whole = chat("--context", text).stdout.splitlines()
    first = chat("--context", text, "--state", state, questions="one two\n")
    second = chat("--state", state, questions="three\n")
    assert [first.stdout.strip(), second.stdout.strip()] == whole
    assert seen(second) > seen(first)


def test_a_talk_that_was_left_before_its_first_question_goes_on_with_it(chat, text, tmp_path):
    state = tmp_path / "talk.safetensors"
    whole = chat("--context", text)
    first = chat("--context", text, "--state", state, questions="")
    assert f"it will be kept in {state}\n" in first.stderr
    again = chat("--state", state)
    assert (again.stdout, seen(again)) == (whole.stdout, seen(whole))


def test_a_talk_in_which_nothing_was_said_is_not_kept_and_not_promised(chat, tmp_path):
    state = tmp_path / "talk.safetensors"
    said = chat("--state", state, questions="").stderr
    assert f"it will be kept in {state} from the first answer on" in said
    assert not state.exists()


@pytest.mark.parametrize("named", [True, False])
def test_a_talk_that_is_stopped_says_what_is_left(chat, text, tmp_path, monkeypatch, named):
    from distinctkv.hf.talk import Talk

    state = ["--state", tmp_path / "talk.safetensors"] if named else []
    chat("--context", text, *state, questions="one two\n")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Talk, "ask", stop)
    result = chat(*state)
    assert result.exit_code == 1
    assert ("holds the talk up to its last answer" in result.stderr) is named
    assert ("stopped; nothing was kept" in result.stderr) is not named
    assert ("the talk goes on" in result.stderr) is named


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
    told = said.index("the talk comes to 2,083 tokens, the model was made for 2,048; do not trust")
    assert said.index("2,083 tokens to read") < told < said.index("2,083 tokens seen")
    assert said.count("do not trust") == 1


def test_a_talk_that_outgrows_the_model_is_told_once(chat, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("log line one two\n" * 511)  # 2,044 tokens, and no more than a few beside
    said = chat("--context", path, "--chunk", "2048", questions="one\ntwo\n" * 2).stderr
    told = "the model was made for 2,048; do not trust"
    assert said.count(told) == 1
    first = re.findall(r"([\d,]+) tokens seen", said)[0]
    assert int(first.replace(",", "")) <= 2048  # the text itself was not too long


def test_what_is_not_there_is_named(chat, tmp_path):
    gone = tmp_path / "gone"
    assert f"{gone} holds no model" in chat(model=gone).stderr
    assert f"there is no file {gone}" in chat("--context", gone).stderr
    assert "there is no folder" in chat("--state", gone / "talk").stderr


def test_a_warning_is_a_line_with_flags(capsys):
    with told(), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("kept=0.1 cannot be met", stacklevel=2)
    assert capsys.readouterr().err == "warning: --kept 0.1 cannot be met\n"


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
    assert "name another model" in result.stderr


def test_a_model_whose_numbers_are_not_finite_is_told_in_a_line(chat, text, tmp_path, folder):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.model.layers[1].self_attn.v_proj.weight.data[0] = float("inf")
    model.save_pretrained(tmp_path)
    for part in folder.glob("token*"):
        (tmp_path / part.name).write_bytes(part.read_bytes())
    result = chat("--context", text, model=tmp_path)
    assert result.exit_code == 1
    assert 'not finite; set "dtype" to "float32" in its config.json, or name' in result.stderr


def test_a_state_is_not_begun_anew_and_must_be_whole(chat, text, tmp_path):
    state = tmp_path / "talk.safetensors"
    chat("--context", text, "--state", state)
    assert "leave --context out" in chat("--context", text, "--state", state).stderr
    assert "leave --kept out" in chat("--kept", "0.5", "--state", state).stderr
    state.write_bytes(state.read_bytes()[:-3])
    result = chat("--state", state)
    assert result.exit_code == 1
    assert str(state) in result.stderr


def test_a_state_that_is_no_talk_is_refused(chat, text, tmp_path):
    state = tmp_path / "parser"
    LogParser().save(state)
    for wrong, why in ((text, "it is another kind of file"), (state, "it holds a log parser")):
        result = chat("--context", text, "--state", wrong)
        assert result.exit_code == 1
        assert f"{wrong} is no saved talk: {why}" in result.stderr


def test_a_new_talk_is_told_and_a_short_one_costs_more(chat, tmp_path):
    state = tmp_path / "talk"
    said = chat("--state", state, questions="one\n").stderr
    assert f"a new talk begins; it will be kept in {state}" in said
    assert "kB more than a full cache holds" in said
    assert "a new talk" not in chat("--state", state, questions="one\n").stderr


def test_care_is_taken_when_asked_for_and_kept_in_the_state(chat, text, tmp_path):
    from distinctkv.hf import CAREFUL

    state = tmp_path / "talk"
    assert chat("--careful", "--context", text, "--state", state).exit_code == 0
    _, held = snapshot.load(state, TALK)
    assert held["plan"]["care"] == asdict(CAREFUL)
    assert "leave --careful out" in chat("--careful", "--state", state).stderr
