"""The documentation runs, and shows what it prints."""

import doctest
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ROOMS = "learn", "do", "understand"
PAGES = [ROOT / "README.md"]
PAGES += sorted(page for room in ROOMS for page in (DOCS / room).glob("*.md"))
NOVEL = "english_novels_100/Stevenson_Treasure_1883.txt"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages = load("pages")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_prints_what_it_shows(page, tmp_path):
    assert pages.run(page, tmp_path) == []


@pytest.mark.slow
def test_the_layer_of_the_tutorial_recalls_everything(tmp_path):
    assert pages.run(DOCS / "learn/layer.md", tmp_path, slow=True) == []


@pytest.mark.slow
@pytest.mark.data
def test_the_tutorial_of_a_language_model_runs(tmp_path, monkeypatch):
    from benchmarks.llm.model import find
    from examples.app_log import main

    archive = Path(os.environ.get("DISTINCTKV_DATA", "")) / "text/english_novels_100.tar.xz"
    model = find()
    if model is None or not archive.is_file():
        pytest.skip("needs the model (python -m benchmarks.llm.fetch) and the novels")
    monkeypatch.setenv("MODEL", str(model))
    with tarfile.open(archive) as novels:
        (tmp_path / "novel.txt").write_bytes(novels.extractfile(NOVEL).read())
    with (tmp_path / "app.log").open("w") as log:
        main(file=log)
    assert pages.run(DOCS / "learn/language_model.md", tmp_path, available=["smollm2"]) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_a_figure_or_what_is_printed(page):
    text = page.read_text(encoding="utf-8")
    assert re.search(r'^!\[|^```console|^```text title="Output', text, re.MULTILINE)


def test_the_examples_of_the_runner_hold():
    assert doctest.testmod(pages).attempted == 2
    assert doctest.testmod(pages).failed == 0


def test_a_page_that_shows_something_else_is_found(tmp_path):
    page = tmp_path / "page.md"
    shown = '```python\nprint(1)\nprint(2)\n```\n\n```text title="Output"\n1\n3\n```\n'
    page.write_text(shown + "\n```console\n$ echo a > b\n$ cat b\nc\n```\n")
    found = pages.run(page, tmp_path)
    assert [one.printed for one in found] == ["1\n2\n", "$ echo a > b\n$ cat b\na\n"]
    pages.write(page, found)
    assert pages.run(page, tmp_path) == []


@pytest.mark.parametrize("rest", ["```python\n```\n", ""])
def test_a_page_shows_all_that_is_printed(rest, tmp_path):
    (tmp_path / "page.md").write_text(f"```python\nprint(1)\n```\n{rest}")
    with pytest.raises(AssertionError, match="does not show"):
        pages.run(tmp_path / "page.md", tmp_path)


def test_pages_made_from_the_code_and_all_others_are_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    made = load("generate").pages()
    assert all("# " in text for text in made.values())
    written = [page.relative_to(DOCS).as_posix() for page in PAGES[1:]]
    for page in [*(f"look-up/{name}" for name in made), *written]:
        assert page in contents


@pytest.mark.parametrize("page", [*PAGES, DOCS / "index.md"], ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files_of_the_checkout(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    made = DOCS / "look-up"  # by `make docs`; a checkout does not have it
    for path in (Path(os.path.normpath(page.parent / link)) for link in links):
        assert path.exists(), path
        assert made not in path.parents, path


def test_the_site_builds_without_a_broken_link():
    for command in (["docs/generate.py"], ["-m", "zensical", "build", "--clean", "--strict"]):
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


def test_every_figure_is_drawn_by_the_code_and_shown():
    drawn = {*load("figures").FIGURES, "recall"}  # a study draws that one
    assert {path.stem for path in (DOCS / "figures").glob("*.svg")} == drawn
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name in drawn if f"figures/{name}.svg" not in texts] == []
