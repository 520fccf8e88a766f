"""Write the pages that are made from the code: `python docs/generate.py`."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import click

import distinctkv
from distinctkv.cli import main

SHELF = Path(__file__).parent / "look-up"


def api() -> str:
    """Every public name with its signature and docstring."""
    parts = ["# Python", "Made from the docstrings. Everything here is imported from `distinctkv`."]
    return "\n\n".join(parts + names(distinctkv)) + "\n"


def layers() -> str:
    """The same for what trains: layers and models, then functions on tensors."""
    from distinctkv import nn
    from distinctkv.nn import functional

    parts = ["# Layers that train", "Made from the docstrings. The first are in `distinctkv.nn`."]
    parts += [*names(nn), "# Functions on tensors", "These are in `distinctkv.nn.functional`."]
    return "\n\n".join(parts + names(functional)) + "\n"


def names(module: ModuleType) -> list[str]:
    """Every public name of a module, and what is said of it and of its methods."""
    parts = []
    for name in module.__all__:
        thing = getattr(module, name)
        parts += [f"## {name}", described(name, thing)]
        for method, member in sorted(vars(thing).items() if isinstance(thing, type) else ()):
            if method.startswith("_") or not inspect.getdoc(member):
                continue
            if isinstance(member, property):
                parts.append(f"**`{method}`** (property): {inspect.getdoc(member)}")
            elif callable(getattr(thing, method)):
                parts.append(f"### {name}.{method}\n\n{described(method, getattr(thing, method))}")
    return parts


class Plain(str):
    """An annotation that shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature(thing: object) -> str:
    """How a thing is called."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return "(message)"
    found = inspect.signature(thing)  # type: ignore[arg-type]
    given = [p.replace(annotation=Plain(p.annotation)) for p in found.parameters.values()]
    given = [p.replace(annotation=p.empty) if p.name == "self" else p for p in given]
    back = found.return_annotation
    known = back not in (found.empty, "None")
    return str(
        found.replace(parameters=given, return_annotation=Plain(back) if known else found.empty)
    )


def described(name: str, thing: object) -> str:
    """A signature in a block, then the docstring, its examples in blocks."""
    lines, example = [], False
    for line in (inspect.getdoc(thing) or "").splitlines():
        starts = line.startswith(">>> ")
        if starts and not example:
            lines.append("```pycon")
        elif example and not line.strip():
            lines.append("```")
        example = starts or (example and bool(line.strip()))
        lines.append(line)
    if example:
        lines.append("```")
    return f"```python\n{name}{signature(thing)}\n```\n\n" + "\n".join(lines)


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


PAGES = {"api.md": api, "nn.md": layers, "cli.md": cli}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (SHELF / page).write_text(write(), encoding="utf-8")
