"""Reads of a whole sequence at once: causal attention over tokens that stands for one over slots.

With the mass and the mean it is attention over all tokens with each key replaced by its slot's,
which stock kernels do. All other reads are that with a bias on the logits (`columns`), which costs
L ** 2 as attention does; to fill slots from a long text, `step` in blocks costs L times the slots.
"""

# B batch, L tokens, H heads, S slots, D key size, C value size

from __future__ import annotations

from math import isfinite
from typing import Literal, get_args

import torch
from torch import Tensor

from . import fast
from .allocation import Allocation
from .columns import Columns, attend, audible
from .columns import Mode as Mode
from .columns import Value as Value
from .openers import attend_openers
from .plain import attend_all
from .state import SlotState

Gradient = Literal["token", "slot"]


def slot_keys(
    k: Tensor,
    allocation: Allocation,
    *,
    state: SlotState | None = None,
    gradient: Gradient = "token",
) -> Tensor:
    """Each token's key replaced by the key of its slot (B, L, H, D).

    With ``gradient="token"`` the gradient goes straight through to the token's own key, so that
    every key is trained; with ``"slot"`` it goes where the number came from, the slot's opener.
    """
    check_tokens(k, allocation)
    allocation.check_slots(state)
    own = torch.arange(k.shape[1], device=k.device)[:, None]
    slot = allocation.assign.clamp(min=0).transpose(1, 2)  # (B, H, L)
    opener = allocation.opener.gather(2, slot).transpose(1, 2)
    source = torch.where(allocation.assign < 0, own, opener)
    keys = k.gather(1, source.clamp(min=0)[..., None].expand_as(k))
    if state is not None:
        old = state.keys.gather(2, slot[..., None].expand(-1, -1, -1, k.shape[-1]))
        keys = torch.where((source < 0)[..., None], old.transpose(1, 2).to(k.dtype), keys)
    # k - k is 0: the number is the slot's to the last bit.
    return keys.detach() + (k - k.detach()) if gradient == "token" else keys


def novelty(k: Tensor, allocation: Allocation, *, state: SlotState | None = None) -> Tensor:
    """Novelty of each token (B, L, H), with a gradient to its key and to the nearest slot's opener.

    Half the squared distance to the slot that was nearest; 2 in an empty memory, 0 for padding.
    """
    near = allocation._replace(assign=allocation.nearest)
    gaps = k - slot_keys(k, near, state=state, gradient="slot")
    half = gaps.square().sum(-1) / 2
    return torch.where(allocation.nearest < 0, allocation.novelty.to(half.dtype), half)


def read(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allocation: Allocation,
    *,
    mode: Mode = "mass",
    value: Value = "mean",
    scale: float | Tensor | None = None,
    log_gate: Tensor | None = None,
    state: SlotState | None = None,
    gradient: Gradient = "token",
) -> Tensor:
    """What each query reads from the slots as they are once its own token is written (B, L, H, C).

    ``mass`` weighs a slot by its tokens; with ``value="mean"`` that is attention over all tokens
    with each key replaced by its slot's. ``distinct`` counts every slot once (paper, eq. 3).
    ``log_gate`` (B, L, H) is the log of each token's weight: under ``mass`` a token counts for
    that much, under ``distinct`` a slot has the weight of its opener; -inf shuts a token out, and
    any other counts as -80 at least, which slots can still hold. ``scale`` is 1/theta, one number
    or one for each head of ``q``, by default D ** -0.5. ``state`` holds the slots from before
    these tokens. ``q`` may have a multiple of the heads of ``k``. Padding reads 0.

    >>> from .allocation import allocate
    >>> k = torch.eye(2)[[0, 1, 0, 0]].reshape(1, 4, 1, 2)
    >>> v = torch.tensor([0.0, 8.0, 0.0, 0.0]).reshape(1, 4, 1, 1)
    >>> found, blank = allocate(k, tau=0.5), torch.zeros_like(k)
    >>> read(blank, k, v, found).flatten()  # three tokens of one kind, one of the other
    tensor([0.0000, 4.0000, 2.6667, 2.0000])
    >>> read(blank, k, v, found, mode="distinct").flatten()
    tensor([0.0000, 4.0000, 4.0000, 4.0000])
    """
    check(mode, value, gradient, q, k, v, log_gate, scale)
    check_tokens(k, allocation)
    allocation.check_slots(state)
    log_gate = audible(log_gate)
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    found = fast.read_by_kernels(q, k, v, allocation, mode, value, scale, log_gate, state)
    if found is not None:
        return found
    keys = slot_keys(k, allocation, state=state, gradient=gradient)
    query, key, val = (x.transpose(1, 2) for x in (q, keys, v))
    if isinstance(scale, Tensor):
        query, scale = query * scale.reshape(-1, 1, 1), 1.0
    elif not scale > 0:  # stock kernels scale what they have masked already, and find nan
        query, scale = query * scale, 1.0
    plain = mode == "mass" and value == "mean" and log_gate is None and state is None
    if plain and allocation.mask is None and allocation.sequence is None:
        return attend_all(query, key, val, allocation, scale).transpose(1, 2)
    with torch.autocast(q.device.type, enabled=False):
        if mode == "distinct" and value == "first" and state is None:
            key = k.transpose(1, 2)
            out = attend_openers(query, key, val, allocation, log_gate, scale)
            return out.to(v.dtype).transpose(1, 2)
        columns = Columns.of(key, val, allocation, mode, value, log_gate, state)
        out = attend(query, columns, allocation.sequence, mode, value, scale)
    return out.to(v.dtype).transpose(1, 2)


def check_tokens(k: Tensor, allocation: Allocation) -> None:
    """Refuse an allocation of other tokens."""
    if allocation.assign.shape != k.shape[:3]:
        raise ValueError(
            f"allocation is for tokens {tuple(allocation.assign.shape)}, got keys "
            f"{tuple(k.shape)}; allocate these keys"
        )


def check(
    mode: str,
    value: str,
    gradient: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_gate: Tensor | None = None,
    scale: float | Tensor | None = None,
) -> None:
    """Refuse unknown words and shapes that do not fit."""
    words = {"mode": (mode, Mode), "value": (value, Value), "gradient": (gradient, Gradient)}
    for name, (word, known) in words.items():
        if word not in get_args(known):
            raise ValueError(f"{name} must be one of {get_args(known)}, got {word!r}")
    alike = {q.ndim, k.ndim, v.ndim} == {4} and k.shape[:3] == v.shape[:3]
    alike = alike and (*q.shape[:2], q.shape[3]) == (*k.shape[:2], k.shape[3])
    if not alike or q.shape[2] % k.shape[2]:
        raise ValueError(
            f"q, k, v must be (B, L, H, D) with H of q a multiple of that of k, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if log_gate is not None and log_gate.shape != k.shape[:3]:
        raise ValueError(
            f"log_gate must be (B, L, H) {tuple(k.shape[:3])}, got {tuple(log_gate.shape)}; "
            "expand it to all heads"
        )
    if isinstance(scale, Tensor):
        if scale.numel() not in (1, q.shape[2]):
            raise ValueError(
                f"scale must be one number or one for each of {q.shape[2]} heads of q, "
                f"got {tuple(scale.shape)}"
            )
    elif scale is not None and not torch.compiler.is_compiling() and not isfinite(scale):
        raise ValueError(f"scale must be a finite number, 1 / theta, got {scale}")
