"""A bound on the leaves of a parser, fixed or moving with surprise (paper, eqs. 4-6)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import expm1, log

from ..policy import Concentration
from .leaves import Leaf
from .templates import Templates
from .usage import both

SPARE = 64  # leaves that are gone, beside as many as are held, may be in the order of eviction


class Budget:
    """The temperature, and the order in which leaves are evicted.

    Evicting from a template of several leaves folds them into one; evicting the last leaf of a
    template forgets it. Templates that were given as seeds are kept, and do not count.
    """

    def __init__(self, concentration: Concentration, templates: Templates) -> None:
        self.concentration = concentration
        self.forgotten = 0  # lines in evicted leaves
        self.heat, self.heat_after = 0.0, 0  # the temperature, and the number of lines it is after
        self.pace = -log(concentration.decay)  # see `usage`
        self._templates = templates
        self._order: list[tuple[float, int, int, Leaf]] = []
        self._pushed = 0
        templates.folded = self._admit

    def temperature(self, lines: int) -> float:
        """How often leaves opened lately, after so many lines (paper, eq. 4)."""
        return self.heat * (1 - self.concentration.rate) ** (lines - self.heat_after)

    def slots(self, lines: int) -> float:
        """Leaves granted after so many lines (paper, eq. 5)."""
        return self.concentration.base + self.concentration.gain * self.temperature(lines)

    def open(self, leaf: Leaf, lines: int) -> None:
        """The last of these lines opened a leaf, or was the first of a seed."""
        self.heat, self.heat_after = self.temperature(lines) + self.concentration.rate, lines
        self._admit(leaf)

    def join(self, other: Budget, lines: int, theirs: int) -> None:
        """Go on from the temperature of another parser, whose lines came after ours."""
        cooled = self.temperature(lines) * (1 - self.concentration.rate) ** theirs
        self.heat, self.heat_after = min(1.0, cooled + other.temperature(theirs)), lines + theirs
        self.forgotten += other.forgotten

    def adopt(self, leaf: Leaf, other: Budget, lines: int) -> Leaf:
        """A copy of a leaf of another parser, as if its lines had come so many lines later.

        Without a budget usage is not counted: the lines are then taken to be evenly spread.
        """
        copied = leaf.later(lines, self.pace)
        if copied.count and not other.concentration.bounded:
            step = (copied.last_seen - copied.first_seen) / max(1, copied.count - 1)
            fades = self.pace * step  # from one line of the leaf to the next
            whole = expm1(-fades * copied.count) / expm1(-fades) if fades else copied.count
            copied.usage = (copied.last_seen + 1) * self.pace + log(whole)
        return copied

    def start(self) -> None:
        """Put all leaves into the order of eviction anew."""
        self._order.clear()
        for leaf in self._templates.leaves.values():
            self._admit(leaf)

    def _admit(self, leaf: Leaf) -> None:
        if self.concentration.bounded and not leaf.seeded:
            if len(self._order) > 2 * len(self._templates.leaves) + SPARE:
                self._order = [one for one in self._order if one[-1].template is not None]
                heapify(self._order)
            self._pushed += 1
            heappush(self._order, (leaf.usage, leaf.last_seen, self._pushed, leaf))

    def state(self) -> list[float]:
        """What a snapshot keeps."""
        return [self.heat, self.heat_after, self.forgotten]

    def restore(self, state: list[float]) -> None:
        """Go on from a snapshot, once the leaves are there."""
        heat, after, forgotten = state
        self.heat, self.heat_after, self.forgotten = float(heat), int(after), int(forgotten)
        if not 0 <= self.heat <= 1:
            raise ValueError(f"the temperature is {heat}, not in [0, 1]")
        self.start()

    def use(self, leaf: Leaf, lines: int) -> Leaf:
        """Count the last line as usage and evict; the leaf that holds the line after that."""
        leaf.usage = both(leaf.usage, lines * self.pace)
        return self.shrink(lines, leaf) or leaf

    def shrink(self, lines: int, spared: Leaf | None = None) -> Leaf | None:
        """Evict the least used until the budget holds; what the spared leaf was folded into."""
        room = self.slots(lines) + self._templates.shelf.n_seeds
        aside = []
        while len(self._templates.leaves) > room and self._order:
            usage, _, _, worst = heappop(self._order)
            template = worst.template
            if template is None:
                continue
            if worst.usage != usage:
                self._admit(worst)
            elif (whole := self._templates.fold(worst)) is not None:
                spared = whole if spared is not None and spared.template is None else spared
            elif worst is spared:
                aside.append(worst)
            else:
                self.forgotten += worst.count
                self._templates.drop(worst)
        for leaf in aside:
            self._admit(leaf)
        return spared
