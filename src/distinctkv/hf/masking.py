"""No mask over all tokens of a long text, where what is behind are slots.

transformers makes a mask of all tokens seen for every pass. Our attention needs none while nothing
is padded, and a text in chunks would pay for it in memory and time that grow with its length.
"""

# B streams, L tokens of a pass, T tokens seen before it

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Behind(int):
    """Columns of a mask, T + L, some of which are slots: so its maker knows whose mask it is."""


def mask(*args: Any, **told: Any) -> Tensor | None:  # noqa: ANN401 - what transformers passes on
    """What masks are made by under our name: sdpa's, or None for slots where nothing is padded."""
    from transformers.masking_utils import sdpa_mask

    columns, padding = told.get("kv_length"), told.get("attention_mask")
    if (
        isinstance(columns, Behind)
        and told.get("allow_is_causal_skip")
        and _whole(padding, columns)
    ):
        return None
    made: Tensor | None = sdpa_mask(*args, **told)
    return made


def _whole(padding: Tensor | None, columns: int) -> bool:
    """Whether a 2D mask (B, T + L) hides nothing."""
    if padding is None:
        return True
    return padding.dim() == 2 and padding.shape[1] == columns and bool(padding.all())


def columns(seen: int, length: int, outside: int) -> int:
    """Columns of the mask of a pass, of which the last ``outside`` of the seen are no slots."""
    traced = torch.compiler.is_compiling()
    return seen + length if outside == seen or traced else Behind(seen + length)
