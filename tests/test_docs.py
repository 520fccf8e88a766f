"""The documentation runs, and the pages made from the code are up to date."""

import importlib.util
from pathlib import Path

import pytest

from tests.test_readme import blocks

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted([*(DOCS / "learn").glob("*.md"), *(DOCS / "do").glob("*.md")])
PAGES.append(DOCS / "look-up" / "peers.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for line, code in blocks(page.read_text(encoding="utf-8")):
        exec(compile("\n" * line + code, str(page), "exec"), names)


@pytest.fixture
def generate():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_made_from_the_code_are_up_to_date(generate):
    for page, write in generate.PAGES.items():
        found = (DOCS / "look-up" / page).read_text(encoding="utf-8")
        assert found == write(), f"run python docs/generate.py: {page} is out of date"


def test_pages_made_from_the_code_are_found(generate):
    for contents in (DOCS / "index.md", DOCS.parent / "mkdocs.yml"):
        told = contents.read_text(encoding="utf-8")
        assert [page for page in generate.PAGES if f"look-up/{page}" not in told] == []
