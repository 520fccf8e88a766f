"""The model that ``distinctkv chat`` talks with, or a line on what is wrong with its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AGAIN = "download it again"
WORDS = ("tokenizer*", "vocab*", "*.tiktoken", "*.spm", "spiece*")  # where tokenizers are kept


def check(folder: Path) -> None:
    """Refuse a folder without a model, before anything is imported that takes long."""
    if not (folder / "config.json").is_file():
        raise click.BadParameter(
            f"{folder} holds no model (no config.json); name a folder that save_pretrained or "
            "hf download NAME --local-dir FOLDER made",
            param_hint="--model",
        )


def load(folder: Path) -> tuple[PreTrainedModel, Any]:
    """Model and tokenizer, from files alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()  # what is wrong is told below, in a line
    logging.disable_progress_bar()
    local: dict[str, Any] = {"local_files_only": True}
    # Weights are never unpickled; those of another shape are told with those that are not there.
    safe = {"dtype": "auto", "use_safetensors": True, "ignore_mismatched_sizes": True}
    try:
        with whole(folder, "tokenizer"):
            tokenizer = AutoTokenizer.from_pretrained(folder, **local)
        with whole(folder, "weights"):
            model, found = AutoModelForCausalLM.from_pretrained(
                folder, **local, **safe, output_loading_info=True
            )
    finally:
        logging.set_verbosity(before)
    _check(folder, sorted({*found["missing_keys"], *(one[0] for one in found["mismatched_keys"])}))
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer


def _check(folder: Path, absent: list[str]) -> None:
    if absent:
        raise click.ClickException(
            f"{folder} lacks weights that its config.json speaks of ({len(absent):,}, first "
            f"{absent[0]}); {AGAIN}"
        )


@contextmanager
def whole(folder: Path, what: str) -> Iterator[None]:
    """Say in a line which file of a model is damaged or absent."""
    try:
        yield
    # Whatever it is: transformers, tokenizers and safetensors each raise errors of their own.
    except Exception as error:
        known = next(faults(folder), None)
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise click.ClickException(
            known or f"the {what} of {folder} cannot be loaded ({first}); {AGAIN}, or name another"
        ) from error


def faults(folder: Path) -> Iterator[str]:
    """What is wrong with the files of a model, as far as it can be seen without loading it."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob("*.json")):
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            yield f"{path} is damaged ({error}); {AGAIN}"
            continue
        if path.name == "config.json" and not isinstance(held, dict):
            yield f"{path} is damaged (a {type(held).__name__}, not an object); {AGAIN}"
        for name in _shards(held):
            if not (folder / name).is_file():
                yield f"{folder} lacks {name}, which {path.name} names; {AGAIN}"
    if not any(path for pattern in WORDS for path in folder.glob(pattern)):
        yield f"{folder} holds no tokenizer (no tokenizer.json); {AGAIN}, with its tokenizer"
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        yield f"{folder} holds no *.safetensors; download them (pickled weights are never read)"
    for path in weights:
        try:
            with safe_open(path, framework="np"):
                pass
        except (OSError, SafetensorError) as error:
            yield f"{path} is damaged, or was downloaded in part ({error}); {AGAIN}"


def _shards(held: object) -> list[str]:
    """The files that an index of weights names."""
    named = held.get("weight_map") if isinstance(held, dict) else None
    return sorted({*map(str, named.values())}) if isinstance(named, dict) else []
