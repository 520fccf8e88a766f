"""Templates of log lines: which variants share one, under which id.

A *variant* is a distinct key with the lines that have it. Variants of one length share a template
if patterns link them. `LengthIndex` holds the patterns of one length, `Templates` all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from math import exp, expm1, inf, log, log1p
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .patterns import (
    NearestKeys,
    PatternIndex,
    Patterns,
    common_key,
    find_patterns,
    find_subsumed,
    group_keys,
    link_keys,
)
from .rendering import Rendering
from .tokenizer import WILD, Key, Line

MAX_VARIANTS = 64  # under a pattern; then they collapse into one, and new values are only counted
MAX_RECENT = 16  # recent keys that are compared at once, in units of the smallest regrouping
CACHED_RENDERINGS, CACHED_LENGTH = 1 << 14, 1000  # rendered lines, and their characters
MIN_VOCABULARY = 1 << 16  # tokens before those of evicted variants are removed
MAX_EXTRA_WORDS = 4  # that a value may have in a rare line
_COLUMNS = {"count": np.int64, "first_seen": np.int64, "last_seen": np.int64, "usage": np.float64}


@dataclass(slots=True, eq=False)
class Variant:
    """The lines with one key: a slot of this memory. The key never changes."""

    key: Key
    rendering: Rendering
    rendered: str  # one of its lines, with literals
    example: str
    first_seen: int
    last_seen: int = -1
    count: int = 0
    usage: float = -inf  # log of the sum of decay ** -t over its lines t, see `add_usage`
    seeded: bool = False  # given by the user, never evicted
    collapsed: tuple[Key, ...] = ()  # patterns of the variants that this one replaced
    template: Template | None = None  # None once evicted
    queued: bool = False  # whether the budget has it in its order of eviction

    @classmethod
    def of(cls, line: Line, example: str, now: int, seeded: bool = False) -> Self:
        """A variant without lines, for the key of this line."""
        rendering = Rendering.of(line)
        return cls(line.key, rendering, line.rendered, example, now, seeded=seeded)

    @classmethod
    def collapse(cls, key: Key, variants: list[Variant], patterns: tuple[Key, ...]) -> Self:
        """One variant for these, with a key that matches them all and the sum of their counts."""
        oldest = min(variants, key=lambda variant: variant.first_seen)
        rendering = oldest.rendering.under(oldest.key, key)
        collapsed = cls(key, rendering, "", oldest.example, oldest.first_seen, collapsed=patterns)
        for variant in variants:
            collapsed.add(variant)
        return collapsed

    def shifted(self, lines: int, decay_rate: float, *, has_usage: bool) -> Variant:
        """A copy without template, as if its lines had come so many lines later.

        Without usage its lines are assumed to be evenly spread.
        """
        copied = replace(self, template=None, queued=False, usage=self.usage + lines * decay_rate)
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

    def count_line(self, now: int) -> bool:
        """Count one more line, of this number; whether it is the first."""
        self.last_seen = now
        self.count += 1
        return self.count == 1

    def use(self, weight: float) -> None:
        """Add a use, of which the weight is given as a logarithm."""
        self.usage = add_usage(self.usage, weight)

    def enqueue(self) -> None:
        """Note that the budget has it in its order of eviction."""
        self.queued = True

    def add(self, other: Variant) -> None:
        """Count the lines of another variant as well."""
        self.rendering = self.rendering.merge(other.rendering.under(other.key, self.key))
        self.count += other.count
        self.usage = add_usage(self.usage, other.usage)
        self.last_seen = max(self.last_seen, other.last_seen)
        if other.first_seen < self.first_seen:
            self.first_seen, self.example = other.first_seen, other.example
        self.seeded = self.seeded or other.seeded
        self.collapsed = tuple(sorted({*self.collapsed, *other.collapsed}))

    def learn(self, rendering: Rendering) -> None:
        """Change the rendering so that it fits one more line."""
        self.rendering = self.rendering.merge(rendering)
        if self.template is not None:
            self.template.learn(self.rendering.under(self.key, self.template.key))


@dataclass(slots=True, eq=False)
class Template:
    """Variants that differ in values only, under an id that never changes."""

    id: int
    key: Key
    variants: list[Variant] = field(default_factory=list)
    parent: Template | None = None  # the template that this one is part of now
    subsumed: list[Template] = field(default_factory=list)  # rarer ones that this one stands for
    aliases: list[int] = field(default_factory=list)  # ids of templates that became this one
    reported: str | None = None  # the text in the last match
    _rendering: Rendering | None = None
    _text: str | None = None

    def add(self, variant: Variant) -> None:
        """Hold one more variant."""
        self.variants.append(variant)
        variant.template = self
        self.learn(variant.rendering.under(variant.key, self.key))

    def remove(self, variant: Variant) -> None:
        """Hold a variant no longer; the text fits those that are left."""
        self.variants.remove(variant)
        variant.template = self._rendering = self._text = None

    def learn(self, rendering: Rendering) -> None:
        """Change the text so that it fits one more rendering."""
        if self._rendering is not None:
            merged = self._rendering.merge(rendering)
            if merged != self._rendering:
                self._rendering, self._text = merged, None

    def reset(self, key: Key, variants: list[Variant]) -> None:
        """Hold these variants and no others, under this key."""
        if key == self.key and variants == self.variants:
            return
        self.key, self.variants, self._rendering, self._text = key, [], None, None
        for variant in variants:
            self.add(variant)

    def separate(self) -> None:
        """Be part of no other template and subsume none."""
        if self.subsumed:
            self._text = None
        self.parent, self.subsumed = None, []

    def subsume(self, other: Template) -> None:
        """Count the lines of another template, which keeps its variants."""
        other.parent, self._text = self, None
        self.subsumed.append(other)

    def replace(self, other: Template) -> None:
        """Stand for a template whose variants are in other templates now."""
        if self.root() is other:
            self.parent = None
        other.variants, other.parent = [], self
        self.aliases += [other.id, *other.aliases]

    def report(self, before: str | None) -> bool:
        """Whether the text is another than in the last match (or than ``before``)."""
        last = before if self.reported is None else self.reported
        self.reported = self.text
        return last not in (None, self.reported)

    @property
    def rendering(self) -> Rendering:
        """What all variants share; there is at least one."""
        if self._rendering is None:
            own = (one.rendering.under(one.key, self.key) for one in self.variants)
            self._rendering = reduce(Rendering.merge, own)
        return self._rendering

    @property
    def text(self) -> str:
        """The template as text."""
        if self._text is None:
            shown = self.rendering
            if self.subsumed:
                # In some lines a value has several words; so a shown literal is a value, too.
                shown = shown.with_one_each()
                pairs = zip(shown.positions, shown.literals, strict=True)
                literals = (WILD if self.key[place] == WILD else text for place, text in pairs)
                shown = shown._replace(literals=tuple(literals))
            self._text = shown.text()
        return self._text

    @property
    def count(self) -> int:
        """Lines in the own variants."""
        return sum(variant.count for variant in self.variants)

    @property
    def all_variants(self) -> list[Variant]:
        """Own variants and those of subsumed templates, oldest first."""
        found = [variant for one in (self, *self.subsumed) for variant in one.variants]
        return sorted(found, key=lambda variant: variant.first_seen)

    @property
    def evicted(self) -> bool:
        """Whether all its variants were evicted."""
        return not self.variants and self.parent is None

    def holder(self) -> Template:
        """The template that holds the variants of this one now, or itself."""
        template = self
        while template.parent is not None and not template.variants:
            template = template.parent
        return template

    def root(self) -> Template:
        """The template that this one is part of now, or itself."""
        template = holder = self
        while template.parent is not None:
            template = template.parent
            holder = template if template.variants else holder
        if (
            template.evicted
        ):  # the variants of the subsuming template were evicted, not the holder's
            template, holder.parent = holder, None
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


class LengthIndex:
    """Variants, patterns and template keys of one length, and when to regroup.

    Templates are made by the ``current`` patterns, which are found anew whenever templates are
    asked for. Variants collapse by the ``frozen`` patterns, which change with the lines only: so
    asking for templates changes no later variant, only ids may become one sooner.
    """

    def __init__(self, length: int, min_values: int) -> None:
        self.variants: dict[Key, Variant] = {}
        self.frozen = self.current = Patterns.empty()
        self.version = 0  # of the frozen patterns
        self.templates: dict[Key, Template] = {}  # by current pattern
        self.nearest = NearestKeys(length)
        self._length = length
        self._step = self._due = 4 * (min_values - 1)  # variants until the next regrouping
        self._n_under: Counter[Key] = Counter()  # variants by frozen pattern
        self._recent: list[Key] = []  # keys since then that no pattern matches

    def freeze(self) -> None:
        """Take the current patterns as frozen."""
        self.frozen, self._recent = self.current, []
        self.version += 1
        self._due = max(self._step, len(self.variants))
        found = map(self.frozen.match, self.variants)
        self._n_under = Counter(pattern for pattern in found if pattern)

    def count_opening(self) -> bool:
        """Count a new variant; whether all are to be regrouped."""
        self._due -= 1
        return self._due <= 0

    def count_under(self, pattern: Key) -> bool:
        """Count a new variant under a pattern; whether those under it are too many."""
        self._n_under[pattern] += 1
        return self._n_under[pattern] > MAX_VARIANTS

    def keys_to_compare(self, key: Key) -> list[Key]:
        """Note a key that no pattern matches; recent ones to compare now, if it is time.

        Of every 16 such keys the 16 (four times ``min_values - 1``), of every 64 the 64, and so on.
        """
        self._recent.append(key)
        rounds, rest = divmod(len(self._recent), self._step)
        if rest:
            return []
        size = 1
        while size < MAX_RECENT and rounds % (4 * size) == 0:
            size *= 4
        return self._recent[-size * self._step :]

    def open(self, patterns: Iterable[Key], template: Template, keys: Iterable[Key]) -> None:
        """Add patterns of a template that match these keys."""
        self.version += 1
        for pattern in patterns:
            self.templates[pattern] = template
            self.frozen.opened.add(pattern)
            self.current.opened.add(pattern)
        self._n_under.update(filter(None, map(self.frozen.match, keys)))

    def add_collapsed(self, pattern: Key) -> None:
        """Note that the variants under a pattern were replaced by one."""
        self.version += 1
        self.frozen.collapsed.add(pattern)
        self.current.collapsed.add(pattern)

    def patterns(self) -> Iterator[Key]:
        """All patterns, frozen and current."""
        return chain(*self.frozen, *self.current)

    def state(self) -> list[Any]:
        """What a snapshot keeps; seeds are known from their variants."""
        frozen, current = (
            [[*index] for index in patterns[1:]] for patterns in (self.frozen, self.current)
        )
        holders = ((pattern, template.holder()) for pattern, template in self.templates.items())
        by_pattern = [[pattern, holder.id] for pattern, holder in holders if holder.variants]
        changed = frozen != current and current
        return [self._due, *frozen, [*self._n_under.items()], self._recent, changed, by_pattern]

    def restore(self, state: list[Any], templates: Mapping[int, Template]) -> None:
        """Continue from a snapshot, once the variants are there."""
        due, collapsed, opened, n_under, recent, current, by_pattern = state
        seeds = [variant.key for variant in self.variants.values() if variant.seeded]
        read = partial(_read_key, length=self._length)

        def patterns(collapsed: list[Any], opened: list[Any]) -> Patterns:
            from_file = (PatternIndex(map(read, keys)) for keys in (collapsed, opened))
            return Patterns(PatternIndex(seeds), *from_file)

        self.frozen = self.current = patterns(collapsed, opened)
        if current:
            self.current = patterns(*current)
        self.templates = {read(pattern): templates[number] for pattern, number in by_pattern}
        if any(len(template.key) != self._length for template in self.templates.values()):
            raise ValueError(f"a pattern of {self._length} tokens has a template of other length")
        self._n_under = Counter({read(key): int(count) for key, count in n_under})
        self._due, self._recent = int(due), [*map(read, recent)]


class Lookup(NamedTuple):
    """Where a key belongs: to a variant, or else to a template by a pattern."""

    variant: Variant | None = None
    template: Template | None = None
    pattern: Key | None = None


class Templates:
    """Templates by id, with their variants.

    The templates are a function of the set of variants and their counts, as long as none was
    collapsed or evicted: the order of the lines does not matter, nor which parser saw them. All are
    regrouped when the number of variants of one length has doubled, and whenever templates are
    asked for.
    """

    def __init__(self, tau: float, min_values: int, subsume_ratio: float) -> None:
        self.variants: dict[Key, Variant] = {}  # in the order in which they opened
        self.vocabulary: set[str] = set()  # tokens of all keys and patterns, and of some evicted
        self.next_id = 0
        self.n_seeds = 0
        self._tau, self._min_values, self._subsume_ratio = tau, min_values, subsume_ratio
        self._by_id: dict[int, Template] = {}
        self._lengths: dict[int, LengthIndex] = {}
        self._stale: set[int] = set()  # lengths whose variants changed since they were grouped
        self._n_roots: int | None = 0
        self._max_vocabulary = MIN_VOCABULARY
        self._fitted: dict[str, Variant] = {}  # rendered lines, by the variant that fits them

    def __iter__(self) -> Iterator[Template]:
        """Templates that are not part of another, oldest first."""
        by_age = (self._by_id[number] for number in sorted(self._by_id))
        return (template for template in by_age if template.root() is template)

    def __len__(self) -> int:
        """Number of templates that are not part of another."""
        if self._n_roots is None:
            self._n_roots = sum(template.root() is template for template in self._by_id.values())
        return self._n_roots

    def count(self, number: int) -> int:
        """Lines of the template with this id."""
        template = self._by_id[number]
        return template.count + sum(part.count for part in template.subsumed)

    def resolve(self, number: int) -> int | None:
        """The present id of a template; None if it was evicted or never existed."""
        template = self._by_id.get(number)
        return None if template is None else template.root().id

    def version(self, length: int) -> int:
        """Changes whenever the frozen patterns of this length change."""
        return self._lengths[length].version

    def novelty(self, key: Key) -> float:
        """Distance of a key from the nearest template of its length, see `patterns.novelty`."""
        index = self._lengths.get(len(key))
        return 1.0 if index is None else index.nearest.novelty(key)

    def lookup(self, key: Key) -> Lookup:
        """Where a key belongs."""
        variant = self.variants.get(key)
        if variant is not None:
            return Lookup(variant, variant.template)
        index = self._lengths.get(len(key))
        pattern = None if index is None else index.current.match(key)
        if index is None or pattern is None:
            return Lookup()
        template = index.templates.get(pattern)
        holder = None if template is None else template.holder()
        return Lookup(None, holder if holder and holder.variants else None, pattern)

    def insert(self, line: Line, found: Lookup, example: str, now: int) -> Variant:
        """The variant of a line that was looked up; a new one if there is none."""
        if found.variant is not None:
            if (rendered := line.rendered) != found.variant.rendered:
                self._fit(found.variant, rendered, line)
            return found.variant
        index = self._index(len(line.key))
        same = index.frozen is index.current
        pattern = found.pattern if same else index.frozen.match(line.key)
        if pattern and (collapsed := self._collapsed_variant(pattern)) is not None:
            return collapsed
        variant = Variant.of(line, example, now)
        template = self._add(variant, found.template)
        if found.pattern and found.template is None:
            index.templates[found.pattern] = template
        if index.count_opening():
            self._regroup(len(line.key))
        elif pattern is None and (keys := index.keys_to_compare(line.key)):
            self._open_patterns(index, keys)
        return variant

    def merge(self, variant: Variant) -> None:
        """Take in a variant from elsewhere: of another parser, or a seed."""
        found = self.lookup(variant.key)
        own = found.variant
        pattern = self._index(len(variant.key)).frozen.match(variant.key)
        if own is None and pattern and not variant.seeded:
            own = self._collapsed_variant(pattern)
        if own is None:
            self._add(variant, None if variant.seeded else found.template)
            return
        self.n_seeds += variant.seeded and not own.seeded
        own.add(variant)
        own.learn(own.rendering)
        self._stale.add(len(variant.key))

    def evict(self, variant: Variant) -> None:
        """Remove a variant, and its template if that was its last."""
        template = variant.template
        assert template is not None
        was_root = template.root() is template
        self._remove(variant, template)
        if template.variants:
            return
        self._index(len(template.key)).nearest.remove(template.id)
        for number in (template.id, *template.aliases):
            self._by_id.pop(number, None)
        template.parent = None
        if template.subsumed:
            self._n_roots = None
        elif self._n_roots is not None:
            self._n_roots -= was_root

    def collapse(self, variant: Variant) -> Variant | None:
        """Replace a variant and all under its pattern by one; None if there are no others."""
        pattern = self._index(len(variant.key)).frozen.match(variant.key)
        return None if pattern is None else self._collapse(pattern)

    def regroup(self) -> None:
        """Group all variants anew and freeze the patterns."""
        for length in self._lengths:
            self._regroup(length)
        self.settle()

    def settle(self) -> None:
        """Group all variants as they are now and find subsumed templates."""
        for length in sorted(self._stale):
            self._group(length)
        held = self._held()
        # Two templates may have one key, by different patterns: the one with more lines counts.
        held.sort(key=lambda template: (template.count, min(one.key for one in template.variants)))
        by_key = {template.key: template for template in held}
        counts = dict.fromkeys(by_key, 0)
        for template in held:
            counts[template.key] += template.count
            template.separate()
        seeds = {variant.key for variant in self.variants.values() if variant.seeded}
        parents = find_subsumed(counts, self._subsume_ratio, MAX_EXTRA_WORDS, seeds)
        for template in held:
            if template.key in parents:
                by_key[parents[template.key]].subsume(template)
        self._n_roots = None

    def _held(self) -> list[Template]:
        """Templates with variants, subsumed or not."""
        return [template for template in self._by_id.values() if template.variants]

    def _add(self, variant: Variant, template: Template | None) -> Template:
        """Add a variant to a template, or to a new one of its own."""
        template = template or self._open(variant.key)
        template.add(variant)
        key = variant.key
        self.variants[key] = self._index(len(key)).variants[key] = variant
        self.vocabulary.update(key)
        self.n_seeds += variant.seeded
        if len(self.vocabulary) > self._max_vocabulary:
            self._shrink_vocabulary()
        self._stale.add(len(key))
        return template

    def _remove(self, variant: Variant, template: Template) -> None:
        key = variant.key
        del self.variants[key], self._lengths[len(key)].variants[key]
        self.n_seeds -= variant.seeded
        self._stale.add(len(key))
        template.remove(variant)

    def _collapsed_variant(self, pattern: Key) -> Variant | None:
        """The variant that counts new values under a pattern, if there have been many."""
        variant = self.variants.get(pattern)
        if variant is not None and variant.collapsed:
            return variant
        return self._collapse(pattern) if self._index(len(pattern)).count_under(pattern) else None

    def _collapse(self, pattern: Key) -> Variant | None:
        index = self._index(len(pattern))
        keys = index.frozen.keys_under(pattern, index.variants)
        variants = [self.variants[key] for key in keys]
        if len(variants) < 2:
            return None
        template = self._unite(variants)
        matching = {one for key in keys for one in index.frozen.opened.matches(key)}
        collapsed = Variant.collapse(pattern, variants, tuple(sorted({pattern} | matching)))
        for variant in variants:
            self._remove(variant, template)
        self._add(collapsed, template)
        index.add_collapsed(pattern)
        return collapsed

    def _unite(self, variants: list[Variant]) -> Template:
        """One template for all variants of the templates that hold these."""
        templates = {one.template.id: one.template for one in variants if one.template}
        if len(templates) > 1:
            united = [variant for one in templates.values() for variant in one.variants]
            self._assign_ids([united])
            self._n_roots = None
        template = variants[0].template
        assert template is not None
        return template

    def _open_patterns(self, index: LengthIndex, keys: list[Key]) -> None:
        """Find patterns among some keys, long before all are regrouped."""
        free = [key for key in keys if key in self.variants and index.frozen.match(key) is None]
        patterns = find_patterns(free, self._tau, self._min_values)
        for group in link_keys(free, patterns):
            if group.patterns:
                template = self._unite([self.variants[key] for key in group.keys])
                index.open(group.patterns, template, group.keys)

    def _shrink_vocabulary(self) -> None:
        """Keep only the tokens of variants and patterns that are held."""
        vocabulary = self.vocabulary
        vocabulary.clear()
        vocabulary.update(*self.variants)
        for index in self._lengths.values():
            vocabulary.update(*index.patterns())
        self._max_vocabulary = max(MIN_VOCABULARY, 2 * len(vocabulary))

    def _fit(self, variant: Variant, rendered: str, line: Line) -> None:
        """Learn one more rendered line of a variant, each once."""
        if self._fitted.get(rendered) is not variant:
            variant.learn(Rendering.of(line))
            if len(self._fitted) >= CACHED_RENDERINGS:
                self._fitted.clear()
            if len(rendered) <= CACHED_LENGTH:
                self._fitted[rendered] = variant

    def _index(self, length: int) -> LengthIndex:
        index = self._lengths.get(length)
        if index is None:
            index = self._lengths[length] = LengthIndex(length, self._min_values)
        return index

    def _regroup(self, length: int) -> None:
        self._group(length)
        self._lengths[length].freeze()

    def _group(self, length: int) -> None:
        """Find the current patterns of a length, and the templates by them."""
        index = self._index(length)
        variants = index.variants
        seeds = [key for key, variant in variants.items() if variant.seeded]
        collapsed = {key: one.collapsed for key, one in variants.items() if one.collapsed}
        index.current, groups = group_keys(variants, seeds, self._tau, self._min_values, collapsed)
        self._assign_ids([[variants[key] for key in group.keys] for group in groups])
        self._n_roots = None
        index.templates = {
            pattern: template
            for group in groups
            for pattern in group.patterns
            if (template := variants[group.keys[0]].template)
        }
        self._stale.discard(length)

    def _assign_ids(self, groups: list[list[Variant]]) -> None:
        """Put each group of variants into one template: the oldest that has one of them, or a new.

        A template without variants becomes part of the one that its first variant went to.
        """
        for variants in groups:
            variants.sort(key=lambda variant: variant.first_seen)
        groups.sort(key=lambda variants: variants[0].first_seen)
        holders = (variant.template for variants in groups for variant in variants)
        free = {template.id: template for template in holders if template}
        first = {number: template.variants[0] for number, template in free.items()}
        for variants in groups:
            ids = [variant.template.id for variant in variants if variant.template]
            oldest = min((number for number in ids if number in free), default=None)
            key = common_key(variant.key for variant in variants)
            template = self._open(key) if oldest is None else free.pop(oldest)
            if key != template.key:
                self._index(len(key)).nearest.put(template.id, key)
            template.reset(key, variants)
        for number, template in free.items():
            successor = first[number].template
            assert successor is not None
            self._index(len(template.key)).nearest.remove(number)
            successor.replace(template)

    def _open(self, key: Key) -> Template:
        template = self._by_id[self.next_id] = Template(self.next_id, key)
        self._index(len(key)).nearest.put(template.id, key)
        self.next_id += 1
        if self._n_roots is not None:
            self._n_roots += 1
        return template

    def state(self) -> dict[str, NDArray[Any]]:
        """What a snapshot keeps: variants in the order in which they opened, and templates."""
        variants, held = list(self.variants.values()), self._held()
        home = {
            one.key: [held_by.id, n] for held_by in held for n, one in enumerate(held_by.variants)
        }
        columns: dict[str, NDArray[Any]] = {
            name: np.array([getattr(variant, name) for variant in variants], kind)
            for name, kind in _COLUMNS.items()
        }
        columns["seeded"] = np.array([variant.seeded for variant in variants], np.bool_)
        texts = {
            "variants": [
                [one.key, *one.rendering, one.rendered, one.example, one.collapsed]
                for one in variants
            ],
            "homes": [home[one.key] for one in variants],  # the template, and the place in it
            "templates": [[one.id, one.key, one.aliases, one.reported] for one in held],
            "subsumed": [
                [one.id, [part.id for part in one.subsumed]] for one in held if one.subsumed
            ],
            "parents": [[one.id, one.root().id] for one in held if one.root() is not one],
            "lengths": [[length, index.state()] for length, index in self._lengths.items()],
        }
        columns["texts"] = np.frombuffer(json.dumps(texts).encode(), np.uint8)
        return columns

    def restore(self, columns: dict[str, NDArray[Any]], next_id: int) -> None:
        """Fill this empty set of templates from a snapshot; ValueError if it is inconsistent."""
        self.next_id = int(next_id)
        texts = json.loads(columns["texts"].tobytes())
        for length, _ in texts["lengths"]:
            self._index(int(length))
        held = {int(row[0]): _read_template(*row) for row in texts["templates"]}
        ids = [number for one in held.values() for number in (one.id, *one.aliases)]
        if len(set(ids)) < len(ids) or not all(0 <= number < self.next_id for number in ids):
            raise ValueError("an id was never given, or given twice")
        if held.keys() != {number for number, _ in texts["homes"]}:
            raise ValueError("a template has no variants, or a variant has no template")
        if (columns["count"] < 0).any() or np.isnan(columns["usage"]).any():
            raise ValueError("a count is negative, or a usage is NaN")
        self._restore_variants(columns, texts, held)
        for number, parent in texts["parents"]:
            held[number].parent = held[parent]
        if any(one.parent and one.parent.parent for one in held.values()):
            raise ValueError("a template is part of one that is itself part of another")
        for number, parts in texts["subsumed"]:
            # Some of them may have no variants any more.
            held[number].subsumed = [held.get(part) or Template(int(part), ()) for part in parts]
        for template in held.values():
            for number in template.aliases:
                self._by_id[number] = Template(number, template.key, parent=template)
            self._by_id[template.id] = template
            self._index(len(template.key)).nearest.put(template.id, template.key)
        for length, state in texts["lengths"]:
            index = self._index(int(length))
            index.restore(state, held)
            self.vocabulary.update(*index.patterns())
        self._n_roots = None

    def _restore_variants(
        self, columns: dict[str, NDArray[Any]], texts: dict[str, Any], held: dict[int, Template]
    ) -> None:
        places = {}
        rows = zip(texts["variants"], texts["homes"], strict=True)
        for row, (saved, (number, place)) in enumerate(rows):
            variant = _read_variant(*saved)
            for name in (*_COLUMNS, "seeded"):
                setattr(variant, name, columns[name][row].item())
            if variant.key in self.variants or len(variant.key) != len(held[number].key):
                raise ValueError("two variants have one key, or a template has another length")
            self._add(variant, held[number])
            places[variant.key] = int(place)
        for template in held.values():
            template.variants.sort(key=lambda variant: places[variant.key])


def _read_template(
    number: int, key: list[str], aliases: list[int], reported: str | None
) -> Template:
    reported = None if reported is None else str(reported)
    return Template(int(number), _strings(key), aliases=[*map(int, aliases)], reported=reported)


def _read_variant(
    key: list[str],
    positions: list[int],
    literals: list[str],
    delimiters: list[str],
    rendered: str,
    example: str,
    collapsed: list[list[str]],
) -> Variant:
    rendering = Rendering(tuple(map(int, positions)), _strings(literals), _strings(delimiters))
    if not len(positions) == len(literals) == len(delimiters) - 1:
        raise ValueError("a rendering has more literals than positions, or fewer")
    if not all(-1 <= place < len(key) for place in positions):
        raise ValueError("a literal is at a position that its key does not have")
    patterns = tuple(_read_key(pattern, len(key)) for pattern in collapsed)
    return Variant(_strings(key), rendering, str(rendered), str(example), 0, collapsed=patterns)


def _read_key(tokens: Collection[str], length: int) -> Key:
    if len(tokens) != length:
        raise ValueError(f"a pattern for keys of {length} tokens has {len(tokens)}")
    return _strings(tokens)


def _strings(tokens: Iterable[str]) -> Key:
    return tuple(map(str, tokens))
