"""The places whose logits a model is asked for, looked at before any state changes."""

# B streams, L tokens, A places of each stream

from __future__ import annotations

import torch
from torch import Tensor

from .door import readable

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_places(at: Tensor, tokens: Tensor) -> None:
    """Refuse places (B, A) that are none of tokens (B, L); elsewhere than on the CPU torch does."""
    B, L = tokens.shape
    if at.dtype not in WHOLE or at.ndim != 2 or len(at) != B:
        raise ValueError(
            f"at must be whole numbers ({B}, A), the places of each stream, got {at.dtype} "
            f"{tuple(at.shape)}; for the same of all streams expand them"
        )
    if readable(at) and at.numel() and not 0 <= int(at.min()) <= int(at.max()) < L:
        raise ValueError(
            f"at must be places 0 to {L - 1} of {L} tokens, got {int(at.min())} to {int(at.max())}"
        )
