"""What a trained model is asked: sequences of every size and kind, also when served otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from distinctkv.nn import HybridLM, Reading
from distinctkv.nn.watching import set_tau

from . import mqar_models as models
from .mqar_models import Found, Size

TAUS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
PARTS = (0.75, 0.6, 0.5)  # of our bytes, for a rule with a schedule
BITS: Mapping[str, tuple[str, Any]] = {  # keys, and which value a slot answers
    "float32": ("float32", "mean"),
    "bfloat16": ("bfloat16", "mean"),
    "float32_first": ("float32", "first"),
    "bfloat16_first": ("bfloat16", "first"),
}
Numbers = Mapping[tuple[str, str], Mapping[str, float]]  # (table, row) -> measure -> number


def asked(tokens: int) -> int:
    """Sequences of so many tokens to measure on."""
    return 32 if tokens <= 512 else 4


def answers(
    model: HybridLM, size: Size, seed: int, held: Mapping[tuple[int, int], float]
) -> Mapping[tuple[int, int], Found]:
    """What a model recalls at every size; one with a schedule has the bytes ``held`` there.

    It is left with those of the first size.
    """
    found = {}
    for items, tokens in (*size.asked[1:], size.asked[0]):
        n_slots = models.slots_in(model, held.get((items, tokens), 0.0))
        models.fit(model, max(1, int(n_slots)), tokens)
        found[items, tokens] = ask(model, size, seed, items, tokens)
    return {at: found[at] for at in size.asked}


def ask(model: HybridLM, size: Size, seed: int, items: int, tokens: int, **kind: int) -> Found:
    """The same sequences for every model."""
    rng = np.random.default_rng((seed, items, tokens))
    return models.ask(model, rng, models.task(size, items, tokens, **kind), asked(tokens))


def kinds(model: HybridLM, size: Size, seed: int) -> Mapping[str, float]:
    """Recall where values are overwritten, and where keys share their first token."""
    items, tokens = size.asked[0]
    return {
        "overwritten": ask(model, size, seed, items, tokens, renewed=1).recall,
        "near-duplicates": ask(model, size, seed, items, tokens, siblings=4).recall,
    }


def served(model: HybridLM, size: Size, seed: int) -> Numbers:
    """One checkpoint served otherwise: newest values, other thresholds, fewer bits."""
    numbers = served_at(model, size, seed, size.asked[3])
    return {**numbers, ("kinds", "newest"): newest(model, size, seed)}


def newest(model: HybridLM, size: Size, seed: int) -> Mapping[str, float]:
    """Other kinds of sequences, answered with the newest value of a slot."""
    layer: Any = model.mixers[1]
    before, layer.reading = layer.reading, Reading("mass", "last")
    found = kinds(model, size, seed)
    layer.reading = before
    return found


def served_at(model: HybridLM, size: Size, seed: int, at: tuple[int, int]) -> Numbers:
    """Recall, slots and bytes of one checkpoint at other thresholds, and in fewer bits."""
    layer: Any = model.mixers[1]
    before, tau_before, numbers = layer.reading, float(layer.tau), {}
    for tau in TAUS:
        set_tau(model, tau)
        numbers["tau", f"{tau:g}"] = _row(ask(model, size, seed, *at))
    set_tau(model, tau_before)
    for row, (kind, value) in BITS.items():
        layer.reading = Reading("mass", value)
        layer.slot_dtype = torch.bfloat16 if kind == "bfloat16" else None
        numbers["bits", row] = _row(ask(model, size, seed, *at))
    layer.slot_dtype, layer.reading = None, before
    return numbers


def squeezed(
    model: HybridLM, size: Size, seed: int, at: tuple[int, int], n_bytes: float
) -> Numbers:
    """The same of a rule with a schedule that has only a part of so many bytes."""
    numbers = {}
    for part in PARTS:
        n_slots = models.slots_in(model, part * n_bytes)
        models.fit(model, max(1, int(n_slots)), at[1])
        numbers["part", f"{part:g}"] = _row(ask(model, size, seed, *at))
    return numbers


def _row(found: Found) -> Mapping[str, float]:
    return {"recall": found.recall, "slots": found.slots, "bytes": found.bytes}
