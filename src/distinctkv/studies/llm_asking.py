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

from .llm_held import Held, attending

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    return [
        [_answer(model, state, *one) for state, one in zip(states[way], questions, strict=True)]
        for way in range(len(helds))
    ]


def _answer(
    model: PreTrainedModel, states: Tensor, cue: Sequence[int], answer: Sequence[int]
) -> Answer:
    first = len(cue) - 1
    logits = model.lm_head(states[first : first + len(answer)]).float()
    true = torch.tensor(answer, device=logits.device)
    lost = cross_entropy(logits, true)
    return Answer(bool((logits.argmax(-1) == true).all()), float(lost))


def _stack(parts: Sequence[Held]) -> Held:
    """One layer of several ways, each made as wide as the widest; a leading V."""
    width = max(part.keys.shape[1] for part in parts)

    def wide(tensor: Tensor, value: float = 0.0) -> Tensor:
        room = (0, width - tensor.shape[1])
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
    *,
    held: Sequence[Held],
    scaling: float,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of the (V Q) questions to what is held and, causally, to themselves."""
    past = held[int(module.layer_idx)]  # type: ignore[arg-type]
    V, H, S, D = past.keys.shape
    L, Q = query.shape[2], len(query) // V
    queries = query.reshape(V, Q, H, -1, L, D).transpose(1, 2)  # (V, H, Q, G, L, D)
    own = [new.reshape(V, Q, H, 1, L, -1).transpose(1, 2) for new in (key, value)]
    flat = queries.flatten(2, 4)
    before = (flat @ past.keys.mT).float() * scaling + past.bias[:, :, None]
    within = (queries @ own[0].mT).float() * scaling
    later = torch.ones(L, L, dtype=torch.bool, device=query.device).triu(1)
    logits = torch.cat((before.view(*queries.shape[:-1], S), within.masked_fill(later, -inf)), -1)
    weights = logits.softmax(-1).to(value.dtype)
    out = (weights[..., :S].flatten(2, 4) @ past.values).view(*queries.shape[:-1], -1)
    out = out + weights[..., S:] @ own[1]
    # V H Q G L D -> (V Q) L (H G) D
    return out.permute(0, 2, 4, 1, 3, 5).flatten(0, 1).flatten(2, 3).contiguous(), None
