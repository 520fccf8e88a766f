"""Attention of a text that nothing came before, with the sums that its shares are divided by.

It is the kernel that torch's `scaled_dot_product_attention` would choose, flash or cuDNN's; called
by name it also gives the logarithm of each query's sum. Without that, `receiving` needs a pass over
all pairs to find it.
"""

# B streams, H key-value heads, G query heads of each, L queries, D key and value size

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from .. import kernels


def read_with_logsumexp(
    query: Tensor, keys: Tensor, values: Tensor, scaling: float
) -> tuple[Tensor, Tensor] | None:
    """Values (B, L, H G, D) that each query sees, and logarithms of its sum, (B, H G, L).

    None where torch would choose another kernel, or a gradient is wanted.
    """
    B, n_heads, L, D = query.shape
    if not kernels.available(query) or torch.version.hip or not 1 < L == keys.shape[2]:
        return None
    # Flash takes other sizes with zeros behind, which is not done here.
    if torch.compiler.is_compiling() or D % 8 or values.shape[3] != D:
        return None
    if torch.is_grad_enabled() and any(part.requires_grad for part in (query, keys, values)):
        return None
    grouped, given = keys.shape[1] != n_heads, (query, keys, values)
    choice = torch._fused_sdp_choice(
        *given, None, 0.0, is_causal=True, scale=scaling, enable_gqa=grouped
    )
    how: tuple[object, ...]
    if choice == SDPBackend.FLASH_ATTENTION.value:
        call, how = torch.ops.aten._scaled_dot_product_flash_attention, (0.0, True)
    elif choice == SDPBackend.CUDNN_ATTENTION.value:
        call, how = torch.ops.aten._scaled_dot_product_cudnn_attention, (None, True, 0.0, True)
    else:
        return None
    out, logs, *_ = call(*given, *how, scale=scaling)
    return out.transpose(1, 2).contiguous(), logs.reshape(B, n_heads, L)
