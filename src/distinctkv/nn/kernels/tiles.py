"""How the copy engine takes a table."""

from __future__ import annotations

from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


def tiles(table: Tensor, height: int) -> TensorDescriptor:
    """A table (N, L, D) as rows, to be taken ``height`` at a time."""
    width = table.shape[2]
    return TensorDescriptor.from_tensor(table.view(-1, width), [height, width])
