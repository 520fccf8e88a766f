"""Streams that are hard on an allocation engine, and what the rule says about them."""

from dataclasses import dataclass

import numpy as np
import torch

from distinctkv import Concentration, Rule
from distinctkv.nn import allocation, slot_attention, slot_state, slot_update
from distinctkv.nn.functional import allocate, unit
from distinctkv.rule import distances, novelty

KINDS = ("random", "clustered", "overlapping", "chain", "grid", "repeats")
TAUS = (-1.0, 0.0, 1e-7, 0.01, 0.15, 0.3, 0.5, 0.9, 1.0, 1.9, 2.0, 3.0)


@dataclass
class Case:
    """Keys (B, L, H, D), tau, and how the stream is cut, masked and packed."""

    kind: str
    keys: torch.Tensor
    tau: float
    chunk: int
    mask: torch.Tensor | None
    sequences: torch.Tensor | None

    def allocate(self, impl="torch"):
        return allocate(
            self.keys,
            self.tau,
            mask=self.mask,
            sequences=self.sequences,
            chunk=self.chunk,
            impl=impl,
        )


def draw(rng: np.random.Generator, longest: int = 60, dtype: torch.dtype | None = None) -> Case:
    """A random case; one in four has a threshold that some pair meets exactly."""
    kind = str(rng.choice(KINDS))
    B, H, L = int(rng.integers(1, 3)), int(rng.integers(1, 3)), int(rng.integers(1, longest + 1))
    D = int(rng.choice([1, 2, 3, 5, 16, 33, 64, 128, 257]))
    dtype = dtype or [torch.float32, torch.float32, torch.float64][rng.integers(3)]
    tau = float(rng.choice(TAUS))
    keys = unit(torch.tensor(rows(kind, (B, L, H, D), tau, rng))).to(dtype)
    if rng.random() < 0.25 and L > 1:
        a, b = keys[0, rng.choice(L, 2, replace=False), 0].numpy()
        tau = float(distances(a, b[None])[0]) / 2
    mask, sequences = None, None
    if rng.random() < 0.3:
        mask = torch.tensor(rng.random((B, L)) < 0.8)
    elif rng.random() < 0.3:
        sequences = torch.tensor(np.sort(rng.integers(0, 4, (B, L)), axis=1))
    return Case(kind, keys, tau, int(rng.choice([1, 3, 7, 16, 50, 128])), mask, sequences)


def rows(kind: str, shape: tuple[int, ...], tau: float, rng: np.random.Generator) -> np.ndarray:
    """Keys of any length, none of them zero."""
    D = shape[-1]
    if kind == "random":
        return rng.standard_normal(shape)
    if kind == "chain":  # neighbours on a circle, each about as far from the next as tau
        step = np.arccos(np.clip(1 - tau * rng.uniform(0.5, 1.1), -1, 1))
        angle = (
            step * np.arange(shape[1])[None, :, None] + rng.random(shape[:1] + shape[2:3])[:, None]
        )
        flat = np.stack([np.cos(angle), np.sin(angle)], -1)
        return np.concatenate([flat, np.zeros((*shape[:3], D))], -1)
    if kind == "grid":  # where many distances tie
        keys = rng.integers(-1, 2, shape).astype(float)
        keys[~keys.any(-1), 0] = 1.0
        return keys
    things = rng.standard_normal((int(rng.integers(1, 12)), D))
    noise = {"clustered": 0.1, "overlapping": 0.7, "repeats": 0.0}[kind]
    return things[rng.integers(0, len(things), shape[:3])] + noise * rng.standard_normal(shape)


def law(case: Case) -> dict[str, np.ndarray]:
    """What the rule says, token by token: slot, nearest slot, novelty, each (B, L, H)."""
    B, L, H, _ = case.keys.shape
    said = {"assign": np.full((B, L, H), -1), "nearest": np.full((B, L, H), -1)}
    said["novelty"] = np.zeros((B, L, H))
    for b in range(B):
        real = np.arange(L) if case.mask is None else np.flatnonzero(case.mask[b].numpy())
        ids = np.zeros(L, int) if case.sequences is None else case.sequences[b].numpy()
        for h in range(H):
            first = 0
            for part in (real[ids[real] == i] for i in np.unique(ids)):
                answers = list(follow(case.keys[b, part, h].numpy(), case.tau, first))
                for name, column in zip(said, zip(*answers, strict=True), strict=False):
                    said[name][b, part, h] = column
                first = max([first, *(answer[0] + 1 for answer in answers)])
    return said


def follow(keys: np.ndarray, tau: float, first: int):
    """Slot, nearest slot and novelty of each key of one stream whose slots count from ``first``."""
    rule = Rule(Concentration.fixed(max(tau, 0.0)) if tau <= 2 else Concentration.fixed(2.0))
    for place, key in enumerate(keys):
        held = keys[:place] if tau < 0 else rule.keys
        nov, near = novelty(key, held)
        slot = place if tau < 0 else rule.write(key)
        yield first + slot, first + near if near >= 0 else -1, min(nov, 2.0)


def differs(case: Case, impl: str = "torch") -> list[str]:
    """Names of what an engine says otherwise than the rule, to the last bit."""
    found, said = case.allocate(impl), law(case)
    said["novelty"] = said["novelty"].astype(found.novelty.numpy().dtype)
    lead = (said["assign"] != said["nearest"]) & (said["assign"] >= 0)
    wrong = [name for name, want in said.items() if (getattr(found, name).numpy() != want).any()]
    return wrong + ["lead"] * bool((found.lead.numpy() != lead).any())


def as_on_a_device(monkeypatch):
    """No value can be read without synchronising, as on a GPU."""
    for module in (allocation, slot_attention, slot_state, slot_update):
        monkeypatch.setattr(module, "reads_without_sync", lambda values: False)
