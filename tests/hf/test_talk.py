"""A text that was left in the middle, in a talk that is still there."""

import pytest
import torch

from distinctkv.hf import distinct_cache
from distinctkv.hf.talk import Talk

TEXT = "a log of some lines " * 10


class Letters:
    """A token for each letter, and one before all."""

    chat_template = eos_token_id = None

    def __call__(self, text, return_tensors, add_special_tokens):
        letters = [2 + ord(letter) % 60 for letter in text]
        return {"input_ids": torch.tensor([[1] * add_special_tokens + letters])}

    def decode(self, tokens, skip_special_tokens):
        return "".join(chr(97 + token % 26) for token in tokens)


@pytest.fixture
def talk(tiny):
    return lambda: Talk(tiny, Letters(), distinct_cache(tiny, threshold=1.0))


def leave(talk):
    """Read the first 50 tokens of the text."""
    steps = talk.read(TEXT, 50)
    assert next(steps)[0] == 0
    assert next(steps)[0] == 50


def test_a_second_text_that_was_left_is_read_on_from_its_own_start(talk):
    whole, left = talk(), talk()
    for one in (whole, left):
        list(one.read("something before it", 50))
    list(whole.read(TEXT, 50))
    leave(left)
    assert next(left.read(TEXT, 50))[0] == 50
    list(left.read(TEXT, 50))
    assert left.cache.get_seq_length() == whole.cache.get_seq_length()


def test_a_text_that_was_left_for_a_question_is_left_for_good(talk):
    left = talk()
    leave(left)
    list(left.ask("why", 3))
    assert left.cache.get_seq_length() == 50 + len("why") + 1 + 3
    leave(left)
