"""Padding: what may come in, and how it is moved out of the way."""

# B streams, L tokens, E channels

from __future__ import annotations

from math import isfinite

import torch
from torch import Tensor

from .door import check_mask


def checked(x: Tensor, mask: Tensor | None, remembered: bool) -> Tensor:
    """Tokens with 0 for padding; shapes that do not fit and, if remembered, nan are refused."""
    if x.ndim != 3 or not x.is_floating_point():
        raise ValueError(f"tokens must be floats (B, L, E), got {x.dtype} {tuple(x.shape)}")
    check_mask(mask, x)
    if mask is not None:
        x = torch.where(mask[..., None], x, 0)
    looked = remembered and x.is_cpu and not torch.compiler.is_compiling()
    # A finite sum has finite parts, and is had sooner than a look at each of them.
    if looked and not isfinite(x.detach().sum()) and not x.isfinite().all():
        n = int((~x.isfinite()).any(-1).sum())
        raise ValueError(
            f"{n} of {x.shape[0] * x.shape[1]} tokens hold nan or inf, and a state would never "
            "lose them again; it is as it was. Look for them in the weights or in what came before"
        )
    return x


class Packing:
    """Tokens (B, N) moved so that padding comes first; ``mask`` is true for real ones.

    The last ``n`` of the N are those asked for; what stood before them comes from a state.

    >>> packing = Packing(torch.tensor([[True, False, True, False]]), 3)
    >>> moved = packing.moved(torch.tensor([[[5], [0], [6], [0]]]))
    >>> moved.flatten().tolist(), packing.back(moved[:, 1:]).flatten().tolist()
    ([0, 0, 5, 6], [0, 6, 0])
    """

    def __init__(self, mask: Tensor, n: int) -> None:
        self.order = mask.to(torch.uint8).argsort(dim=1, stable=True)
        before = mask.shape[1] - n
        self.place = (self.order.argsort(dim=1)[:, before:] - before).clamp(min=0)
        self.mask = mask.gather(1, self.order)

    def moved(self, tokens: Tensor) -> Tensor:
        """(B, N, ...) in the new order."""
        return _taken(tokens, self.order)

    def back(self, tokens: Tensor) -> Tensor:
        """The last n of the N, moved, where they came from; padding holds anything."""
        return _taken(tokens, self.place)


def _taken(tokens: Tensor, place: Tensor) -> Tensor:
    wide = place.reshape(*place.shape, *[1] * (tokens.ndim - 2))
    return tokens.gather(1, wide.expand(-1, -1, *tokens.shape[2:]))
