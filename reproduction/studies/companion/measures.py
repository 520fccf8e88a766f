"""What a trained model is measured by: bits, recall of planted strings, slots, time and memory."""

# N segments, B sequences, L tokens, H heads, S slots, D head size, T places of a sequence

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from .models import CacheUnderStudy, Replace, attention_blocks, cache, swapped

TOKENS = 1 << 16  # in a batch that is measured
SLOT_EXTRA = 4  # bytes of the count of a slot
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
    """The bits that each byte of segments (N, L + 1) but the first costs (N, L)."""
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
    """Mean bits per byte of segments, of all their bytes and of each slice."""
    each = losses(model, corpus.segments[name])
    found = {"all": float(each.mean())}
    for part, mask in corpus.slices[name].items():
        if mask.any():
            found[part] = float(each[mask].mean())
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


# Needles: strings of letters planted in held-out books, asked for at the end


NAMES = ("Alfred", "Bertha", "Cedric", "Doreen", "Edmund", "Fergus", "Gerald", "Harold")
LETTERS = 6  # of an answer
TASKS = ("single", "multi-key", "multi-value")
VALUES = 4  # of the one key of multi-value
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Haystack:
    """A text with needles, and where each answer that is asked for begins."""

    text: Bytes  # (L + 1)
    asked: list[int]  # index of the first byte of each answer
    depths: list[float]


def sentence(name: str, answer: str) -> bytes:
    """What is planted, and what asks for it without its answer and stop.

    >>> sentence("Alfred", "qxzjkv")
    b' The secret word of Alfred is: qxzjkv.'
    """
    return f" The secret word of {name} is: {answer}.".encode()


def haystack(task: str, book: Bytes, length: int, depth: float, seed: int) -> Haystack:
    """Plant the needles of a task in the beginning of a book so that all has ``length`` bytes.

    ``single`` plants one at ``depth`` of the text. ``multi-key`` plants one for each of 8 names at
    even depths and asks for all of them in random order. ``multi-value`` plants 4 for one name and
    asks for all of them.
    """
    rng = np.random.default_rng((seed, TASKS.index(task)))
    answers = ["".join(chr(97 + c) for c in rng.integers(0, 26, LETTERS)) for _ in NAMES]
    names = list(rng.permutation(NAMES))
    if task == "single":
        names, answers, depths = names[:1], answers[:1], [depth]
    elif task == "multi-key":
        depths = [float(d) for d in np.linspace(0, 1, len(names))]
    else:
        names, answers = [names[0]] * VALUES, answers[:VALUES]
        depths = [float(d) for d in np.linspace(0, 1, VALUES)]
    needles = [sentence(*pair) for pair in zip(names, answers, strict=True)]
    order = rng.permutation(len(needles))
    end, asked = b"", []
    for i in order:
        asked.append(len(end) + needles[i].index(b":") + 2)
        end += needles[i]
    room = length + 1 - sum(map(len, needles)) - len(end)
    cuts = [round(d * room) for d in depths]
    pieces, before = [], 0
    for cut, needle in zip(cuts, needles, strict=True):
        pieces += [book[before:cut].tobytes(), needle]
        before = cut
    text = b"".join([*pieces, book[before:room].tobytes(), end])
    start = len(text) - len(end)
    return Haystack(
        np.frombuffer(text, np.uint8), [start + at for at in asked], [depths[i] for i in order]
    )


def needles(
    model: HybridLM, books: Bytes, lengths: Sequence[int], n: int
) -> list[dict[str, float | str | int]]:
    """The part of the answers found, by task, length and depth, in ``n`` texts of each.

    An answer is found if each of its letters is the likeliest after those before it. With several
    values for one name the first letter need only be among as many likeliest ones. ``letters`` is
    the part of all letters that are the likeliest.
    """
    rows: list[dict[str, float | str | int]] = []
    for task in TASKS:
        for length in lengths:
            depths = DEPTHS if task == "single" else (0.0,)
            stacks = [
                haystack(task, book, length, depth, 1000 * length + i)
                for depth in depths
                for i, book in enumerate(spread(books, length, n))
            ]
            hits: dict[float, list[tuple[float, float]]] = {}
            for depth, *hit in _answers(model, stacks, VALUES if task == "multi-value" else 1):
                hits.setdefault(depth, []).append((hit[0], hit[1]))
            rows += [
                {
                    "task": task, "length": length, "depth": round(depth, 3),
                    "found": float(np.mean(hit, 0)[0]), "letters": float(np.mean(hit, 0)[1]),
                    "asked": len(hit),
                }
                for depth, hit in sorted(hits.items())
            ]  # fmt: skip
    return rows


def _answers(
    model: HybridLM, stacks: Sequence[Haystack], among: int
) -> Iterator[tuple[float, bool, float]]:
    """Depth of each answer, whether it was found, and the part of its letters that were."""
    place = next(model.parameters()).device
    each = max(1, TOKENS // len(stacks[0].text))
    with measuring(model):
        for start in range(0, len(stacks), each):
            part = stacks[start : start + each]
            rows = torch.from_numpy(np.stack([one.text for one in part])).to(place).long()
            at = torch.tensor([one.asked for one in part], device=place)  # (B, answers)
            want = (at[..., None] + torch.arange(LETTERS, device=place)).flatten(1)
            logits = model(rows[:, :-1], at=want - 1).float()
            target = rows.gather(1, want)
            own = logits.gather(2, target[..., None])
            rank = (logits > own).sum(-1).unflatten(1, (-1, LETTERS))
            hit = (rank[..., 0] < among) & (rank[..., 1:] == 0).all(-1)
            letters = (rank == 0).float().mean(-1)
            for one, *told in zip(part, hit.tolist(), letters.tolist(), strict=True):
                yield from zip(one.depths, *told, strict=True)


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
