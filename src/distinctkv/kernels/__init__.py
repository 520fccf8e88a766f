"""Triton kernels: one operation a file, each with a torch reference in `nn` or `hf`."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING

from .limits import WIDEST, WIDTHS

if TYPE_CHECKING:
    from torch import Tensor


def available(*tensors: Tensor) -> bool:
    """Whether Triton can run on these: all on a CUDA device, and Triton installed.

    Warns once where only Triton is missing.

    >>> import torch
    >>> available(torch.zeros(2))
    False
    """
    return all(tensor.is_cuda for tensor in tensors) and installed()


def takes(operation: str, *tensors: Tensor) -> bool:
    """Whether the kernel of an operation of `hf` does this: `available`, and no row is too long.

    >>> import torch
    >>> takes("read", torch.zeros(2, 64))
    False
    """
    most = WIDEST.get(operation, inf)
    return available(*tensors) and all(tensor.shape[-1] <= most for tensor in tensors)


def chosen(impl: str, *tensors: Tensor) -> bool:
    """Whether a kernel does this and not torch: one decision for all of `nn`.

    Kernels take tensors on CUDA with Triton installed, of at most 32 bits, whose last axis is one
    of `limits.WIDTHS`. ``impl`` is ``torch`` for never, ``triton`` for an error without Triton.

    >>> import torch
    >>> chosen("auto", torch.zeros(2, 64))
    False
    """
    if impl == "torch" or (impl == "auto" and not available(*tensors)):
        return False
    if not installed():
        raise ImportError("impl='triton' needs Triton; it comes with torch for CUDA")
    return all(t.dtype.itemsize <= 4 and t.shape[-1] in WIDTHS for t in tensors)


@cache
def installed() -> bool:
    """Whether a Triton that has tensor descriptors is installed; warns once if not."""
    if find_spec("triton") and find_spec("triton.tools.tensor_descriptor"):
        return True
    warnings.warn(
        "Triton 3.4 or newer is not installed: slots are searched and read by PyTorch, which is "
        "slower and synchronises with the GPU",
        stacklevel=3,
    )
    return False


def placed(n_features: int) -> int:
    """Features before the place: heads have an even number, so that one more is a place.

    >>> placed(128), placed(129)
    (128, 128)
    """
    return n_features - n_features % 2 if n_features > 1 else n_features
