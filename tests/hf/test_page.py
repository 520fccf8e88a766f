"""The page and the example run, with a tiny model in place of a real one."""

import re
import runpy
from pathlib import Path

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


def test_the_example_runs(tiny, tokenizer, tmp_path, capsys):
    tiny.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "text").write_text("the cache grows with what is new in a text\n" * 30)
    example = runpy.run_path(str(ROOT / "examples/generate.py"))
    with torch.enable_grad():
        example["main"](
            [str(tmp_path / "model"), str(tmp_path / "text"), "what is new", "--tokens", "3"]
        )
    said = capsys.readouterr().out
    assert "layer   2 |" in said
    assert len(said.splitlines()) == 6
