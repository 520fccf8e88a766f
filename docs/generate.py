"""Write the pages that are made from the code: `python docs/generate.py`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

import distinctkv
from distinctkv.cli import main

SHELF = Path(__file__).parent / "look-up"
OF_GATES = (".gates",)  # modules
# What trains and is not imported from `distinctkv.nn` itself: names by module, under headings.
MORE = {
    "More of gates": {"nn.gates": ("decided", "Score", "Fit", "score")},
    "Training": {
        "nn.train": (
            *("train", "Step", "Learner", "recall", "sweep", "Captured"),
            *("Watch", "Ramp", "CollapseWarning", "set_tau", "distinct_layers"),
        ),
        "nn.mixer": ("ModelState",),
        "nn.checkpoint": ("save", "load"),
    },
    "Baselines on the same layer": {"nn.baselines": ("KVMAttention", "OVQAttention")},
    "With transformers": {
        "hf.modeling_hybrid": (
            *("HybridConfig", "HybridForCausalLM", "HybridCache"),
            *("make_mixer", "make_gate"),
        ),
    },
}
# Of `distinctkv.hf` what comes before the errors, and what only models call.
FIRST = (
    "distinct_cache",
    "DistinctCache",
    "MergePolicy",
    "FAST",
    "captured",
    "calibrate",
    "Metric",
)
OF_MODELS = ("attend", "finish", "fix_frequencies", "same_frequencies", "share", "update")
BESIDE = {
    "What a cache holds": {"hf.summary": ("Summary",)},
}


def api() -> str:
    """Every public name with its signature and docstring."""
    parts = ["# Python", "Made from the docstrings. Everything here is imported from `distinctkv`."]
    return "\n\n".join(parts + names(distinctkv)) + "\n"


def layers() -> str:
    """The same for what trains: layers, gates, training, functions on tensors."""
    from distinctkv import nn
    from distinctkv.nn import functional

    parts = ["# Layers that train", "Made from the docstrings. The first are in `distinctkv.nn`."]
    gates = [name for name in nn.__all__ if getattr(nn, name).__module__.endswith(OF_GATES)]
    parts += names(nn, [name for name in nn.__all__ if name not in gates])
    parts += [
        "# Gates",
        "In `distinctkv.nn` too. Which is for what: [Gates](../do/train.md#gates).",
    ]
    parts += names(nn, gates)
    parts += headed(MORE)
    parts += ["# Functions on tensors", "These are in `distinctkv.nn.functional`."]
    return "\n\n".join(parts + names(functional)) + "\n"


def caches() -> str:
    """The same for the cache of transformers."""
    from distinctkv import hf

    parts = ["# A cache for transformers", f"Made from the docstrings. {inspect.getdoc(hf)}"]
    parts.append(
        "The first are in `distinctkv.hf`; [Generate](../do/generate.md) shows their use. A "
        "`DistinctCache` is a `Cache` of transformers: its `get_seq_length()` is tokens, not slots."
    )
    parts += names(hf, [*FIRST, *(name for name in hf.__all__ if name not in FIRST)])
    return "\n\n".join(parts + headed(BESIDE)) + "\n"


def used() -> str:
    """The same for what is made of the rule: parsers, finders of repeats, building in shards."""
    from distinctkv import dedup, logs, scale

    parts = ["# Streams and shards", f"Made from the docstrings. {inspect.getdoc(logs)}"]
    parts += ["In `distinctkv.logs`.", *names(logs), "In `distinctkv.dedup`.", *names(dedup)]
    parts += ["# Shards", f"In `distinctkv.scale`. {inspect.getdoc(scale)}", *names(scale)]
    return "\n\n".join(parts) + "\n"


def headed(headings: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Names by module, under headings, after what is said of the module."""
    parts = []
    for heading, modules in headings.items():
        parts.append(f"# {heading}")
        for place, listed in modules.items():
            module = import_module(f"distinctkv.{place}")
            parts += [f"In `distinctkv.{place}`. {inspect.getdoc(module)}", *names(module, listed)]
    return parts


def names(module: ModuleType, listed: Sequence[str] = ()) -> list[str]:
    """The listed names of a module, or all that are public, and what is said of their methods."""
    parts = []
    for name in listed or module.__all__:
        thing = getattr(module, name)
        parts += [f"## {name}", described(name, thing)]
        for method, member in sorted(members(thing).items()):
            if method.startswith("_") or method in OF_MODELS or not inspect.getdoc(member):
                continue
            if isinstance(member, property):
                parts.append(f"**`{method}`** (property): {inspect.getdoc(member)}")
            elif callable(getattr(thing, method)) and not isinstance(member, type):
                parts.append(f"### {name}.{method}\n\n{described(method, getattr(thing, method))}")
    return parts


def members(thing: object) -> dict[str, object]:
    """Those of a type."""
    return dict(vars(thing)) if isinstance(thing, type) else {}


class Plain(str):
    """An annotation that shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def signature(thing: object) -> str:
    """How a thing is called."""
    if isinstance(thing, type) and issubclass(thing, Exception):
        return "(message)"
    found = inspect.signature(thing)  # type: ignore[arg-type]
    given = [
        p if p.annotation is p.empty else p.replace(annotation=Plain(_told(p.annotation)))
        for p in found.parameters.values()
    ]
    given = [
        p.replace(default=Plain(p.default.__name__))
        if callable(p.default) and p.default is not p.empty
        else p
        for p in given
    ]
    back = found.return_annotation
    known = back not in (found.empty, "None")
    return str(
        found.replace(parameters=given, return_annotation=Plain(back) if known else found.empty)
    )


def _told(annotation: object) -> object:
    """What a named tuple wraps; everything else as it is."""
    return getattr(annotation, "__forward_arg__", annotation)


def described(name: str, thing: object) -> str:
    """A signature in a block, then the docstring, its examples in blocks; a value as it is."""
    if not callable(thing):
        return f"```python\n{name} = {thing!r}\n```"
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


def baselines() -> str:
    """The page of baselines as it is, with its table made anew: a row for each class."""
    sys.path.insert(0, str(SHELF.parents[1]))
    from reproduction import baselines as module

    lines = (SHELF / "peers.md").read_text(encoding="utf-8").splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith("|")]
    rows = [
        "| Baseline | How it works | What it keeps | How it grows | Bytes |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(module.__all__, key=str.casefold):
        card = getattr(module, name).card
        cells = f"`{name}`", card.mechanism, card.keeps, card.growth, card.size
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines[: places[0]], *rows, *lines[places[-1] + 1 :], ""])


PAGES = {
    "api.md": api,
    "streams.md": used,
    "nn.md": layers,
    "hf.md": caches,
    "peers.md": baselines,
    "cli.md": cli,
}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (SHELF / page).write_text(write(), encoding="utf-8")
