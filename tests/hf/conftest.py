"""A tiny model and a text that repeats itself; without transformers there is nothing to test."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

collect_ignore_glob = [] if find_spec("torch") and find_spec("transformers") else ["test_*.py"]


@pytest.fixture(scope="session")
def tiny(seed):
    """One Llama for all tests that leave it as it is."""
    from tests.hf.models import build

    return build(seed)


@pytest.fixture
def text(seed):
    """One stream of 120 tokens: 20 lines, of which 4 are distinct."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    lines = torch.randint(2, 64, (4, 6), generator=generator)
    order = torch.randint(0, 4, (20,), generator=generator)
    return lines[order].reshape(1, -1)


@pytest.fixture
def tokenizer():
    """One that knows 63 words of the page and the example."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    page = (ROOT / "docs/do/generate.md").read_text(encoding="utf-8")
    words = dict.fromkeys(["<unk>", *re.findall(r"\w+|[^\w\s]+", page)])
    known = {word: index for index, word in enumerate(list(words)[:64])}
    inner = Tokenizer(WordLevel(known, unk_token="<unk>"))
    inner.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", model_input_names=["input_ids", "attention_mask"]
    )


@pytest.fixture(autouse=True)
def no_grad():
    import torch

    with torch.no_grad():
        yield
