"""Attention over slots and window, registered with transformers; attention that tokens receive."""

# B sequences, H key-value heads, G query heads of each, L queries, R tokens of the window
# D key size, C value size, S slots of all heads

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from .. import kernels
from . import inputs
from .config import NAME, UnsupportedModelError, WrongModelError
from .inputs import visible
from .slots import Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .cache import DistinctCache

ROWS = 256  # queries at a time, so that no matrix of all pairs is held
MIN_SHARE = 1e-3  # attention below this part of an even share counts as this


class KeyHandoff:
    """New keys on the way from a cache through the model to our attention.

    A model whose attention is not ours would read the new keys and miss the slots. Any operation on
    these raises before anything has changed.
    """

    __slots__ = ("cache", "keys")

    def __init__(self, cache: DistinctCache, keys: Tensor) -> None:
        self.cache, self.keys = cache, keys

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__torch_function__()

    @staticmethod
    def __torch_function__(*_: object, **__: object) -> NoReturn:
        raise WrongModelError(
            "this cache was made for another model, or for one whose layers do not all attend by "
            f"{NAME!r}; make a cache with distinct_cache(model)"
        )

    __getitem__ = __setitem__ = __mul__ = __add__ = __matmul__ = __torch_function__


def prepare(model: PreTrainedModel) -> None:
    """Set the attention of a model to ours; with any other cache it is sdpa."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, inputs.make_mask)
    if model.config._attn_implementation != NAME:
        model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not let its attention be set; use a DynamicCache for it"
        )


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | KeyHandoff,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **options: object,
) -> tuple[Tensor, None]:
    """What models call: the cache's attention if it handed over the keys, else sdpa."""
    if not isinstance(key, KeyHandoff):
        out = sdpa(module, query, key, value, attention_mask, dropout=dropout, **options)
        return out, None
    out = key.cache.attend(
        module, query, key.keys, value, attention_mask, dropout=dropout, **options
    )
    return out, None


def sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: object,
) -> Tensor:
    """The sdpa of transformers."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    out: Tensor = sdpa_attention_forward(module, query, key, value, mask, **options)[0]
    return out


def sdpa_mask(mask: Tensor | None, length: int, keys: Tensor) -> Tensor | None:
    """The mask that sdpa needs for the last ``length`` queries of (B, H, T, D) keys.

    ``mask`` is None without padding, (B, T), or (B, 1, L, T) as it is.
    """
    T = keys.shape[2]
    if mask is not None and mask.dim() == 4:
        return mask
    if mask is None and length in (1, T):
        return None  # sdpa's own causal mask
    whole = torch.ones(1, T, dtype=torch.bool, device=keys.device) if mask is None else mask
    return visible(whole, length)[:, None]


def read(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, slots: Slots, scaling: float
) -> tuple[Tensor, Tensor | None]:
    """Attend (B, H G, L, D) queries to slots, and to the (B, H, R, D) window that they end.

    softmax(q k s + log n) over slots of n tokens and the visible window, n = 1. Heads differ in
    length: on a GPU one kernel takes them all, elsewhere each is a call of sdpa. The kernel also
    gives the logsumexp of each query's logits, (B, H G, L).
    """
    if kernel_takes(query, keys, values, slots):
        from ..kernels import ragged_attention

        with torch.cuda.device(query.device):
            return ragged_attention.read(query, keys, values, mask, slots, scaling)
    B, H, R, _ = keys.shape
    G, L = query.shape[1] // H, query.shape[2]
    seen = torch.zeros(B, L, R, device=query.device).masked_fill(~visible(mask, L), -inf)
    # On the CPU a float32 bias is exact beside bfloat16 queries, but not beside float64 ones;
    # kernels elsewhere want one dtype.
    dtype = torch.promote_types(query.dtype, torch.float32) if query.is_cpu else query.dtype
    out = query.new_empty(B, H * G, L, values.shape[-1])
    for b, heads in enumerate(slots.segments()):
        for h, rows in enumerate(heads):
            key = torch.cat((slots.keys[rows], keys[b, h]))
            value = torch.cat((slots.values[rows], values[b, h]))
            logs = slots.counts[rows].float().log()
            bias = torch.cat((logs.expand(L, -1), seen[b]), 1).to(dtype)
            group = slice(h * G, (h + 1) * G)
            # The queries of a group share their keys: as rows of one head nothing is repeated.
            out[b, group] = scaled_dot_product_attention(
                query[b, group].reshape(1, 1, G * L, -1),
                key[None, None],
                value[None, None],
                bias.repeat(G, 1),
                scale=scaling,
            ).view(G, L, -1)
    return out, None


def kernel_takes(query: Tensor, keys: Tensor, values: Tensor, slots: Slots) -> bool:
    """Whether the kernel can read this: on CUDA, with Triton, of one dtype, without gradients."""
    parts = (query, keys, values, slots.keys, slots.values)
    if torch.compiler.is_compiling() or not kernels.takes("read", *parts):
        return False
    if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        return False
    known = (torch.float32, torch.float16, torch.bfloat16)
    return query.dtype in known and all(part.dtype == query.dtype for part in parts)


def read_with_logsumexp(
    query: Tensor, keys: Tensor, values: Tensor, scaling: float
) -> tuple[Tensor, Tensor] | None:
    """Causal attention (B, L, H G, D) and the logsumexp of each query's logits, (B, H G, L).

    None where torch would choose another kernel, or a gradient is wanted.
    """
    B, n_heads, L, D = query.shape
    if not kernels.available(query) or torch.version.hip or not 1 < L == keys.shape[2]:
        return None
    # Flash attention pads other sizes with zeros, which is not done here.
    if torch.compiler.is_compiling() or D % 8 or values.shape[3] != D:
        return None
    if torch.is_grad_enabled() and any(part.requires_grad for part in (query, keys, values)):
        return None
    grouped, given = keys.shape[1] != n_heads, (query, keys, values)
    choice = torch._fused_sdp_choice(
        *given, None, 0.0, is_causal=True, scale=scaling, enable_gqa=grouped
    )
    options: tuple[object, ...]
    if choice == SDPBackend.FLASH_ATTENTION.value:
        call, options = torch.ops.aten._scaled_dot_product_flash_attention, (0.0, True)
    elif choice == SDPBackend.CUDNN_ATTENTION.value:
        call, options = torch.ops.aten._scaled_dot_product_cudnn_attention, (None, True, 0.0, True)
    else:
        return None
    out, logsumexp, *_ = call(*given, *options, scale=scaling)
    return out.transpose(1, 2).contiguous(), logsumexp.reshape(B, n_heads, L)


def attention_received(
    query: Tensor,
    keys: Tensor,
    mask: Tensor,
    seen: Tensor,
    slots: Slots,
    scaling: float,
    logsumexp: Tensor | None = None,
) -> Tensor:
    """Attention that the (B, H, R, D) window received from (B, H G, L, D) queries, (B, H, R).

    Summed over queries, averaged over the heads of a group, each query in units of an even share of
    the ``seen`` (B, L) tokens. The queries' logsumexp (B, H G, L) is used if it is known.
    """
    B, H, R, _ = keys.shape
    G, L = query.shape[1] // H, query.shape[2]
    if kernel_takes(query, keys, keys, slots):
        from ..kernels import ragged_attention

        with torch.cuda.device(query.device):
            return ragged_attention.received(query, keys, mask, seen, slots, scaling, logsumexp)
    received = torch.zeros(B, H, R, dtype=torch.float32, device=query.device)
    for b, heads in enumerate(slots.segments()):
        for h, rows in enumerate(heads):
            key = torch.cat((slots.keys[rows], keys[b, h])).float()
            logs = slots.counts[rows].float().log()
            n_slots = len(key) - R
            group = query[b, h * G : (h + 1) * G].float() * scaling
            for start in range(0, L, ROWS):
                part = slice(start, min(start + ROWS, L))
                end = R - L + part.stop  # the last of these queries sees no further
                logits = group[:, part] @ key[: n_slots + end].mT
                logits[..., :n_slots] += logs
                hidden = ~visible(mask[b : b + 1, :end], part.stop - start)[0]
                logits[..., n_slots:].masked_fill_(hidden, -inf)
                share = logits.softmax(-1)[..., n_slots:].mean(0)
                received[b, h, :end] += (seen * mask[:, R - L :])[b, part].float() @ share
    return received
