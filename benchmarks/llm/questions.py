"""Ask the same questions of every way to hold a context.

Questions attend to what is held, at the positions that follow the context, and to themselves.
"""

# V ways to hold, Q questions, H key-value heads, G query heads of each, S slots, L new tokens,
# D key size

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from .kv_states import Held, attending

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS = 1 << 26  # numbers of logits of words that may be there at once


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the model says the answer word for word, and how surprised it is by it."""

    right: bool
    nll: float  # nats for each token of the answer


@torch.no_grad()
def ask(
    model: PreTrainedModel,
    helds: Sequence[Sequence[Held]],
    start: int,
    questions: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> list[list[Answer]]:
    """Answers of each way to hold a context of ``start`` tokens to each (cue, answer)."""
    texts = [[*cue, *answer] for cue, answer in questions]
    length = max(map(len, texts)) - 1
    # A question is padded on its right, where nothing before it looks.
    rows = [(text[:-1] + [0] * length)[:length] for text in texts]
    ids = torch.tensor(rows, device=model.device).repeat(len(helds), 1)
    layers = [_stack(parts) for parts in zip(*helds, strict=True)]
    positions = torch.arange(start, start + length, device=model.device)[None]
    with attending(model, _ask):
        states = model.model(input_ids=ids, position_ids=positions, use_cache=False, held=layers)
    states = states.last_hidden_state.view(len(helds), len(rows), length, -1)
    # All answers at once, and one transfer: a device is not waited for at every question.
    places = [
        (question, len(cue) - 1 + i, token)
        for question, (cue, answer) in enumerate(questions)
        for i, token in enumerate(answer)
    ]
    which, where, true = torch.tensor(places, device=model.device).T
    some = max(1, LOGITS // (len(places) * model.config.vocab_size))
    parts = states[:, which, where].split(some)
    both = torch.cat([_judged(model.lm_head(part).float(), true) for part in parts], 1).cpu()
    sizes = [len(answer) for _, answer in questions]
    return [
        [
            Answer(not bool(wrongs.any()), float(nats.mean()))
            for nats, wrongs in zip(*(part.split(sizes) for part in way), strict=True)
        ]
        for way in both.unbind(1)
    ]


def _judged(logits: Tensor, true: Tensor) -> Tensor:
    """Nats of the true tokens, and whether another is likelier, (2, V, answer tokens)."""
    lost = cross_entropy(logits.flatten(0, 1), true.repeat(len(logits)), reduction="none")
    wrong = (logits.argmax(-1) != true).float()
    return torch.stack((lost.view_as(wrong), wrong))


def _stack(parts: Sequence[Held]) -> Held:
    """One layer of several ways, each made as wide as the widest; a leading V."""
    width = max(part.keys.shape[1] for part in parts)

    def wide(tensor: Tensor, value: float = 0.0) -> Tensor:
        room = (0, width - tensor.shape[1])
        if not room[1]:
            return tensor
        return pad(tensor, room if tensor.dim() == 2 else (0, 0, *room), value=value)

    return Held(
        torch.stack([wide(part.keys) for part in parts]),
        torch.stack([wide(part.values) for part in parts]),
        torch.stack([wide(part.bias, -inf) for part in parts]),
    )


def _ask(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    *,
    held: Sequence[Held],
    scaling: float,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of the (V Q) questions to what is held and, causally, to themselves."""
    past = held[int(module.layer_idx)]  # type: ignore[arg-type]
    V, H, _S, D = past.keys.shape
    L, Q = query.shape[2], len(query) // V
    queries = query.reshape(V, Q, H, -1, L, D).transpose(1, 2) * scaling  # (V, H, Q, G, L, D)
    own = [new.reshape(V, Q, H, 1, L, -1).transpose(1, 2) for new in (key, value)]
    # One matrix of all pairs and no copy of it, so that many ways can be asked at once.
    before = (queries.flatten(2, 4) @ past.keys.mT).float()  # (V, H, Q G L, S)
    before += past.bias[:, :, None]
    within = (queries @ own[0].mT).float()
    later = torch.ones(L, L, dtype=torch.bool, device=query.device).triu(1)
    within = within.masked_fill_(later, -inf)
    most = torch.maximum(before.amax(-1, keepdim=True), within.amax(-1).flatten(2)[..., None])
    before = before.sub_(most).exp_()
    within = within.sub_(most.view(*queries.shape[:-1], 1)).exp_()
    total = before.sum(-1, keepdim=True).view(*queries.shape[:-1], 1) + within.sum(-1, keepdim=True)
    out = (before.to(value.dtype) @ past.values).view(*queries.shape[:-1], -1)
    out = (out + within.to(value.dtype) @ own[1]) / total.to(value.dtype)
    # V H Q G L D -> (V Q) L (H G) D
    return out.permute(0, 2, 4, 1, 3, 5).flatten(0, 1).flatten(2, 3).contiguous(), None
