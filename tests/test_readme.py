"""The code in the README runs, top to bottom, as one program."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """Each python block with the line it starts on."""
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in BLOCK.finditer(text)]


@pytest.mark.skipif(not README.exists(), reason="there is no README.md")
def test_the_readme_runs(tmp_path, monkeypatch):
    found = blocks(README.read_text(encoding="utf-8"))
    assert found, "README.md shows no python"
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "readme"}
    for line, code in found:
        # Blank lines in front make a traceback name the line of the README.
        exec(compile("\n" * line + code, str(README), "exec"), names)


def test_a_block_knows_its_line():
    assert blocks("# Title\n\n```python\nx = 1\n```\n```text\nno\n```\n") == [(3, "x = 1\n")]
