"""A tiny random model with a tokenizer of a few words, and a way to talk with it."""

import pytest
from click.testing import CliRunner

from distinctkv import cli

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
