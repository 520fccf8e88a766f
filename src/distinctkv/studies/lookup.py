"""The five models of the paper's end-to-end run, with its parameter counts to the last number."""

# B streams, L tokens, Q queries, E channels, V keys there are, C classes, M tokens kept

from __future__ import annotations

import numpy as np
import torch
from dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as fn

from ..nn.allocation import allocate, unit
from ..nn.delta import delta_rule
from ..nn.gates import Gate, NoveltyGate
from ..nn.soft import budget_penalty, causal_novelty, hard_keep, soft_read
from ..nn.zoo import SaliencyGate

ITEMS, REPEATS, KEYS, CLASSES, WIDTH = 128, 4, 512, 32, 128
LENGTH = ITEMS * REPEATS
STREAMS, QUERIES = 16, 32
RATE = 1e-3
TAU = 0.5

@dataclass(frozen=True, slots=True)
class Batch:
    keys: Tensor
    values: Tensor
    queries: Tensor
    answers: Tensor

def draw(rng, n, device="cpu"):
    known = rng.permuted(np.tile(np.arange(KEYS), (n, 1)), axis=1)[:, :ITEMS]
    classes = rng.integers(CLASSES, size=(n, ITEMS))
    items = rng.permuted(np.tile(np.repeat(np.arange(ITEMS), REPEATS), (n, 1)), axis=1)
    asked = rng.integers(ITEMS, size=(n, QUERIES))
    t = lambda a, i: torch.from_numpy(np.take_along_axis(a, i, 1)).to(device)
    return Batch(t(known, items), t(classes, items), t(known, asked), t(classes, asked))

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = nn.Embedding(KEYS, WIDTH)
        self.values = nn.Embedding(CLASSES, WIDTH)
        self.decay = nn.Parameter(torch.full((WIDTH,), 8.0))
        self.leave = nn.Linear(WIDTH, CLASSES)
    def loss(self, b):
        return fn.cross_entropy(self(b).flatten(0, 1), b.answers.flatten())

class SSM(Base):
    def forward(self, b):
        age = torch.arange(b.keys.shape[1], device=b.keys.device).flip(0)
        left = self.decay.sigmoid() ** age[:, None]
        h = (left * (self.keys(b.keys) + self.values(b.values))).sum(1) / LENGTH**.5
        return self.leave(h[:, None] + self.keys(b.queries))

class Attention(Base):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
    def parts(self, b):
        # projected before they are looked up
        q = self.q(self.keys.weight)[b.queries]
        k = self.k(self.keys.weight)[b.keys]
        v = self.v(self.values.weight)[b.values]
        return q[:, :, None], k[:, :, None], v[:, :, None]
    def log_gate(self, b):
        return torch.zeros_like(b.keys, dtype=torch.float32)
    def forward(self, b):
        return self.leave(soft_read(*self.parts(b), self.log_gate(b)[..., None], causal=False)[:, :, 0])

class Rule(Attention):
    def lead(self, b):
        return allocate(unit(self.keys(b.keys).detach())[:, :, None], TAU).lead[..., 0]
    def forward(self, b):
        z = torch.zeros_like(b.keys, dtype=torch.float32)[..., None]
        return self.leave(soft_read(*self.parts(b), z, mask=self.lead(b), causal=False)[:, :, 0])

class Gated(Attention):
    def __init__(self, gate):
        super().__init__()
        self.gate = gate
    def log_gate(self, b):
        x = self.keys(b.keys)
        nov = causal_novelty(unit(x.detach())[:, :, None])[..., 0] if isinstance(self.gate, NoveltyGate) else x[..., 0]
        return self.gate(nov, x)
    def forward(self, b):
        g = self.log_gate(b)
        if self.training:
            self.pen = budget_penalty(g.exp()[..., None], ITEMS)
            return self.leave(soft_read(*self.parts(b), g[..., None], causal=False)[:, :, 0])
        keep = hard_keep(g[..., None], ITEMS)[..., 0]
        return self.leave(soft_read(*self.parts(b), torch.zeros_like(g)[..., None], mask=keep, causal=False)[:, :, 0])
    def loss(self, b):
        return super().loss(b) + self.pen

class Linear(Attention):
    def forward(self, b):
        q, k, v = (x[:, :, 0] for x in self.parts(b))
        return self.leave(q @ (k.mT @ v) * WIDTH**-.5/REPEATS)

class DeltaM(Attention):
    def forward(self, b):
        q, k, v = self.parts(b)
        q, k = fn.normalize(q, dim=-1), fn.normalize(k, dim=-1)
        r = self.decay[0].sub(8).sigmoid().expand(k.shape[:3])
        _, S = delta_rule(k, k, v, torch.zeros_like(r), r, chunk=64)
        return self.leave(q[:, :, 0] @ S[:, 0].mT)

def train(m, seed, steps, device="cpu"):
    rng = np.random.default_rng(seed)
    opt = torch.optim.Adam(m.parameters(), RATE)
    m.train()
    for i in range(steps):
        loss = m.loss(draw(rng, STREAMS, device))
        opt.zero_grad(); loss.backward(); opt.step()
    return loss.item()

@torch.no_grad()
def recall(m, seed, n=160):
    m.eval(); rng = np.random.default_rng((seed, 1)); r = []
    for _ in range(n // 16):
        b = draw(rng, 16); r.append((m(b).argmax(-1) == b.answers).float().mean())
    return float(torch.stack(r).mean())
