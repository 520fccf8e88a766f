"""Functions on tensors (B, L, H, D): the rule and its reads, its learnable form, state spaces."""

from __future__ import annotations

from .allocation import Allocation, allocate, unit
from .slot_attention import read, slot_keys
from .slot_state import SlotState
from .slot_update import step, write
from .soft import budget_penalty, causal_novelty, hard_keep, soft_read
from .ssm import diagonal, selective_scan, ssd

__all__ = [
    "Allocation",
    "SlotState",
    "allocate",
    "budget_penalty",
    "causal_novelty",
    "diagonal",
    "hard_keep",
    "read",
    "selective_scan",
    "slot_keys",
    "soft_read",
    "ssd",
    "step",
    "unit",
    "write",
]
