"""What a forward of the hybrid is asked for, refused before a cache changes if it is not there."""

# B streams, L tokens, A tokens whose logits are wanted

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, SupportsIndex

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
    input_ids: Tensor | None, labels: Tensor | None, kept: SupportsIndex | Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Tokens (B, L), and the places (B, A) whose logits are wanted, None for all of them."""
    if input_ids is None:
        raise ValueError("this model needs input_ids (B, L), got None")
    if input_ids.ndim != 2:
        raise ValueError(
            f"this model needs input_ids (B, L), got {tuple(input_ids.shape)}; one text alone is "
            "input_ids[None]"
        )
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


def _places(tokens: Tensor, kept: SupportsIndex | Tensor | None) -> Tensor | None:
    L = tokens.shape[-1]
    if isinstance(kept, Tensor):
        return _told(kept, L).to(tokens.device).expand(len(tokens), -1)
    if not isinstance(kept, SupportsIndex | None):
        raise TypeError(
            f"logits_to_keep must be a whole number or a tensor of places, got {kept!r}; "
            "torch.tensor makes one of a list"
        )
    n = 0 if kept is None else index(kept)
    if n < 0:
        raise ValueError(f"logits_to_keep must be 0 tokens or more, got {kept}; 0 keeps all")
    if n == 0 or n >= L:
        return None
    return torch.arange(L - n, L, device=tokens.device).expand(len(tokens), -1)


def _told(kept: Tensor, L: int) -> Tensor:
    """Places (A,) from 0 on; they may be told by their number, also from the end, or by a mask."""
    if kept.dtype == torch.bool and kept.shape == (L,):
        return kept.nonzero()[:, 0]
    whole = not (kept.is_floating_point() or kept.is_complex() or kept.dtype == torch.bool)
    places = kept.long() if whole else kept
    if not whole or kept.ndim != 1 or not bool(((places >= -L) & (places < L)).all()):
        raise ValueError(
            f"logits_to_keep must be a number, places (A,) among {L} tokens or a bool mask ({L},), "
            f"got {kept.dtype} {kept.tolist()}"
        )
    return torch.where(places < 0, places + L, places)


def answers(labels: Tensor | None, vocabulary: int, settings: Mapping[str, Any]) -> None:
    """Refuse labels that are no tokens, on the CPU; elsewhere torch does when it is too late."""
    if labels is None:
        return
    shifted = settings.get("shift_labels")
    wanted = labels[:, 1:] if shifted is None else shifted  # the first is nobody's answer
    if not wanted.is_cpu or torch.compiler.is_compiling():
        return
    silent = settings.get("ignore_index")
    silent = SILENT if silent is None else silent
    told = wanted[wanted != silent]
    if told.numel() and not 0 <= int(told.min()) <= int(told.max()) < vocabulary:
        raise ValueError(
            f"labels must be 0 to {vocabulary - 1}, the vocabulary, or {silent} where nothing is "
            f"asked, got {int(told.min())} to {int(told.max())}"
        )


def ends_in_text(attention_mask: Tensor | None) -> None:
    """Refuse padding where the next token is to stand."""
    if attention_mask is None or not attention_mask.shape[1]:
        return
    padded = (attention_mask[:, -1] == 0).nonzero()
    if len(padded):
        raise ValueError(
            f"stream {int(padded[0, 0])} is padded on the right, where its next token is to stand; "
            "pad on the left (padding_side='left')"
        )


def padding(attention_mask: Tensor | None, L: int) -> Tensor | None:
    """Which of the last L tokens are real, or None if all are."""
    if attention_mask is None:
        return None
    real = attention_mask[:, max(0, attention_mask.shape[1] - L) :].bool()
    return None if bool(real.all()) else real
