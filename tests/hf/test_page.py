"""The page and the example run, with a tiny model in place of a real one."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


BLOCK = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_page_runs(tiny, tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs/do/generate.md"
    loading, *blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert "from_pretrained" in loading
    names = {"model": tiny, "tokenizer": tokenizer}
    for code in blocks:
        exec(compile(code, str(page), "exec"), names)
    assert "tokens in" in capsys.readouterr().out


def test_the_tutorial_and_the_example_of_what_is_kept_run(tiny, tokenizer, tmp_path, capsys):
    text = "the cache grows with what is new in a text\n" * 30
    for part in (tiny, tokenizer):
        part.save_pretrained(tmp_path)
    [code] = BLOCK.findall((ROOT / "docs/learn/language_model.md").read_text(encoding="utf-8"))
    with torch.no_grad():
        exec(compile(code, "tutorial", "exec"), {"folder": tmp_path, "text": text})
    assert "tokens in" in capsys.readouterr().out
    (tmp_path / "text").write_text(text, encoding="utf-8")
    main = runpy.run_path(str(ROOT / "examples/kept.py"))["main"]
    main([str(tmp_path), str(tmp_path / "text"), "--json", str(tmp_path / "rows")])
    [row] = json.loads((tmp_path / "rows").read_text(encoding="utf-8"))
    assert row["tokens"] == 300
    assert 0 < row["kept"] < 1
    assert row["bytes"] > 0


TEMPLATE = "{% for m in messages %}what {{ m.content }}{% endfor %} text"


@pytest.fixture
def example(tiny, tokenizer, tmp_path):
    """The example, asked about a file."""

    def ask(content, template):
        tokenizer.chat_template = template
        tiny.save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        (tmp_path / "text").write_bytes(content)
        main = runpy.run_path(str(ROOT / "examples/generate.py"))["main"]
        with torch.enable_grad():
            main([str(tmp_path / "model"), str(tmp_path / "text"), "what is new", "--tokens", "3"])

    return ask


@pytest.mark.parametrize(("template", "n_tokens"), [(None, 303), (TEMPLATE, 305)])
def test_the_example_runs_in_the_frame_of_the_model(example, capsys, template, n_tokens):
    example(b"the cache grows with what is new in a text\n" * 30, template)
    said = capsys.readouterr().out
    assert said.startswith(f"reading {n_tokens} tokens")
    assert f"\n{n_tokens - 1} tokens in" in said  # the last is left to generate
    assert len(said.splitlines()) == 4


@pytest.mark.parametrize("absent", ["torch", "transformers"])
def test_without_the_extra_the_example_says_so_in_one_line(monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(SystemExit, match="hf"):
        runpy.run_path(str(ROOT / "examples/generate.py"))
