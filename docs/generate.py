"""Write the pages that are made from the code and from `results/`: `python docs/generate.py`.

They are not committed: `make docs` writes them into ``docs/look-up`` before it builds the site.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

from distinctkv.cli import main

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "look-up"
# Pages by file: a title, and the modules whose public names they list.
MODULES = {
    "cache.md": ("Cache, policies, snapshots", "distinctkv"),
    "streams.md": (
        "Logs, records, alerts, clusters, shards",
        *("distinctkv.logs", "distinctkv.dedup", "distinctkv.novelty", "distinctkv.clustering"),
        "distinctkv.scale",
    ),
    "nn.md": (
        "Layers that train",
        *("distinctkv.nn", "distinctkv.nn.train", "distinctkv.nn.checkpoint"),
        *("distinctkv.nn.baselines", "distinctkv.nn.functional", "distinctkv.hf.modeling_hybrid"),
    ),
    "hf.md": ("A cache for transformers", "distinctkv.hf"),
}


def api(title: str, *modules: str) -> str:
    """A page of public names with their signatures and docstrings."""
    parts = [f"# {title}", "Made from the docstrings."]
    for name in modules:
        module = import_module(name)
        parts += [f"## {name}", inspect.getdoc(module) or ""]
        for listed in public(module):
            parts += list(entry(listed, getattr(module, listed)))
    return "\n\n".join(parts) + "\n"


def public(module: ModuleType) -> list[str]:
    """What a module lists in ``__all__``, or what is defined in it and has a docstring."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and callable(thing)
        and getattr(thing, "__module__", "") == module.__name__
        and inspect.getdoc(thing)
    ]


def entry(name: str, thing: object) -> Iterator[str]:
    """A heading, what is said of a thing, then its public methods and properties."""
    yield f"### {name}"
    yield described(name, thing)
    if not isinstance(thing, type):
        return
    for method, member in sorted(members(thing).items()):
        if isinstance(member, property):
            yield f"**`{method}`** (property): {inspect.getdoc(member)}"
        else:
            yield f"#### {name}.{method}"
            yield described(method, getattr(thing, method))


def members(thing: type) -> dict[str, object]:
    """Methods and properties of a class and of its bases in this library, with a docstring."""
    found: dict[str, object] = {}
    for base in reversed(thing.__mro__):
        if base.__module__.startswith("distinctkv"):
            found |= vars(base)
    return {
        name: one
        for name, one in found.items()
        if not name.startswith("_")
        and (isinstance(one, property) or inspect.isroutine(one))
        and inspect.getdoc(one)
    }


def described(name: str, thing: object) -> str:
    """A signature in a block, then the docstring with its examples in blocks; a value as it is."""
    if not callable(thing):
        return f"```python\n{name} = {thing!r}\n```"
    return f"```python\n{name}{signature(thing)}\n```\n\n{fenced(inspect.getdoc(thing) or '')}"


def signature(thing: object) -> str:
    """How a thing is called, annotations without quotes."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return "(message)"
    try:
        text = str(inspect.signature(thing))  # type: ignore[arg-type]
    except ValueError:
        return "(...)"
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"<(?:function|class) '?([\w.]+)'?[^>]*>", r"\1", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text).removesuffix(" -> None")
    return re.sub(r"^\(self(?:, )?", "(", text)


def fenced(text: str) -> str:
    """A docstring whose examples stand in fences."""
    lines: list[str] = []
    inside = False
    for line in [*text.splitlines(), ""]:
        starts = line.startswith(">>> ")
        if starts and not inside:
            lines.append("```pycon")
        elif inside and not line.strip():
            lines.append("```")
        inside = starts or (inside and bool(line.strip()))
        lines.append(line)
    return "\n".join(lines).rstrip()


def cli() -> str:
    """The help of every command, and of every command within it."""
    parts = ["# Command line", "What `--help` says."]
    waiting: list[tuple[str, click.Command]] = [("distinctkv", main)]
    while waiting:
        words, command = waiting.pop(0)
        names = ["-h", "--help"]  # as the group says: click keeps those it was first asked with
        with click.Context(
            command, info_name=words, terminal_width=90, help_option_names=names
        ) as context:
            parts.append(f"## {words}\n\n```text\n{command.get_help(context)}\n```")
        if isinstance(command, click.Group):
            inner = [(f"{words} {name}", part) for name, part in command.commands.items()]
            waiting = inner + waiting
    return "\n\n".join(parts) + "\n"


def baselines() -> str:
    """The methods that the studies compare, a row for each."""
    module = import_module("reproduction.baselines")
    lines = [
        "# Baselines",
        "",
        "The methods of the paper's tables and their neighbours, in `reproduction.baselines`. "
        "Each is a memory with `write` and `read`, as the cache is.",
        "",
        "| baseline | how it works | what it keeps | how it grows | bytes |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(module.__all__, key=str.casefold):
        card = getattr(module, name).card
        cells = f"`{name}`", card.mechanism, card.keeps, card.growth, card.size
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def measurements() -> str:
    """All tables in `results/`."""
    parts = [
        "# Measurements",
        "Tables that were printed by the commands named above them, on the day and the machine "
        "named. They are kept in `results/`.",
    ]
    for path in sorted((ROOT / "results").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or "tables" not in found:
            continue
        parts += [
            f"## {found['title']}",
            f"`{found['command']}`, {found['date']}, {found['machine']}",
        ]
        for table in found["tables"]:
            parts += [f"### {table['title']}", drawn(table)]
    return "\n\n".join(parts) + "\n"


def drawn(table: dict[str, list[str]]) -> str:
    """A table in Markdown, or as it was printed."""
    if "text" in table:
        return "\n".join(["```text", *table["text"], "```"])
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def pages() -> dict[str, str]:
    """Each page by its file name."""
    listed = {page: api(*about) for page, about in MODULES.items()}
    return listed | {
        "cli.md": cli(),
        "baselines.md": baselines(),
        "measurements.md": measurements(),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the reproduction is not installed
    FOLDER.mkdir(exist_ok=True)
    for page, text in pages().items():
        (FOLDER / page).write_text(text, encoding="utf-8")
