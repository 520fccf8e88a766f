"""The language model of the study: where it lies, and how it is loaded."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.data.download import folders

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "smollm2"  # SmolLM2-135M-Instruct
FOLDER = "smollm2-135m-instruct"
FILES = ("config.json", "model.safetensors", "tokenizer.json")


def find() -> Path | None:
    """The folder of the model, in ``$DISTINCTKV_DATA`` or the cache; nothing is fetched."""
    for place in folders():
        if all((place / FOLDER / name).is_file() for name in FILES):
            return place / FOLDER
    return None


def lacking() -> tuple[str, ...]:
    """What a run needs and this machine does not have."""
    wanted = [name for name in ("torch", "transformers") if find_spec(name) is None]
    return tuple(wanted) or (() if find() else (NAME,))


def load(folder: Path, device: str = "cpu", dtype: str = "float32") -> tuple[PreTrainedModel, Any]:
    """Model and tokenizer, from files alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    kind = getattr(torch, dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=kind, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return model.eval().to(device), tokenizer


def described() -> dict[str, str]:
    """What a number depends on besides the code of the studies: the model, and the cache."""
    try:
        reader = version("transformers")
    except PackageNotFoundError:
        reader = "absent"
    folder = find()
    weights = folder / "model.safetensors" if folder else None
    return {
        "model": f"{weights}, {weights.stat().st_size:,} bytes" if weights else "absent",
        "transformers": reader,
        "cache": _digest(),
    }


def _digest() -> str:
    """A digest of ``distinctkv.hf``, whose code the other studies do not depend on."""
    root = Path(str(files("distinctkv"))) / "hf"
    digest = hashlib.sha256()
    for path in sorted(root.glob("**/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
