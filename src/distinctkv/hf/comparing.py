"""Tokens and slots of a group made ready to be compared: by kernels if there are, or by torch."""

# N heads of all layers and streams, L tokens of each, S slots of each

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor

from .allocation import Allocation, router
from .grouping import Group, featured
from .slots import Slots

Route = Callable[[Tensor], Allocation]


def compare(
    group: Group, tokens: Slots, present: Tensor, joinable: Tensor | None, times: int | None = None
) -> tuple[Route, Tensor]:
    """`allocation.router` of the tokens, and whether a feature of one is not finite, ().

    ``present`` (N, L) says which tokens are there; before them are the slots of the group, of which
    some are ``joinable`` (N, S), or none where that is None.
    """
    scale, rotary = group.scale(), group.layers[0].rotary
    if featured(group.layers[0]):
        from ..kernels import features

        rows = features.Rows(tokens, present)
        held = None if joinable is None else features.Rows(group.held, joinable)
        with torch.cuda.device(present.device):
            table, wrong = features.tabulate(rows, held, scale, rotary, group.horizon)

        def route(reach: Tensor) -> Allocation:
            with torch.cuda.device(present.device):
                return Allocation(*table.route(reach.float(), last=times == 1))

        return route, wrong
    again = tokens is group.held
    here = group.slots_at(scale) if again else group.tokens_at(scale, tokens)
    # Padding may hold anything.
    here.masked_fill_(~present[..., None], 0.0)
    wrong = ~torch.linalg.vector_norm(here, inf).isfinite()
    if joinable is None:
        there, joinable = here[:, :0], present[:, :0]
        lengths = torch.zeros(len(present), dtype=torch.int64, device=present.device)
    else:
        there, lengths = group.slots_at(scale), group.lengths()
    return router(here, present, there, joinable, lengths, times), wrong
