"""Streams that are hard on an allocation engine, and what the rule says about them."""

from dataclasses import dataclass

import numpy as np
import torch

from distinctkv import Concentration, Rule
from distinctkv.nn import allocation, mixer, slot_attention, slot_update
from distinctkv.nn.functional import allocate, unit
from distinctkv.rule import distances

KINDS = ("random", "clustered", "overlapping", "chain", "grid", "repeats")
TAUS = (-1.0, 0.0, 1e-7, 0.01, 0.15, 0.3, 0.5, 0.9, 1.0, 1.9, 2.0, 3.0)


@dataclass
class Case:
    """Keys (B, L, H, D), tau, and how the stream is cut and masked."""

    kind: str
    keys: torch.Tensor
    tau: float
    chunk: int
    mask: torch.Tensor | None

    def allocate(self, impl="torch"):
        return allocate(self.keys, self.tau, mask=self.mask, chunk=self.chunk, impl=impl)


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
    mask = torch.tensor(rng.random((B, L)) < 0.8) if rng.random() < 0.3 else None
    return Case(kind, keys, tau, int(rng.choice([1, 3, 7, 16, 50, 128])), mask)


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


def law(case: Case) -> np.ndarray:
    """The slot that the rule gives each token (B, L, H), one token after another."""
    B, L, H, _ = case.keys.shape
    assign = np.full((B, L, H), -1)
    for b in range(B):
        real = np.arange(L) if case.mask is None else np.flatnonzero(case.mask[b].numpy())
        for h in range(H):
            # Below 0 every token opens a slot; a cosine novelty is never above 2.
            rule = Rule(Concentration.fixed(min(max(case.tau, 0.0), 2.0)))
            said = [rule.write(key) for key in case.keys[b, real, h].numpy()]
            assign[b, real, h] = np.arange(len(real)) if case.tau < 0 else said
    return assign


def differs(case: Case, impl: str = "torch") -> list[str]:
    """Names of what an engine says otherwise than the rule."""
    found, want = case.allocate(impl), law(case)
    lead = np.zeros_like(want, bool)
    for b, h in np.ndindex(want.shape[0], want.shape[2]):
        ids, first = np.unique(want[b, :, h], return_index=True)
        lead[b, first[ids >= 0], h] = True
    pairs = {"assign": want, "lead": lead}
    return [name for name, said in pairs.items() if (getattr(found, name).numpy() != said).any()]


def as_on_a_device(monkeypatch):
    """No value can be read without synchronising, as on a GPU."""
    for module in (allocation, mixer, slot_attention, slot_update):
        monkeypatch.setattr(module, "reads_without_sync", lambda values: False)
