"""The law on tensors: exact squared distances, and how far a fast product may be from them."""

from __future__ import annotations

import torch
from torch import Tensor

FURTHEST = 2.0  # novelty of opposite keys, and of anything in an empty memory
LENGTHS = (0.9, 1.1)  # a key may be as short or as long as this: bfloat16 keys are unit to 0.4 %


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Squared distances of rows as `distinctkv.rule.distances`: float64, summed left to right.

    >>> squared(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([25.], dtype=torch.float64)
    """
    gaps = a.double() - b.double()
    squares = gaps * gaps
    if squares.device.type == "cpu":
        return squares.cumsum(-1)[..., -1]
    total = squares[..., 0]  # a scan on other devices adds in another order
    for d in range(1, squares.shape[-1]):
        total = total + squares[..., d]
    return total


def halves(rows: Tensor) -> Tensor:
    """Half of each row's squared length."""
    lengths: Tensor = torch.linalg.vecdot(rows, rows)
    return lengths / 2


def error(width: int, dtype: torch.dtype) -> float:
    """What ``|k|^2/2 - x.k + |x|^2/2`` may be off by, for rows no longer than 1.1.

    A sum of n terms is off by at most n roundings of the sum of their sizes. That is 1.1^2 for the
    product and half of it for each length, one of which goes through the product's sum once more.
    """
    return 3.25 * (width + 16) * torch.finfo(dtype).eps / 2


def product_type(rows: Tensor) -> torch.dtype:
    """The type in which a product keeps its promise of accuracy.

    Where the hardware may round float32 factors (TF32, bfloat16) the product is taken in float64.
    """
    try:
        full = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # settings of two kinds were mixed, and torch will not say which holds
        full = False
    return rows.dtype if full else torch.float64
