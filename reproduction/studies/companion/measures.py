"""What a trained model is measured by: bits, slots, time and memory."""

# N segments, B sequences, L tokens, H heads, S slots, D head size, T places of a sequence

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as fn

from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    HybridBlock,
    HybridLM,
    SlidingWindowAttention,
)
from distinctkv.nn.attention import Attention
from distinctkv.nn.functional import SlotState, allocate, step, write
from distinctkv.nn.mixer import rms_norm

from .corpus import Bytes, Corpus, spread
from .heavy import HeavyHitters
from .models import CacheUnderStudy, Replace, attention_blocks, cache, swapped

TOKENS = 1 << 16  # in a batch that is measured
SLOT_EXTRA = 4  # bytes of the count of a slot, or of the score of a token
ELEMENT = 2  # bytes of a number of a key or a value in a cache of 16 bits

# Bits per byte


@contextmanager
def measuring(model: HybridLM, stance: str = "force_eager") -> Iterator[None]:
    """Evaluation in 16 bits on a GPU, by code that is not compiled where shapes are many."""
    training = model.training
    model.eval()
    kind = next(model.parameters()).device.type
    with (
        torch.no_grad(),
        torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"),
        torch.compiler.set_stance(stance),
    ):
        yield
    model.train(training)


def losses(model: HybridLM, segments: Bytes) -> NDArray[np.float32]:
    """The bits that each token of segments (N, L + 1) but the first costs (N, L)."""
    place = next(model.parameters()).device
    each = max(1, TOKENS // segments.shape[1])
    parts = []
    with measuring(model, "default"):
        for start in range(0, len(segments), each):
            rows = torch.from_numpy(segments[start : start + each]).to(place).long()
            logits = model(rows[:, :-1]).float()
            bits = fn.cross_entropy(logits.mT, rows[:, 1:], reduction="none") / math.log(2)
            parts.append(bits.cpu().numpy())
    return np.concatenate(parts)


def bits(model: HybridLM, corpus: Corpus, name: str = "held out") -> dict[str, float]:
    """Bits per byte of segments, of all their tokens and of those of each slice."""
    segments = corpus.segments[name]
    each, lengths = losses(model, segments).astype(float), corpus.lengths[segments[:, 1:]]
    found = {"all": float(each.sum() / lengths.sum())}
    for part, mask in corpus.slices[name].items():
        if mask.any():
            found[part] = float(each[mask].sum() / lengths[mask].sum())
    return found


def slot_counts(model: HybridLM) -> list[list[float]]:
    """Slots of each head, layer by layer, at the ends of the sequences measured."""
    counts = []
    for mixer in model.mixers:
        if isinstance(mixer, CacheUnderStudy) and mixer.counts:
            slots = torch.cat(mixer.counts).float().mean(0)
            counts.append([round(one, 1) for one in slots.tolist()])
    return counts


def kept(model: HybridLM, n_tokens: int) -> float:
    """The part of the bytes of a full attention's keys and values: slots last measured, windows."""
    parts = []
    for mixer in model.mixers:
        if isinstance(mixer, CacheUnderStudy) and mixer.counts:
            n_slots = float(torch.cat(mixer.counts).float().mean())
            slots = kept_bytes(n_slots, n_tokens, mixer.project.heads.size)
            parts.append(slots + mixer.reading.window / n_tokens)
        elif isinstance(mixer, SlidingWindowAttention):
            parts.append(min(1.0, mixer.window / n_tokens))
        elif isinstance(mixer, HeavyHitters):
            held = min(mixer.budget, n_tokens)
            parts.append(kept_bytes(held, n_tokens, mixer.project.heads.size))
        elif isinstance(mixer, FullAttention):
            parts.append(1.0)
    return sum(parts) / max(1, len(parts))


def caches(model: HybridLM) -> list[DistinctAttention]:
    """The layers that hold slots, first block first."""
    return [mixer for mixer in model.mixers if isinstance(mixer, DistinctAttention)]


def kept_bytes(n_slots: float, n_tokens: int, head: int) -> float:
    """The part of the bytes of keys and values, 16 bits each, that slots and their counts take."""
    row = 2 * head * ELEMENT
    return n_slots * (row + SLOT_EXTRA) / (n_tokens * row)


def held_times(slots: Sequence[Sequence[float]], head: int) -> float:
    """How many times the bytes that `kept_bytes` counts for slots lie in the buffers.

    ``slots`` are those of each head, layer by layer. `SlotState` holds sums of 32 bits as values,
    and room in every head for as many slots as the fullest head of the layer has.

    >>> round(held_times([[100.0, 100.0]], 64), 2), round(held_times([[50.0, 150.0]], 64), 2)
    (1.49, 2.24)
    """
    row = torch.empty(1, 1, len(slots[0]), head, dtype=torch.bfloat16, device="meta")
    rooms = (math.ceil(max(layer)) for layer in slots)
    held = sum(sum(part.nbytes for part in SlotState.empty(row, row, room)[:3]) for room in rooms)
    return held / sum((2 * head * ELEMENT + SLOT_EXTRA) * sum(layer) for layer in slots)


def scheduled_times(head: int) -> float:
    """The same for KVM and OVQ, of which all heads have as many slots.

    >>> round(scheduled_times(64), 2)
    1.98
    """
    row = torch.empty(1, 1, 1, head, device="meta")  # key and value of 32 bits, and the count
    return (2 * row.nbytes + row[..., 0].nbytes) / (2 * head * ELEMENT + SLOT_EXTRA)


@torch.no_grad()
def slots_by_tau(model: HybridLM, segments: Bytes, taus: Sequence[float]) -> list[NDArray[Any]]:
    """Mean slots (layers and heads) after each token of segments (N, L + 1), for each tau."""
    place = next(model.parameters()).device
    rows = torch.from_numpy(segments[:, :-1].copy()).to(place).long()
    at = torch.zeros(len(rows), 1, dtype=torch.long, device=place)
    found = []
    for tau in taus:
        with swapped(model, cache(tau)) as mixers, measuring(model, "default"):
            model(rows, at=at)
            made = [mixer.found for mixer in mixers if isinstance(mixer, CacheUnderStudy)]
            slots = [one.lead.cumsum(1).float().mean((0, 2)) for one in made if one is not None]
        found.append(torch.stack(slots).mean(0).cpu().numpy())
    return found


@torch.no_grad()
def growth(
    model: HybridLM, books: Bytes, taus: Sequence[float], length: int, n: int
) -> dict[str, dict[str, list[float]]]:
    """Mean slots of each layer after 1/64, 1/32, ... of ``length`` tokens, for each tau."""
    place = next(model.parameters()).device
    rows = torch.from_numpy(spread(books, length, n)[:, :-1].copy()).to(place).long()
    marks = [length >> k for k in range(6, -1, -1) if length >> k]
    found: dict[str, dict[str, list[float]]] = {}
    for tau in taus:
        with swapped(model, cache(tau)) as mixers, measuring(model):
            opened: list[Tensor] = [torch.zeros(())] * len(mixers)
            for row in rows:
                model(row[None])
                for layer, mixer in enumerate(mixers):
                    assert isinstance(mixer, CacheUnderStudy)
                    assert mixer.found is not None
                    slots = mixer.found.lead.cumsum(1)[:, [mark - 1 for mark in marks]]
                    opened[layer] = opened[layer] + slots.float().mean((0, 2)).cpu()
        layers = {f"layer {i}": (total / n).tolist() for i, total in enumerate(opened)}
        found[f"{tau:g}"] = {"tokens": [float(mark) for mark in marks], **layers}
    return found


def exponent(tokens: Sequence[float], slots: Sequence[float]) -> float:
    """The power of the tokens with which slots grow, by least squares of the logarithms.

    >>> round(exponent([1, 10, 100], [2, 20, 200]), 6)
    1.0
    """
    return float(np.polyfit(np.log(tokens), np.log(slots), 1)[0])


# Time and memory


def seconds(run: Callable[[], object], repeats: int = 20) -> float:
    """The median time of a call on the GPU, after two calls that are not counted."""
    times = []
    for i in range(repeats + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) / 1000)
    return float(np.median(times))


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """A call as one CUDA graph, so that launches cost nothing."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


@torch.no_grad()
def decode(
    model: HybridLM, books: Bytes, length: int, batch: int, tau: float, n: int = 4
) -> list[dict[str, float | str]]:
    """Time and bytes of the memory of one decoded token, of each attention layer, at real slots.

    Slots are those of ``n`` held-out texts of ``length`` bytes, repeated to ``batch`` sequences.
    Full attention reads keys and values of 16 bits, laid out in advance, by PyTorch's own kernel;
    the token's own row is written, too. The cache runs the kernel that writes and reads one token.
    """
    place = next(model.parameters()).device
    rows = torch.from_numpy(spread(books, length, n)[:, :-1].copy()).to(place).long()
    layers: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in attention_blocks(model)]
    for row in rows:
        for layer, part in enumerate(_projected(model, row[None])):
            layers[layer].append(part)
    found: list[dict[str, float | str]] = []
    for layer, parts in enumerate(layers):
        q, k, v = (torch.cat(part) for part in zip(*parts, strict=True))
        repeat = torch.arange(batch, device=place) % n
        now = [t[:, -1:].index_select(0, repeat).contiguous() for t in (q, k, v)]
        made = [
            ("cache", *_cache_step(now, k, v, tau, repeat)),
            ("full", *_full_step(now, k, v, repeat)),
        ]
        for name, run, nbytes, slots in made:
            found.append({
                "layer": str(layer), "read": name, "length": float(length),
                "batch": float(batch), "seconds": seconds(captured(run)), "bytes": float(nbytes),
                "slots": slots,
            })  # fmt: skip
    return found


def _projected(model: HybridLM, tokens: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Queries, keys and values that each full attention makes of tokens (1, L)."""
    held: list[tuple[Tensor, Tensor, Tensor]] = []

    def keep(module: object, inputs: object, out: tuple[Tensor, ...]) -> None:
        held.append((out[0], out[1], out[2]))

    projects = [block.mixer.project for block in attention_blocks(model)]
    hooks = [project.register_forward_hook(keep) for project in projects]  # type: ignore[union-attr]
    try:
        with measuring(model):
            model(tokens, at=torch.zeros(1, 1, dtype=torch.long, device=tokens.device))
    finally:
        for hook in hooks:
            hook.remove()
    return held


def _cache_step(
    now: list[Tensor], k: Tensor, v: Tensor, tau: float, repeat: Tensor
) -> tuple[Callable[[], object], int, float]:
    kept = k.bfloat16()
    most = int(allocate(kept, tau).n_slots.max())
    state = SlotState.empty(kept, v, most + most // 8)
    write(state, kept, v, allocate(kept, tau, state=state))
    slots = float(state.n_slots.float().mean())
    state = state.index_select(repeat)
    bar = torch.tensor(tau, device=k.device, dtype=torch.float64)
    query, key, value = now[0], now[1].bfloat16(), now[2]

    def run() -> object:
        return step(query, key, value, state, bar, mode="mass", value="mean", scale=1.0)

    return run, state.nbytes, slots


def _full_step(
    now: list[Tensor], k: Tensor, v: Tensor, repeat: Tensor
) -> tuple[Callable[[], object], int, float]:
    query, key, value = (t.bfloat16().transpose(1, 2) for t in now)
    keys, values = (
        t.bfloat16().transpose(1, 2).index_select(0, repeat).contiguous() for t in (k, v)
    )

    def run() -> object:
        keys[:, :, -1:].copy_(key)
        values[:, :, -1:].copy_(value)
        return fn.scaled_dot_product_attention(query, keys, values, scale=1.0)

    return run, keys.nbytes + values.nbytes, float(k.shape[1])


@torch.no_grad()
def prefill(
    model: HybridLM, replacements: Mapping[str, Replace | None], books: Bytes, length: int, n: int
) -> list[dict[str, float | str]]:
    """Time of both attention layers, projections included, to read ``n`` texts at once."""
    place = next(model.parameters()).device
    rows = torch.from_numpy(spread(books, length, n)[:, :-1].copy()).to(place).long()
    found: list[dict[str, float | str]] = []
    for name, replace in replacements.items():
        each = [replace or (lambda full: full)]
        with swapped(model, *each), measuring(model):
            hidden: list[Tensor] = []
            model(rows, at=rows[:, :1] * 0, hidden=hidden)
            inputs = [
                (block.mixer, rms_norm(x, block.norm))
                for block, x in zip(model.blocks, hidden, strict=False)
                if isinstance(block, HybridBlock) and isinstance(block.mixer, Attention)
            ]
            torch.cuda.reset_peak_memory_stats()
            taken = sum(seconds(partial(mixer, x), repeats=5) for mixer, x in inputs)
            found.append({
                "read": name, "length": float(length), "batch": float(n), "seconds": taken,
                "peak bytes": float(torch.cuda.max_memory_allocated()),
            })  # fmt: skip
    return found
