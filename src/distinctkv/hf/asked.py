"""What a forward of the hybrid is asked for, refused before a cache changes if it is not there."""

# B streams, L tokens, A tokens whose logits are wanted

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

SILENT = -100  # the label of a token at which nothing is asked
LOSS = ("num_items_in_batch", "ignore_index", "shift_labels")  # words of transformers' loss
# What a forward may be asked for and does not do, and what does.
NOT_HERE = {
    "output_attentions": "slots are read without a matrix of weights",
    "inputs_embeds": "give input_ids",
}


def known(settings: Mapping[str, Any], config: PretrainedConfig) -> None:
    """Refuse what would otherwise be passed over, or fail in words of Python's own."""
    settings = {name: value for name, value in settings.items() if value is not None}
    for name, instead in NOT_HERE.items():
        wanted = settings.pop(name, getattr(config, name, None))
        if wanted is not None and wanted is not False:
            raise ValueError(f"this model takes no {name}; {instead}")
    if unknown := sorted(set(settings) - set(LOSS)):
        raise TypeError(
            f"forward takes no {unknown[0]!r}; beside input_ids, attention_mask, past_key_values, "
            "labels, use_cache, return_dict, output_hidden_states and logits_to_keep it takes "
            f"{', '.join(LOSS)}"
        )


def ours(cache: object, kind: type[Any]) -> None:
    """Refuse a cache of another model."""
    if cache is not None and not isinstance(cache, kind):
        raise TypeError(
            f"the cache of this model is a {kind.__name__}, got a {type(cache).__name__}; leave "
            "past_key_values out, or give back that of an earlier call"
        )


def of(
    input_ids: Tensor | None, labels: Tensor | None, kept: int | Tensor
) -> tuple[Tensor, Tensor | None]:
    """Tokens (B, L), and the places (B, A) whose logits are wanted, None for all of them."""
    if input_ids is None:
        raise ValueError("this model needs input_ids (B, L), got None")
    at = _places(input_ids, kept)
    if labels is None:
        return input_ids, at
    if labels.shape != input_ids.shape:
        raise ValueError(
            f"labels are {tuple(labels.shape)} and input_ids {tuple(input_ids.shape)}; give one "
            f"for each token, {SILENT} where nothing is asked"
        )
    if at is not None:
        raise ValueError(f"a loss needs the logits of all tokens, got logits_to_keep={kept}")
    return input_ids, at


def _places(tokens: Tensor, kept: int | Tensor) -> Tensor | None:
    L = tokens.shape[-1]
    if isinstance(kept, Tensor):
        if kept.ndim != 1 or not bool(((kept >= -L) & (kept < L)).all()):
            raise ValueError(
                f"logits_to_keep must be a number or places (A,) among {L} tokens, got {kept}"
            )
        return kept.to(tokens.device).remainder(L).expand(len(tokens), -1)
    if kept < 0:
        raise ValueError(f"logits_to_keep must be 0 tokens or more, got {kept}; 0 keeps all")
    if kept == 0 or kept >= L:
        return None
    return torch.arange(L - kept, L, device=tokens.device).expand(len(tokens), -1)


def padding(attention_mask: Tensor | None, L: int) -> Tensor | None:
    """Which of the last L tokens are real, or None if all are."""
    if attention_mask is None:
        return None
    real = attention_mask[:, -L:].bool()
    return None if bool(real.all()) else real
