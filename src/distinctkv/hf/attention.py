"""Attention over slots and window, registered with transformers; attention that tokens receive."""

# B sequences, H key-value heads, G query heads of each, L queries, R tokens outside, D key size

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from .. import kernels
from . import inputs
from .config import NAME, Care, UnsupportedModelError, WrongModelError
from .slots import Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .cache import DistinctCache


# B streams, H key-value heads, G query heads of each, L queries, R tokens outside, N slots


WIDEST = 256  # keys and values of more numbers do not fit the kernel's tiles


class Handed:
    """Keys that a cache hands to our attention, which models take for a tensor on the way.

    A model that was never prepared has an attention of its own, which would read the new keys and
    miss the rest. Whatever it does with these is refused, before anything has changed; but their
    shape may be looked at, as kvpress does around every attention once it is imported, and is that
    of all tokens so far.
    """

    __slots__ = ("cache", "keys", "shape")

    def __init__(self, cache: DistinctCache, keys: Tensor, before: int) -> None:
        self.cache, self.keys = cache, keys
        B, H, L, D = keys.shape
        self.shape = torch.Size((B, H, before + L, D))

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse a look at anything else."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.__torch_function__()

    @staticmethod
    def __torch_function__(*_: object, **__: object) -> NoReturn:
        """Refuse to be multiplied, or what else it may be."""
        raise WrongModelError(
            "this cache was made for another model, or for one of which a layer no longer attends "
            f"by {NAME!r}, or attends with the mask of a press of kvpress; make a cache with "
            "distinct_cache(model), and a DynamicCache for a press"
        )

    __getitem__ = __setitem__ = __mul__ = __add__ = __matmul__ = __torch_function__


def prepare(model: PreTrainedModel) -> None:
    """Tell a model to attend through us; with any other cache this is sdpa."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, inputs.mask)
    if model.config._attn_implementation != NAME:
        model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise UnsupportedModelError(
            f"{type(model).__name__} does not let its attention be set; use a DynamicCache for it"
        )


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor | Handed,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    **options: object,
) -> tuple[Tensor, None]:
    """What models call: by way of the cache if the keys come from one of ours, else sdpa."""
    if not isinstance(key, Handed):
        return registered(module, query, key, value, attention_mask, dropout=dropout, **options)
    out: Tensor = key.cache.attend(
        module, query, key.keys, value, attention_mask, dropout=dropout, **options
    )
    return out, None


def registered(*args: object, **options: object) -> tuple[Tensor, None]:
    """What goes by the name of sdpa: kvpress puts the masks of its presses around it."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    out: tuple[Tensor, None] = ALL_ATTENTION_FUNCTIONS["sdpa"](*args, **options)
    return out


def stock(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    **options: object,
) -> tuple[Tensor, None]:
    """The sdpa of transformers."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    out: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, mask, **options)
    return out


def visible(real: Tensor, length: int) -> Tensor:
    """Whether query l of ``length`` sees column r of the window that it ends, (B, L, R).

    Padding sees itself, so that no row of the softmax is empty; nobody sees it.
    """
    R = real.shape[1]
    columns = torch.arange(R, device=real.device)
    rows = columns[R - length :, None]
    return ((columns <= rows) & real[:, None]) | (columns == rows)


def bias(counts: Tensor, cap: float | None) -> Tensor:
    """What is added to the logit of a slot of n tokens: log n, so that it counts n times."""
    return counts.float().clamp(min=1, max=cap).log()


def read(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    real: Tensor,
    slots: Slots,
    scaling: float,
    cap: float | None = None,
) -> Tensor:
    """Attend (B, H G, L, D) queries to slots, and to the (B, H, R, D) window that they end.

    A slot of n tokens counts n times, up to a cap. Heads differ in length and nothing is padded: on
    a GPU one kernel takes them all, elsewhere each goes by itself.
    """
    if takes(query, keys, values, slots):
        from ..kernels import ragged_attention

        with torch.cuda.device(query.device):
            return ragged_attention.read(query, keys, values, real, slots, scaling, cap)
    return read_by_head(query, keys, values, real, slots, scaling, cap)


def takes(query: Tensor, keys: Tensor, values: Tensor, slots: Slots) -> bool:
    """Whether the kernel can read this: on CUDA, with Triton, in one type, without gradients."""
    if torch.compiler.is_compiling() or not kernels.available(query):
        return False
    parts = (query, keys, values, slots.keys, slots.values)
    if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        return False
    kinds, sizes = {part.dtype for part in parts}, {part.shape[-1] for part in parts}
    known = (torch.float32, torch.float16, torch.bfloat16)
    return len(kinds) == 1 and query.dtype in known and max(sizes) <= WIDEST


def read_by_head(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    real: Tensor,
    slots: Slots,
    scaling: float,
    cap: float | None,
) -> Tensor:
    """The same, one head after the other."""
    B, H, R, _ = keys.shape
    G, L = query.shape[1] // H, query.shape[2]
    seen = torch.zeros(B, L, R, device=query.device).masked_fill(~visible(real, L), -inf)
    logs = bias(slots.counts, cap)
    # On the CPU a bias may stay float32 beside bfloat16 queries, but not beside float64 ones, which
    # come out wrong; kernels elsewhere want one type.
    kind = torch.promote_types(query.dtype, torch.float32) if query.is_cpu else query.dtype
    out = query.new_empty(B, H * G, L, values.shape[-1])
    for b, heads in enumerate(slots.segments()):
        for h, rows in enumerate(heads):
            key = torch.cat((slots.keys[rows], keys[b, h]))
            value = torch.cat((slots.values[rows], values[b, h]))
            added = torch.cat((logs[rows].expand(L, -1), seen[b]), 1).to(kind)
            group = slice(h * G, (h + 1) * G)
            # The queries of a group share their keys: as rows of one head nothing is repeated.
            rows_of = query[b, group].reshape(1, 1, G * L, -1)
            out[b, group] = scaled_dot_product_attention(
                rows_of, key[None, None], value[None, None], added.repeat(G, 1), scale=scaling
            ).view(G, L, -1)
    return out


# B streams, H key-value heads, G query heads of each, L queries, D key and value size


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


# B streams, H key-value heads, G query heads of each, L queries, R tokens outside, N slots


ROWS = 256  # queries at a time, so that no matrix of all pairs is held
LEAST = 1e-3  # attention below this part of an even share counts as this


def received(
    query: Tensor,
    keys: Tensor,
    real: Tensor,
    seen: Tensor,
    slots: Slots,
    scaling: float,
    cap: float | None,
    logs: Tensor | None = None,
) -> Tensor:
    """Attention that each of the (B, H, R, D) window got from (B, H G, L, D) queries, (B, H, R).

    It is summed over the queries and meant over the heads that share a key, each query's attention
    in units of an even share: ``seen`` (B, L) says of how many tokens. Padding is not ``real``. The
    logarithms of what the queries' shares are divided by, (B, H G, L), need not be known.
    """
    B, H, R, _ = keys.shape
    G, L = query.shape[1] // H, query.shape[2]
    if takes(query, keys, keys, slots):
        from ..kernels import ragged_attention

        with torch.cuda.device(query.device):
            return ragged_attention.received(query, keys, real, seen, slots, scaling, cap, logs)
    got = torch.zeros(B, H, R, dtype=torch.float32, device=query.device)
    added = bias(slots.counts, cap)
    for b, heads in enumerate(slots.segments()):
        for h, rows in enumerate(heads):
            key = torch.cat((slots.keys[rows], keys[b, h])).float()
            n_slots = len(key) - R
            group = query[b, h * G : (h + 1) * G].float() * scaling
            for start in range(0, L, ROWS):
                part = slice(start, min(start + ROWS, L))
                end = R - L + part.stop  # what comes after the last of these they cannot see
                logits = group[:, part] @ key[: n_slots + end].mT
                logits[..., :n_slots] += added[rows]
                hidden = ~visible(real[b : b + 1, :end], part.stop - start)[0]
                logits[..., n_slots:].masked_fill_(hidden, -inf)
                share = logits.softmax(-1)[..., n_slots:].mean(0)
                got[b, h, :end] += (seen * real[:, R - L :])[b, part].float() @ share
    return got


def weights(
    got: Tensor,
    asked: Tensor,
    care: Care,
    rest: Tensor | None = None,
    before: Tensor | float = 0.0,
) -> Tensor:
    """By what to multiply the distances of (..., H, L) tokens that ``asked`` (..., L) queries saw.

    Infinite for a token that is spared; of (..., H, L) tokens that are not the ``rest``, none is.
    As many are spared as of the rest and (...) tokens of all heads ``before`` them would be, less
    what was spared of those: in small passes the part is met too.

    >>> got = torch.tensor([[8.0, 1.0, 2.0]])
    >>> weights(got, torch.tensor([2, 1, 2]), Care(importance=0.5, spare=0.1))
    tensor([[inf, 1., 1.]])
    """
    mean = (got / asked.clamp(min=1)[..., None, :]).clamp(min=LEAST)
    heavy = mean**care.importance
    if not care.spare:
        return heavy
    rest = torch.ones_like(mean, dtype=torch.bool) if rest is None else rest
    before = torch.as_tensor(before, dtype=torch.float64, device=rest.device)
    after = before + rest.flatten(-2).sum(-1)
    spared = (care.spare * after).ceil() - (care.spare * before).ceil()
    order = mean.masked_fill(~rest, -1.0).flatten(-2).argsort(-1, descending=True)
    ranks = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    first = torch.zeros_like(order).scatter(-1, order, ranks) < spared[..., None]
    return heavy.masked_fill(first.view_as(heavy), inf)


def reach(threshold: float | Tensor, weight: Tensor) -> Tensor:
    """How near is near for tokens of some weight; below 0 for those that are spared."""
    return torch.where(weight.isinf(), -1.0, threshold / weight)
