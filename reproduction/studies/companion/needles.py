"""Planted strings: texts that hold them, batches that teach to find them, and what is found."""

# B sequences, L tokens, A answers

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distinctkv.nn import HybridLM
from distinctkv.nn.train import IGNORE_INDEX

from .corpus import Bytes, spread
from .measures import TOKENS, measuring
from .train import Batches

# Of the texts in which models are measured; while they learn, names are random letters.
NAMES = ("Alfred", "Bertha", "Cedric", "Doreen", "Edmund", "Fergus", "Gerald", "Harold")
LETTERS = 6  # of an answer
KINDS = ("single", "multi-key", "multi-value")
VALUES = 4  # of the one key of multi-value
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)

# Of what is learned from:
CHANCES = (0.2, 0.6, 0.2)  # of the kinds
PARTS = (1, 2, 4, 8)  # texts with needles in one sequence, in a row
MOST = 12  # names in one of them
SENTENCE = 40  # bytes, with the longest name
SHORTEST = 4 * SENTENCE  # bytes of a text, where there are several


@dataclass(frozen=True)
class Haystack:
    """A text with needles, and where the answers in it begin."""

    text: Bytes
    planted: list[int]  # index of the first byte of each answer, where it cannot be known
    asked: list[int]  # and where it can
    depths: list[float]  # of the needles that are asked for


def sentence(name: str, answer: str) -> bytes:
    """What is planted, and what asks for it without its answer and stop.

    >>> sentence("Alfred", "qxzjkv")
    b' The secret word of Alfred is: qxzjkv.'
    """
    return f" The secret word of {name} is: {answer}.".encode()


def letters(rng: np.random.Generator, n: int) -> str:
    """Random small letters.

    >>> letters(np.random.default_rng(0), 6)
    'wqnhib'
    """
    return "".join(chr(97 + c) for c in rng.integers(0, 26, n))


def haystack(
    kind: str,
    book: Bytes,
    depth: float,
    rng: np.random.Generator,
    names: Sequence[str] = NAMES,
) -> Haystack:
    """Plant needles in the beginning of a book so that all is as long as the book.

    ``single`` plants one, for one of the names, at ``depth`` of the text. ``multi-key`` plants one
    for each name at even depths. ``multi-value`` plants 4 for one name. All are asked for at the
    end, in random order.
    """
    names = list(rng.permutation(names))
    if kind == "single":
        names, depths = names[:1], [depth]
    else:
        names = names if kind == "multi-key" else names[:1] * VALUES
        depths = [float(d) for d in np.linspace(0, 1, len(names))]
    needles = [sentence(name, letters(rng, LETTERS)) for name in names]
    order = rng.permutation(len(needles))
    room = len(book) - 2 * sum(map(len, needles))
    whole, planted, asked, before = b"", [], [], 0
    for depth, needle in zip(depths, needles, strict=True):
        cut = round(depth * room)
        whole += book[before:cut].tobytes()
        planted.append(len(whole) + _answer(needle))
        whole, before = whole + needle, cut
    whole += book[before:room].tobytes()
    for i in order:
        asked.append(len(whole) + _answer(needles[i]))
        whole += needles[i]
    return Haystack(np.frombuffer(whole, np.uint8), planted, asked, [depths[i] for i in order])


def _answer(needle: bytes) -> int:
    """Where the answer begins in a sentence."""
    return needle.index(b":") + 2


# Learning


class PlantedBatches(Batches):
    """Sequences of training text that are texts with needles in a row, of names never met again.

    A sequence has 1, 2, 4 or 8 texts. What no one can know, the answers where they are planted, is
    no target.
    """

    def at(self, step: int, rank: int = 0, world: int = 1) -> tuple[Tensor, Tensor]:
        """Tokens and targets (B, L) of a step, or the part of this rank."""
        rng = np.random.default_rng((self.seed, step, 1))
        rows, hidden = [], []
        for _ in range(self.schedule.batch):
            row, mask = self._sequence(rng)
            rows.append(row)
            hidden.append(mask)
        tokens = torch.from_numpy(np.stack(rows[rank::world])).to(self.text.device).long()
        unknown = torch.from_numpy(np.stack(hidden[rank::world])).to(self.text.device)
        targets = tokens.masked_fill(unknown, IGNORE_INDEX)[:, 1:]
        return tokens[:, :-1].contiguous(), targets.contiguous()

    def _sequence(self, rng: np.random.Generator) -> tuple[Bytes, np.ndarray]:
        """Bytes (L + 1,) and which of them are planted answers."""
        whole = self.schedule.length + 1
        n = int(rng.choice([n for n in PARTS if n == 1 or whole >= n * SHORTEST]))
        sizes = np.diff(np.linspace(0, whole, n + 1).astype(int))
        parts, hidden = [], np.zeros(whole, bool)
        at = 0
        for size in sizes:
            start = int(rng.integers(0, len(self.book) - size))
            stack = planted(self.book[start : start + size], rng)
            for place in stack.planted:
                hidden[at + place : at + place + LETTERS] = True
            parts.append(stack.text)
            at += len(stack.text)
        return np.concatenate(parts), hidden


def planted(book: Bytes, rng: np.random.Generator) -> Haystack:
    """A text to learn from, of a random kind; needles take up to three quarters of it."""
    room = max(1, min(MOST, 3 * len(book) // 4 // (2 * SENTENCE)))
    kind = str(rng.choice(KINDS, p=CHANCES)) if room >= VALUES else "multi-key"
    names = [letters(rng, int(rng.integers(4, 9))).capitalize() for _ in range(room)]
    few = names[: int(rng.integers(1, room + 1))]
    return haystack(kind, book, float(rng.random()), rng, few)


def about() -> dict[str, Any]:
    """What is planted where models learn."""
    return {"kinds": dict(zip(KINDS, CHANCES, strict=True)), "parts": PARTS, "names": MOST}


# Finding


def found(
    model: HybridLM, books: Bytes, kind: str, length: int, n: int
) -> list[dict[str, float | str | int]]:
    """The part of the answers found, by depth, in ``n`` texts of a kind, or of each depth.

    An answer is found if each of its letters is the likeliest after those before it. With several
    values for one name the first letter need only be among as many likeliest ones. ``letters`` is
    the part of all letters that are the likeliest.
    """
    stacks = [
        haystack(kind, book, depth, np.random.default_rng((length, KINDS.index(kind), i, j)))
        for i, depth in enumerate(DEPTHS if kind == "single" else (0.0,))
        for j, book in enumerate(spread(books, length, n))
    ]
    hits: dict[float, list[tuple[float, float]]] = {}
    for depth, *hit in answers(model, stacks, VALUES if kind == "multi-value" else 1):
        hits.setdefault(round(depth, 3), []).append((hit[0], hit[1]))
    return [
        {
            "task": kind, "length": length, "depth": depth, "asked": len(hit),
            "found": float(np.mean(hit, 0)[0]), "letters": float(np.mean(hit, 0)[1]),
        }
        for depth, hit in sorted(hits.items())
    ]  # fmt: skip


def answers(
    model: HybridLM, stacks: Sequence[Haystack], among: int
) -> Iterator[tuple[float, bool, float]]:
    """Depth of each answer, whether it was found, and the part of its letters that were."""
    place = next(model.parameters()).device
    each = max(1, TOKENS // len(stacks[0].text))
    with measuring(model):
        for start in range(0, len(stacks), each):
            part = stacks[start : start + each]
            rows = torch.from_numpy(np.stack([one.text for one in part])).to(place).long()
            at = torch.tensor([one.asked for one in part], device=place)  # (B, A)
            want = (at[..., None] + torch.arange(LETTERS, device=place)).flatten(1)
            logits = model(rows[:, :-1], at=want - 1).float()
            own = logits.gather(2, rows.gather(1, want)[..., None])
            rank = (logits > own).sum(-1).unflatten(1, (-1, LETTERS))
            hit = (rank[..., 0] < among) & (rank[..., 1:] == 0).all(-1)
            right = (rank == 0).float().mean(-1)
            for one, *told in zip(part, hit.tolist(), right.tolist(), strict=True):
                yield from zip(one.depths, *told, strict=True)


def mean_found(rows: Sequence[Mapping[str, Any]]) -> float:
    """The part of all answers that was found."""
    return float(np.average([row["found"] for row in rows], weights=[row["asked"] for row in rows]))
