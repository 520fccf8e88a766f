"""Weights of a model in a safetensors file."""

from __future__ import annotations

import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as unpack
from safetensors.torch import save as pack
from torch import nn

from ..snapshot import SnapshotError, replace


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write all parameters and buffers; a crash leaves either the old file or the new one.

    Weights that two layers share are written for each.
    """
    tensors, held = {}, set()
    for name, tensor in model.state_dict().items():
        there = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if there in held else tensor.contiguous()
        held.add(there)
    replace(Path(path), pack(tensors))


def load(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill a model of the same layers from such a file; nothing changes unless all of it fits."""
    try:
        tensors = unpack(Path(path).read_bytes())
    except SafetensorError as error:
        raise SnapshotError(
            f"{path} is not a whole safetensors file: it is another kind, or damaged ({error})"
        ) from error
    held = model.state_dict()
    if held.keys() != tensors.keys():
        odd = sorted(held.keys() ^ tensors.keys())
        raise ValueError(
            f"{path} holds another model; only one of the two has {', '.join(odd[:4])}"
        )
    for name, tensor in tensors.items():
        if held[name].shape != tensor.shape:
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} in {path} and {tuple(held[name].shape)} in this "
                "model; build it with the sizes it was saved with"
            )
    model.load_state_dict(tensors)
