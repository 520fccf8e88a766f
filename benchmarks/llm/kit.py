"""What contexts are made with: tokens, draws from a seed, lines until a length is used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .vocabulary import LEADS

Rng = np.random.Generator
QUESTIONS = 8


@dataclass(frozen=True, slots=True)
class Task:
    """A context in tokens, and pairs of a cue and an answer in tokens."""

    ids: tuple[int, ...]
    questions: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Kit:
    """What a task is made with: a tokenizer, a length in tokens, and draws from a seed."""

    tokenizer: Any
    length: int
    rng: Rng

    def tokens(self, text: str) -> tuple[int, ...]:
        """Tokens of a piece of text."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def draw(self, words: Sequence[str], n: int) -> list[str]:
        """Words, each at most once."""
        return [words[i] for i in self.rng.permutation(len(words))[:n]]

    def one(self, choices: Sequence[Any]) -> Any:  # noqa: ANN401
        """One of several."""
        return choices[int(self.rng.integers(len(choices)))]

    def fill(self, lines: Iterator[str], room: int | None = None) -> list[tuple[int, ...]]:
        """Lines until the length is used up."""
        left = self.length if room is None else room
        taken = []
        for line in lines:
            tokens = self.tokens(line + "\n")
            if len(tokens) > left:
                break
            taken.append(tokens)
            left -= len(tokens)
        return taken

    def hide(self, needles: Sequence[str], hay: Iterator[str]) -> tuple[int, ...]:
        """Needles, in their order, at random places of the hay."""
        sharp = [self.tokens(needle + "\n") for needle in needles]
        lines = self.fill(hay, self.length - sum(map(len, sharp)))
        places = np.sort(self.rng.integers(0, len(lines) + 1, len(sharp)))
        for place, needle in reversed(list(zip(places.tolist(), sharp, strict=True))):
            lines.insert(place, needle)
        return sum(lines, ())

    def ask(self, pairs: Sequence[tuple[str, str]], lead: str | None = None) -> Any:  # noqa: ANN401
        """Questions, at most eight, from cues and answers."""
        lead = self.one(LEADS) if lead is None else lead
        chosen = [pairs[i] for i in self.rng.permutation(len(pairs))[:QUESTIONS]]
        return tuple((self.tokens(lead + cue), self.tokens(" " + answer)) for cue, answer in chosen)
