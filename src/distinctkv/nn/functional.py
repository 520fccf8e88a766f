"""Functions on tensors (B, L, H, D): the rule and its reads, its learnable form, state spaces."""

from __future__ import annotations

from .allocation import Allocation, allocate, unit
from .reading import novelty, read, slot_keys
from .soft import budget_penalty, causal_novelty, hard_keep, soft_read
from .ssm import diagonal, selective_scan, ssd
from .state import SlotState
from .stepping import step
from .writing import write

__all__ = [
    "Allocation",
    "SlotState",
    "allocate",
    "budget_penalty",
    "causal_novelty",
    "diagonal",
    "hard_keep",
    "novelty",
    "read",
    "selective_scan",
    "slot_keys",
    "soft_read",
    "ssd",
    "step",
    "unit",
    "write",
]
