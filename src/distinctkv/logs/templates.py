"""Templates of log lines: which keys share one, under which id.

A *variant* is a key with the lines that have it, or a pattern without lines. Variants of which one
covers the other share a template. Templates only become one, they never part: so what is said of a
line at once is what is said of it after any other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import exp, expm1, inf, log, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .patterns import Evidence, KeyTree, novelty
from .rendering import Rendering, common, joined
from .tokenizer import WILD, Key, Line

MAX_VARIANTS = 64  # that a pattern covers; then they collapse into it, and new keys open none
COMPARED = 256  # latest keys of one length that the novelty of a line is measured against
_COLUMNS: Mapping[str, type[np.generic]] = {
    "count": np.int64, "first_seen": np.int64, "last_seen": np.int64, "usage": np.float64,
    "held": np.bool_, "seeded": np.bool_, "collapsed": np.bool_,
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Variant:
    """The lines with one key: a slot of this memory. The key never changes."""

    key: Key
    rendering: Rendering
    example: str = ""
    first_seen: int = 0
    last_seen: int = -1
    count: int = 0
    usage: float = -inf  # log of the sum of decay ** -t over its lines t, see `add_usage`
    held: bool = False  # whether it is a slot: has lines, or was seeded; others are patterns
    seeded: bool = False  # given by the user, never evicted
    collapsed: bool = False  # whether new keys that it covers are counted here
    template: Template | None = None  # None once evicted
    queued: bool = False  # whether the budget has it in its order of eviction
    covered: bool = False  # whether another one covers it
    n_covered: int = 0  # how many it covers

    def shifted(self, lines: int, decay_rate: float, *, has_usage: bool) -> Variant:
        """A copy without template, as if its lines had come so many lines later.

        Without usage its lines are assumed to be evenly spread.
        """
        copied = replace(self, template=None, queued=False, usage=self.usage + lines * decay_rate)
        copied.covered, copied.n_covered = False, 0
        copied.first_seen += lines
        copied.last_seen += lines if self.count else 0
        if copied.count and not has_usage:
            copied.usage = copied._even_usage(decay_rate)
        return copied

    def _even_usage(self, decay_rate: float) -> float:
        """The usage of as many lines, evenly spread from the first to the last."""
        step = (self.last_seen - self.first_seen) / max(1, self.count - 1)
        decay = decay_rate * step  # from one line of the variant to the next
        total = expm1(-decay * self.count) / expm1(-decay) if decay else self.count
        return (self.last_seen + 1) * decay_rate + log(total)

    def use(self, weight: float) -> None:
        """Add a use, of which the weight is given as a logarithm."""
        self.usage = add_usage(self.usage, weight)

    def enqueue(self) -> None:
        """Note that the budget has it in its order of eviction."""
        self.queued = True

    def add(self, other: Variant) -> None:
        """Count the lines of another variant as well."""
        if not self.held or (other.held and other.first_seen < self.first_seen):
            self.first_seen, self.example = other.first_seen, other.example
        self.count += other.count
        self.usage = add_usage(self.usage, other.usage)
        self.last_seen = max(self.last_seen, other.last_seen)
        self.held = self.held or other.held
        self.seeded = self.seeded or other.seeded
        self.collapsed = self.collapsed or other.collapsed

    def learn(self, key: Key, rendering: Rendering) -> bool:
        """Change the rendering so that it fits that of a key that this one covers."""
        merged = self.rendering.merge(rendering.under(key, self.key))
        if merged == self.rendering:
            return False
        self.rendering = merged
        if self.template is not None:
            self.template.forget_text()
        return True


@dataclass(slots=True, eq=False)
class Template:
    """Variants of which one covers another, under an id that never changes."""

    id: int
    variants: dict[Key, Variant] = field(default_factory=dict)
    parent: Template | None = None  # the template that this one became part of
    aliases: list[int] = field(default_factory=list)  # ids of templates that became this one
    reported: str | None = None  # the text in the last match
    _text: str | None = None

    @property
    def text(self) -> str:
        """The template as text: what all its lines share."""
        if self._text is None:
            tops = [(key, one.rendering) for key, one in self.variants.items() if not one.covered]
            self._text = (tops[0][1] if len(tops) == 1 else common(tops)).text()
        return self._text

    def forget_text(self) -> None:
        """Make the text anew when it is asked for."""
        self._text = None

    def add(self, variant: Variant) -> None:
        """Hold one more variant."""
        self.variants[variant.key] = variant
        variant.template, self._text = self, None

    def remove(self, variant: Variant) -> None:
        """Hold a variant no longer."""
        del self.variants[variant.key]
        variant.template = self._text = None

    def absorb(self, other: Template) -> None:
        """Hold the variants of another template, which becomes part of this one."""
        for variant in other.variants.values():
            self.add(variant)
        other.variants, other.parent = {}, self
        self.aliases += [other.id, *other.aliases]

    def report(self, before: str | None) -> bool:
        """Whether the text is another than in the last match (or than ``before``)."""
        last = before if self.reported is None else self.reported
        self.reported = self.text
        return last not in (None, self.reported)

    @property
    def held(self) -> list[Variant]:
        """Variants with lines and seeds, oldest first."""
        found = [variant for variant in self.variants.values() if variant.held]
        return sorted(found, key=lambda variant: variant.first_seen)

    @property
    def count(self) -> int:
        """Number of lines."""
        return sum([variant.count for variant in self.variants.values()])

    def root(self) -> Template:
        """The template that this one is part of now, or itself."""
        template = self
        while template.parent is not None:
            template = template.parent
        if self is not template:
            self.parent = template
        return template


def add_usage(one: float, two: float) -> float:
    """The logarithm of the sum of two usages, given as logarithms.

    A variant seen at lines t has usage ``sum(decay ** (now - t))``. Stored is
    ``log(sum(decay ** -t))``: it changes only with its own lines, and the order is the same.

    >>> add_usage(0.0, 0.0), add_usage(-inf, 3.0), add_usage(900.0, 0.0)
    (0.6931471805599453, 3.0, 900.0)
    """
    low, high = (one, two) if one < two else (two, one)
    return high if low == -inf else high + log1p(exp(low - high))


class Templates:
    """All variants and templates, and which keys cover which."""

    def __init__(self, tau: float, min_values: int) -> None:
        self.variants: dict[Key, Variant] = {}
        self.next_id = 0
        self.n_held = self.n_seeds = self.n_collapses = 0
        self.words: Counter[str] = Counter()  # in how many variants a token is
        self._tree = KeyTree()
        self._evidence = Evidence(self._tree, tau, min_values)
        self._by_id: dict[int, Template] = {}
        self._n_templates = 0
        self._lengths: dict[int, dict[Key, int]] = {}  # by number of tokens the keys: constants
        self._joined: dict[Key, dict[Key, None]] = {}  # by `joined` the keys that differ from it

    def __len__(self) -> int:
        """Number of templates."""
        return self._n_templates

    def __iter__(self) -> Iterator[Template]:
        """Templates by id."""
        return (one for one in self._by_id.values() if one.parent is None and one.variants)

    def find(self, key: Key) -> Variant | None:
        """The variant with this key, or one that covers it; None if there is none."""
        found = self.variants.get(key)
        if found is not None:
            return found
        return self.variants[min(covering)] if (covering := self._tree.covering(key)) else None

    def novelty(self, key: Key) -> float:
        """Least part of its constants that a known key does not share, of the latest ones."""
        latest = reversed(self._lengths.get(len(key), {}).items())
        return novelty(key, islice(latest, COMPARED))

    def insert(self, line: Line, example: str, now: int, *, seeded: bool = False) -> Variant:
        """The variant that counts a line; its rendering then fits the line."""
        rendering = Rendering(line.literals, line.separators)
        known = self.variants.get(line.key)
        if known is not None and known.held and not seeded:
            self._learn(known, line.key, rendering)
            return known
        variant = Variant(line.key, rendering, example, now, held=True, seeded=seeded)
        return self.merge(variant)

    def merge(self, variant: Variant) -> Variant:
        """Take in a variant and its lines; the one that holds them then."""
        key = variant.key
        known = self.variants.get(key) or (None if variant.seeded else self._full(key))
        if known is None:
            self._open(variant)
            known = self.variants.get(key) or self._full(key)  # it may have collapsed at once
            assert known is not None
            return known
        if variant.held:
            self._count_held(known, -1)
            known.add(variant)
            self._count_held(known, 1)
        self._learn(known, key, variant.rendering)
        return known

    def collapse(self, variant: Variant) -> Variant | None:
        """Collapse the variants that share a pattern with this one; None if there are no others."""
        covering = self._tree.covering(variant.key)
        pattern = self.variants[min(covering)] if covering else variant
        covered = [self.variants[key] for key in self._tree.covered(pattern.key)]
        if all(not one.held or one.seeded for one in covered):
            return None
        self._collapse(pattern)
        return pattern

    def evict(self, variant: Variant) -> None:
        """Remove a variant, and its template with its last one."""
        template = variant.template
        assert template is not None
        self._remove(variant)
        if not template.held:
            for pattern in [*template.variants.values()]:
                self._remove(pattern)
            self._n_templates -= 1
            for number in (template.id, *template.aliases):
                del self._by_id[number]

    def resolve(self, number: int) -> int | None:
        """The present id of a template; None if it was evicted or never opened."""
        template = self._by_id.get(number)
        return None if template is None else template.root().id

    def count(self, number: int) -> int:
        """Lines of the template with this id."""
        return self._by_id[number].root().count

    def count_variant(self, key: Key) -> Variant | None:
        """The variant that would count a line with this key; None if it would open one."""
        return self.variants.get(key) or self._full(key)

    def _full(self, key: Key) -> Variant | None:
        """The collapsed variant that counts lines with this key."""
        full = [other for other in self._tree.covering(key) if self.variants[other].collapsed]
        return self.variants[min(full)] if full else None

    def _open(self, variant: Variant) -> None:
        """Add a variant, and the patterns that it opens."""
        waiting = [variant]
        while waiting:
            one = waiting.pop()
            if one.key in self.variants:
                self._learn(self.variants[one.key], one.key, one.rendering)
                continue
            covering = self._connect(one)
            for pattern in self._evidence.add(one.key):
                if pattern not in self.variants:
                    waiting.append(Variant(pattern, one.rendering.under(one.key, pattern)))
            for full in (one, *covering):
                if full.n_covered > MAX_VARIANTS and full.template is not None:
                    self._collapse(full)

    def _connect(self, variant: Variant) -> list[Variant]:
        """Add a variant to the template of those that it covers, or that cover it: the latter."""
        key = variant.key
        covering = [self.variants[other] for other in self._tree.covering(key)]
        covered = [self.variants[other] for other in self._tree.covered(key)]
        self._hold(variant)
        templates = {
            one.template.id: one.template
            for one in (*covering, *covered, *self._same_joined(key))
            if one.template
        }
        if templates:
            template, *others = (templates[number] for number in sorted(templates))
            for other in others:
                template.absorb(other)
            self._n_templates -= len(others)
        else:
            template = self._by_id[self.next_id] = Template(self.next_id)
            self.next_id += 1
            self._n_templates += 1
        template.add(variant)
        for one in covered:
            one.covered = True
            variant.learn(one.key, one.rendering)
        variant.n_covered, variant.covered = len(covered), bool(covering)
        for one in covering:
            one.n_covered += 1
            one.learn(key, variant.rendering)
        return covering

    def _same_joined(self, key: Key) -> list[Variant]:
        """The variants that are this one if adjacent values are one."""
        whole = joined(key)
        keys = self._joined.get(key, ()) if whole == key else (whole,)
        return [self.variants[other] for other in keys if other in self.variants]

    def _hold(self, variant: Variant) -> None:
        key = variant.key
        if (whole := joined(key)) != key:
            self._joined.setdefault(whole, {})[key] = None
        self.variants[key] = variant
        self._tree.add(key)
        self.words.update(key)
        self._lengths.setdefault(len(key), {})[key] = len(key) - key.count(WILD)
        self._count_held(variant, 1)

    def _count_held(self, variant: Variant, change: int) -> None:
        self.n_held += change * variant.held
        self.n_seeds += change * variant.seeded

    def _learn(self, variant: Variant, key: Key, rendering: Rendering) -> None:
        """Let a variant, and those that cover it, fit a rendering as well."""
        if variant.learn(key, rendering):
            for other in self._tree.covering(variant.key):
                self.variants[other].learn(variant.key, variant.rendering)

    def _collapse(self, pattern: Variant) -> None:
        """Count the lines of all that a pattern covers with it, but not seeds."""
        self._count_held(pattern, -1)
        for key in self._tree.covered(pattern.key):
            variant = self.variants[key]
            if not variant.seeded:
                if variant.held:
                    pattern.add(variant)
                self._remove(variant)
        pattern.collapsed = True
        self.n_collapses += 1
        self._count_held(pattern, 1)

    def _remove(self, variant: Variant) -> None:
        assert variant.template is not None
        key = variant.key
        variant.template.remove(variant)
        self._tree.remove(key)
        self._evidence.remove(key)
        if (whole := joined(key)) != key:
            del self._joined[whole][key]
            if not self._joined[whole]:
                del self._joined[whole]
        for token in key:
            self.words[token] -= 1
            if not self.words[token]:
                del self.words[token]
        for other in self._tree.covering(key):
            self.variants[other].n_covered -= 1
        del self.variants[key], self._lengths[len(key)][key]
        self._count_held(variant, -1)

    def state(self) -> dict[str, NDArray[Any]]:
        """What a snapshot keeps: variants in the order in which they opened, and templates."""
        variants = [*self.variants.values()]
        columns: dict[str, NDArray[Any]] = {
            name: np.array([getattr(variant, name) for variant in variants], kind)
            for name, kind in _COLUMNS.items()
        }
        texts = {
            "variants": [
                [one.key, *one.rendering, one.example, one.template.id]
                for one in variants
                if one.template
            ],
            "templates": [[one.id, one.aliases, one.reported] for one in self],
        }
        columns["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
        return columns

    def restore(self, columns: Mapping[str, NDArray[Any]], next_id: int) -> None:
        """Fill this empty set of templates from a snapshot; ValueError if it is inconsistent."""
        self.next_id = int(next_id)
        texts = json.loads(columns["texts"].tobytes())
        if (columns["count"] < 0).any() or np.isnan(columns["usage"]).any():
            raise ValueError("a count is negative, or a usage is NaN")
        for number, aliases, reported in texts["templates"]:
            template = Template(int(number), aliases=[*map(int, aliases)])
            template.reported = None if reported is None else str(reported)
            for one in (template.id, *template.aliases):
                if one in self._by_id or not 0 <= one < self.next_id:
                    raise ValueError("an id was never given, or given twice")
                self._by_id[one] = (
                    template if one == template.id else Template(one, parent=template)
                )
        self._n_templates = len(texts["templates"])
        for row, (key, literals, separators, example, number) in enumerate(texts["variants"]):
            rendering = Rendering(_strings(literals), _strings(separators))
            variant = Variant(_strings(key), rendering, str(example))
            if not len(variant.key) == len(rendering.literals) == len(rendering.separators) - 1:
                raise ValueError("a rendering has more tokens than its key, or fewer")
            if variant.key in self.variants:
                raise ValueError("two variants have one key")
            for name in _COLUMNS:
                setattr(variant, name, columns[name][row].item())
            self._hold(variant)
            self._evidence.add(variant.key)
            self._by_id[number].add(variant)
        for variant in self.variants.values():
            for other in self._tree.covering(variant.key):
                variant.covered = True
                self.variants[other].n_covered += 1
        if not all(one.held for one in self):
            raise ValueError("a template has no lines")


def _strings(tokens: Iterable[str]) -> Key:
    return tuple(map(str, tokens))
