"""How a parser did over its lines, in a bounded number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from .parser import LogParser

SAMPLES = 512


class Sample(NamedTuple):
    """A parser after so many lines; ``opened`` counts all templates that ever were."""

    lines: int
    opened: int
    templates: int
    slots: int
    budget: float | None  # None: no limit
    temperature: float

    @classmethod
    def of(cls, parser: LogParser) -> Sample:
        """The parser now."""
        budget = None if parser.budget == inf else parser.budget
        return cls(
            parser.seen, parser.born, len(parser), parser.n_leaves, budget, parser.temperature
        )

    @classmethod
    def restore(cls, row: Sequence[float]) -> Sample:
        """What a state file kept."""
        *counts, budget, temperature = sample = cls(*row)  # type: ignore[arg-type]
        whole = all(isinstance(n, int) and n >= 0 for n in counts)
        if not whole or not 0 <= temperature <= 1 or not (budget is None or 0 <= budget < inf):
            raise ValueError(f"a sample is four counts, a budget and a temperature, got {row}")
        return sample


class History:
    """Samples at equal distances; every other one is dropped when there are too many.

    >>> history = History()
    >>> for lines in range(2000):
    ...     if lines >= history.due:
    ...         history.add(Sample(lines, 0, 0, 0, None, 0.0))
    >>> [sample.lines for sample in history.samples][:4], len(history.samples)
    ([0, 4, 8, 12], 500)
    """

    def __init__(self, samples: Sequence[Sample] = ()) -> None:
        self.samples = [*samples]
        self._step = 1
        if len(samples) > 1:
            self._step = max(1, (samples[-1].lines - samples[0].lines) // (len(samples) - 1))

    @property
    def due(self) -> int:
        """Lines after which the next sample is wanted."""
        return self.samples[-1].lines + self._step if self.samples else 0

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self.samples.append(sample)
        if len(self.samples) > SAMPLES:
            del self.samples[1::2]
            self._step *= 2
