"""The log parser: line -> masked line -> tokens -> variant -> template -> match.

It is not the rule of `rule.py`. A variant is a slot, and novelty, budget, usage and temperature are
those of the paper; but whether lines share a template is decided by patterns and by the evidence
that opens them (see `patterns`), so that it does not depend on the order of the lines.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from heapq import heapify, heappop, heappush
from math import log
from typing import Any, Self

import numpy as np

from .. import snapshot
from ..guard import UpdateGuard
from ..policy import Concentration, check_real
from ..slots import Ints
from .rendering import align
from .templates import Template, Templates, Variant
from .tokenizer import NEW_WORD, WILD, Key, Line, blank, clean, mask, tokenize

KIND = "log parser"
EXAMPLES = 3  # lines shown of a template
MAX_LENGTH = 1000  # characters; longer lines are not cached, and examples are cut
CACHED_LINES, CACHED_MASKED, CACHED_BLANKED = 1 << 14, 1 << 14, 1 << 12
_NOT_CACHED: tuple[Key, Variant | None, int] = (), None, 0
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
SPARE = 64  # entries of evicted variants in the order of eviction, besides one per variant


class LogParser:
    """Finds the templates of log lines as they come, with one setting for every system.

    Lines that differ only in what is a value by its form (numbers, paths, quoted text, structures
    in brackets, ...) share a variant. Variants that differ in one word share a template if
    ``min_distinct_values`` different words are seen there; fewer after a colon, more if that word
    is more than a part ``tau`` of all. Lines are cut to ``max_line`` characters.

    An update that was interrupted (by KeyboardInterrupt, MemoryError, ...) leaves the parser
    unusable: it then refuses to save or to go on. Load the last snapshot.

    >>> parser = LogParser()
    >>> parser.add("Took 25 ms to open /var/log/messages").opened
    True
    >>> match = parser.add("Took 3 ms to open /etc/hosts")
    >>> match.id, match.template, match.parameters
    (0, 'Took <*> ms to open <*>', ('3', '/etc/hosts'))
    >>> parser
    LogParser(tau=0.3, 1 template for 2 lines)
    """

    def __init__(
        self,
        concentration: Concentration | None = None,
        *,
        min_distinct_values: int = 5,
        max_line: int = 10_000,
    ) -> None:
        """Start empty; a budget in the concentration bounds the number of variants."""
        self.concentration = Concentration.fixed(0.3) if concentration is None else concentration
        if self.concentration.tau > 1:
            raise ValueError(
                f"tau is the part of the words that may differ, at most 1 for lines; "
                f"got {self.concentration.tau}"
            )
        for name, number, least in (
            ("min_distinct_values", min_distinct_values, 2),
            ("max_line", max_line, 1),
        ):
            check_real(name, number)
            if number < least:
                raise ValueError(f"{name} must be at least {least}, got {number}")
        self.min_distinct_values = int(min_distinct_values)
        self.max_line = int(max_line)
        self.seen = 0
        self.note: dict[str, Any] = {}  # JSON of the caller, saved with the parser

        self._guard = UpdateGuard("log parser")
        self._templates = Templates(self.concentration.tau, self.min_distinct_values)
        self._cache = LineCache(self.max_line)
        self._budget = Budget(self.concentration, self._templates)
        self._bounded = self.concentration.bounded

    def add(self, line: str | bytes) -> LogMatch:
        """Take in one line; any text is a line, and bytes are read as UTF-8."""
        variant = self._cache.find(line)
        if variant is None:
            return self._add_new(line)
        guard = self._guard  # as by ``with``, but most lines come here, and that is slower
        if guard.dirty:
            guard.check()
        guard.dirty = True
        match = self._report(variant, line)
        guard.dirty = False
        return match

    def _add_new(self, line: str | bytes) -> LogMatch:
        """Take in a line that is not cached."""
        text, masked = self._cache.read(line)
        with self._guard:
            variant = self._cache.find_masked(text, masked) or self._find_blanked(masked)
            if variant is not None:
                return self._report(variant, text)
            read = tokenize(masked)
            known = self._templates.find(read.key)
            before = None if known is None or known.template is None else known.template.text
            next_id = self._templates.next_id
            novelty = 0.0 if before is not None else self._templates.novelty(read.key)
            variant = self._insert(text, masked, read)
            match = self._report(variant, text, before)
            match.novelty, match.opened = novelty, match.id >= next_id
            match.changed = match.changed and not match.opened
            return match

    def add_many(self, lines: Iterable[str | bytes]) -> Ints:
        """Take in lines; the id of each after the last one, -1 if it was evicted by then."""
        rows = _rows(lines)
        find, templates = self._cache.find, []
        with self._guard:
            for line in rows:
                variant = find(line)
                if variant is None:
                    text, masked = self._cache.read(line)
                    variant = self._cache.find_masked(text, masked) or self._find_blanked(masked)
                    if variant is None:
                        variant = self._insert(text, masked, tokenize(masked))
                templates.append(self._count(variant).template)
            ids: dict[Template | None, int] = {None: -1}
            for template in set(templates):
                if template is not None:
                    root = template.root()
                    ids[template] = root.id if root.variants else -1
            return np.array([ids[template] for template in templates], np.int64)

    def match(self, line: str | bytes) -> LogMatch | None:
        """The template that a line belongs to, or None; nothing changes."""
        self._guard.check()
        variant = self._cache.find(line)
        if variant is None:
            line, masked = self._cache.text(line)
            found = self._cache.find_masked(line, masked)
            variant = found or self._templates.find(tokenize(masked).key)
        template = None if variant is None else variant.template
        return None if template is None else LogMatch(template.id, template.text, line)

    def templates(self) -> list[LogTemplate]:
        """All templates, oldest first."""
        self._guard.check()
        rows = map(LogTemplate.of, self._templates)
        return sorted(rows, key=lambda row: (row.first_seen, row.id))

    def resolve(self, number: int) -> int | None:
        """The present id of the template that had this id; None if it was evicted."""
        return self._templates.resolve(number)

    def seed(self, templates: Iterable[str]) -> list[int]:
        """Add templates before their first line, and never evict them; their ids.

        A template that another one covers becomes part of it.
        """
        read = [self._cache.text(template) for template in _rows(templates)]
        with self._guard:
            seeds = []
            for text, masked in read:
                line = tokenize(masked)
                seeds.append(
                    self._templates.insert(line, text[:MAX_LENGTH], self.seen, seeded=True)
                )
            self._budget.rebuild()
        return [_id(seed) for seed in seeds]

    def absorb(self, other: LogParser) -> dict[int, int]:
        """Merge another parser into this one; the id here of each of its ids.

        The result is that of one parser that saw the lines of this one and then those of the other.
        Exceptions: a pattern that covers more than 64 variants counts new values without keeping
        them, and a budget evicts variants.
        """
        if other is self:
            raise ValueError("a parser cannot absorb itself; to count lines twice, load it twice")
        with_decay = self._bounded and other._bounded  # otherwise one of them counts no usage
        ours, theirs = self._setting(with_decay), other._setting(with_decay)
        if ours != theirs:
            raise ValueError(f"parsers must have the same setting, got {ours} and {theirs}")
        other._guard.check()
        with self._guard:
            first = {one.id: one.held[0].key for one in other._templates}
            for variant in [*other._templates.variants.values()]:
                copied = self._budget.adopt(variant, other._budget, self.seen)
                self._templates.merge(copied)
            self._budget.merge(other._budget, self.seen, other.seen)
            self.seen += other.seen
            self._cache.absorb(other._cache)
            self._budget.rebuild()
            self._budget.evict(self.seen)
        found = {number: self._templates.find(key) for number, key in first.items()}
        ids = {number: -1 if one is None else _id(one) for number, one in found.items()}
        return {number: here for number, here in ids.items() if here >= 0}

    def add_log_message(self, line: str | bytes) -> dict[str, Any]:
        """Take in one line and answer like ``TemplateMiner`` of Drain3."""
        match = self.add(line)
        change = "cluster_template_changed" if match.changed else "none"
        return {
            "change_type": "cluster_created" if match.opened else change,
            "cluster_id": match.id,
            "cluster_size": self._templates.count(match.id),
            "template_mined": match.template,
            "cluster_count": len(self._templates),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parser to one file, atomically; it knows how many lines it has seen."""
        self._guard.check()
        state = {
            "concentration": asdict(self.concentration),
            "setting": {
                "min_distinct_values": self.min_distinct_values,
                "max_line": self.max_line,
            },
            "counters": [self.seen, self.truncated],
            "budget": self._budget.state(),
            "next_id": self._templates.next_id,
            "note": self.note,
        }
        snapshot.save(path, KIND, self._templates.state(), state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The parser that was saved; a damaged or foreign file raises `SnapshotError`."""
        tensors, state = snapshot.load(path, KIND)
        try:
            parser = cls(Concentration(**state["concentration"]), **state["setting"])
            parser._templates.restore(tensors, state["next_id"])
            parser.seen, truncated = map(int, state["counters"])
            parser._cache.restore(truncated)
            parser._budget.restore(state["budget"], parser.seen)
            parser.note = dict(state["note"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise snapshot.SnapshotError(f"{path} does not describe a parser: {error!r}") from error
        return parser

    def __copy__(self) -> Self:
        """An independent copy."""
        return copy.deepcopy(self)

    def __len__(self) -> int:
        """Number of templates."""
        return len(self._templates)

    def __repr__(self) -> str:
        """Policy and sizes."""
        budget = f", budget {self.budget:.4g}" if self._bounded else ""
        templates = f"{len(self)} template{'s' * (len(self) != 1)}"
        return (
            f"LogParser(tau={self.concentration.tau:g}{budget}, {templates} for {self.seen} lines)"
        )

    @property
    def temperature(self) -> float:
        """How often variants opened lately, in [0, 1] (paper, eq. 4)."""
        return self._budget.temperature(self.seen)

    @property
    def budget(self) -> float:
        """Variants allowed now (paper, eq. 5)."""
        return self._budget.limit(self.seen)

    @property
    def n_opened(self) -> int:
        """Templates opened so far, with those that were merged or evicted since."""
        return self._templates.next_id

    @property
    def n_variants(self) -> int:
        """Variants held now: what the budget bounds."""
        return self._templates.n_held

    @property
    def truncated(self) -> int:
        """Lines that were cut to ``max_line``."""
        return self._cache.truncated

    @property
    def forgotten(self) -> int:
        """Lines in templates that were evicted."""
        return self._budget.forgotten

    def _setting(self, with_decay: bool) -> dict[str, float]:
        setting = {
            "tau": self.concentration.tau,
            "min_distinct_values": self.min_distinct_values,
        }
        return setting | ({"decay": self.concentration.decay} if with_decay else {})

    def _find_blanked(self, masked: str) -> Variant | None:
        return self._cache.find_blanked(masked, self._templates)

    def _insert(self, text: str, masked: str, line: Line) -> Variant:
        variant = self._templates.insert(line, text[:MAX_LENGTH], self.seen)
        self._cache.store_blanked(line, variant, self._templates.n_collapses)
        self._cache.store(text, masked, variant)
        return variant

    def _report(self, variant: Variant, line: str | bytes, before: str | None = None) -> LogMatch:
        """Count a line; its match, ``changed`` if the text differs from that of the last match."""
        template = self._count(variant).template
        assert template is not None
        text = template.text
        match = LogMatch(template.id, text, line)
        if template.reported is not text:
            match.changed = template.report(before)
        return match

    def _count(self, variant: Variant) -> Variant:
        """Count one more line of a variant; the variant that holds the line after eviction."""
        now = self.seen
        self.seen = now + 1
        variant.last_seen = now
        variant.count += 1
        if variant.count == 1:
            self._budget.record_opening(self.seen)
        return self._budget.use(variant, self.seen) if self._bounded else variant


class LogMatch:
    """The template of a line and its id.

    ``opened``: this line opened the template. ``changed``: the text of the template is not that of
    the match before. ``novelty``: the distance of the line from the nearest template known before,
    which is the part of its constant words that the line does not have; 0 if the line belongs to a
    known template, 1 if no template has as many words.
    """

    __slots__ = ("_line", "changed", "id", "novelty", "opened", "template")

    def __init__(self, number: int, template: str, line: str | bytes) -> None:
        self.id, self.template, self._line = number, template, line
        self.novelty, self.opened, self.changed = 0.0, False, False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The values in the line, in the order of the wildcards of the template.

        The template with these values is the line, without colours of a terminal. The values are
        those of the whole line if that does not fit: only `match` has seen it.
        """
        line = self._line if isinstance(self._line, str) else _decode(self._line)
        line = clean(line)
        found = align(self.template, line)
        return (line,) if found is None else found

    def __repr__(self) -> str:
        """All fields."""
        return (
            f"LogMatch(id={self.id}, template={self.template!r}, parameters={self.parameters}, "
            f"novelty={self.novelty:.3g}, opened={self.opened}, changed={self.changed})"
        )


def _id(variant: Variant) -> int:
    return -1 if variant.template is None else variant.template.id


@dataclass(frozen=True, slots=True)
class LogTemplate:
    """A template: its text, its lines, the first and the last of them, and some examples."""

    id: int
    template: str
    count: int
    first_seen: int
    last_seen: int
    examples: tuple[str, ...]

    @classmethod
    def of(cls, template: Template) -> Self:
        """A template as it is now."""
        variants = template.held
        return cls(
            template.id,
            template.text,
            sum(variant.count for variant in variants),
            variants[0].first_seen,
            max(variant.last_seen for variant in variants),
            tuple(variant.example for variant in variants[:EXAMPLES]),
        )


def _rows(lines: Iterable[str | bytes]) -> list[str | bytes]:
    """Lines as a list; a wrong type is refused before any line is counted."""
    if isinstance(lines, (str, bytes, bytearray)):
        kind = type(lines).__name__
        raise TypeError(f"expected several lines, got one {kind}; put it in a list: [line]")
    rows = [*lines]
    if {*map(type, rows)} <= {str, bytes}:
        return rows
    for number, line in enumerate(rows):
        if not isinstance(line, (str, bytes)):
            raise TypeError(f"a line is str or bytes, got {type(line).__name__} at {number}")
    return rows


class LineCache:
    """Variants by line and by masked line, so that most lines are neither masked nor tokenized.

    Which digit a digit is decides nothing: lines that are equal with 0 for every digit have the
    same masked text, if that has no digits. So most new lines are not masked either.

    Where all places of new words are values of a collapsed variant, it is found by the masked line
    without them.
    """

    def __init__(self, max_line: int) -> None:
        self.truncated = 0  # lines that were cut
        self._max_line = max_line
        self._longest = min(max_line, MAX_LENGTH)  # characters of a line that is cached
        self._lines: dict[str | bytes, Variant] = {}
        self._zeroed: dict[bytes, Variant] = {}  # by line with 0 for every digit, in UTF-8
        self._zeroed_line = b""  # the last line so
        self._masked: dict[str, tuple[Variant, bool]] = {}  # with whether there are no digits
        # With a key that has such a line, and how many variants had collapsed then.
        self._blanked: dict[str, tuple[Key, Variant | None, int]] = {}
        self._blank, self._unknown = "", list[str]()  # of the last line: the text, its new words

    def find(self, line: str | bytes) -> Variant | None:
        """The variant of a line that was seen before, or of one that differs in digits only."""
        variant = self._lines.get(line)
        if variant is None or variant.template is None:
            self._zeroed_line = self._zero(line)
            variant = self._zeroed.get(self._zeroed_line)
        return None if variant is None or variant.template is None else variant

    def _zero(self, line: str | bytes) -> bytes:
        """The line with 0 for every digit; nothing for one that is not cached."""
        if not isinstance(line, (str, bytes)) or len(line) > self._longest:
            return b""
        data = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        return data.translate(_ZEROS)

    def find_masked(self, text: str, masked: str) -> Variant | None:
        """The variant of a masked line that was seen before."""
        variant, without_digits = self._masked.get(masked, (None, False))
        if variant is None or variant.template is None:
            return None
        self._store_line(text, variant, without_digits)
        return variant

    def find_blanked(self, masked: str, templates: Templates) -> Variant | None:
        """The variant of a masked line that differs from a known one in new words only."""
        self._blank, self._unknown = "", []
        if not templates.n_collapses:
            return None
        self._blank, self._unknown = blank(masked, templates.words)
        key, variant, n_collapses = self._blanked.get(self._blank, _NOT_CACHED)
        if variant is None or variant.template is None:
            return None
        if n_collapses != templates.n_collapses:  # another one may have these lines now
            if templates.count_variant(key) is not variant:
                return None
            self._blanked[self._blank] = key, variant, templates.n_collapses
        return variant

    def store_blanked(self, line: Line, variant: Variant, n_collapses: int) -> None:
        """Cache the variant of the last line, if it is the same whatever the new words are."""
        new = self._unknown
        if not new:
            return
        values = [
            text for token, text in zip(line.key, line.literals, strict=True) if token == WILD
        ]
        shown = any(word in text for word in new for text in values)
        if not shown and (variant.collapsed or not set(new).intersection(line.key)):
            key = tuple([NEW_WORD if token in new else token for token in line.key])
            self._store(self._blanked, CACHED_BLANKED, self._blank, (key, variant, n_collapses))

    def store(self, text: str, masked: str, variant: Variant) -> None:
        """Cache the variant of a line."""
        without_digits = not any(map(masked.__contains__, "0123456789"))
        self._store_line(text, variant, without_digits)
        self._store(self._masked, CACHED_MASKED, masked, (variant, without_digits))

    def _store_line(self, text: str, variant: Variant, without_digits: bool) -> None:
        self._store(self._lines, CACHED_LINES, text, variant)
        if without_digits and self._zeroed_line:
            self._store(self._zeroed, CACHED_LINES, self._zeroed_line, variant)

    def read(self, line: str | bytes) -> tuple[str, str]:
        """The line as text of bounded length, and masked; counted if it was cut."""
        text = self._decoded(line)
        if len(text) > self._max_line:
            self.truncated += 1
            text = text[: self._max_line]
        return text, mask(clean(text))

    def text(self, line: str | bytes) -> tuple[str, str]:
        """The line as text of bounded length, and masked."""
        text = self._decoded(line)[: self._max_line]
        return text, mask(clean(text))

    def _decoded(self, line: str | bytes) -> str:
        """The line as text, at least one character longer than the most if it is too long."""
        if isinstance(line, str):
            return str(line)
        if not isinstance(line, bytes):
            raise TypeError(f"a line is str or bytes, got {type(line).__name__}")
        return _decode(line[: 4 * self._max_line + 4])

    def absorb(self, other: LineCache) -> None:
        """Count the lines that another one cut; its cached variants are not taken over."""
        self.truncated += other.truncated

    def restore(self, truncated: int) -> None:
        """Continue from a snapshot."""
        self.truncated = truncated

    @staticmethod
    def _store(cache: dict[Any, Any], most: int, text: str | bytes, variant: object) -> None:
        if len(text) <= MAX_LENGTH:
            if len(cache) >= most:
                cache.clear()
            cache[text] = variant


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace")


class Budget:
    """Temperature, usage and eviction of variants (paper, eqs. 4-6).

    Evicting from a template with several variants collapses them into one; evicting the last one
    forgets the template. Seeds are kept and do not count.
    """

    def __init__(self, concentration: Concentration, templates: Templates) -> None:
        self.concentration = concentration
        self.forgotten = 0  # lines in evicted variants
        self._temperature, self._updated_at = 0.0, 0  # after so many lines
        self._decay_rate = -log(concentration.decay)  # see `add_usage`
        self._templates = templates
        self._order: list[tuple[float, int, int, Variant]] = []  # a heap, may have outdated usage
        self._n_pushed = 0

    def temperature(self, lines: int) -> float:
        """How often variants opened lately, after so many lines (paper, eq. 4)."""
        return self._temperature * (1 - self.concentration.rate) ** (lines - self._updated_at)

    def limit(self, lines: int) -> float:
        """Variants allowed after so many lines (paper, eq. 5)."""
        return self.concentration.base + self.concentration.gain * self.temperature(lines)

    def record_opening(self, lines: int) -> None:
        """The last of these lines opened a variant, or was the first of a seed."""
        rate = self.concentration.rate
        self._temperature, self._updated_at = self.temperature(lines) + rate, lines

    def merge(self, other: Budget, lines: int, other_lines: int) -> None:
        """Add the temperature of another parser whose lines came after ours."""
        cooled = self.temperature(lines) * (1 - self.concentration.rate) ** other_lines
        self._temperature = min(1.0, cooled + other.temperature(other_lines))
        self._updated_at = lines + other_lines
        self.forgotten += other.forgotten

    def adopt(self, variant: Variant, other: Budget, lines: int) -> Variant:
        """A copy of a variant of another parser, as if its lines had come so many lines later.

        Without a budget usage is not counted.
        """
        return variant.shifted(lines, self._decay_rate, has_usage=other.concentration.bounded)

    def rebuild(self) -> None:
        """Build the order of eviction from all variants."""
        self._order.clear()
        for variant in self._templates.variants.values():
            if variant.held:
                self._push(variant)

    def use(self, variant: Variant, lines: int) -> Variant:
        """Count the last line as usage and evict; the variant that holds the line after that."""
        variant.use(lines * self._decay_rate)
        if not variant.queued:
            self._push(variant)
        return self.evict(lines, variant) or variant

    def evict(self, lines: int, spared: Variant | None = None) -> Variant | None:
        """Evict the least used until the limit holds; ``spared``, or what it collapsed into."""
        limit = self.limit(lines) + self._templates.n_seeds
        aside = []
        while self._templates.n_held > limit and self._order:
            usage, _, _, worst = heappop(self._order)
            if worst.template is None:
                continue
            if worst.usage != usage:
                self._push(worst)
            elif (collapsed := self._templates.collapse(worst)) is not None:
                self._push(collapsed)
                replaced = spared is not None and spared.template is None
                spared = collapsed if replaced else spared
            elif worst is spared:
                aside.append(worst)
            else:
                self.forgotten += worst.count
                self._templates.evict(worst)
        for variant in aside:
            self._push(variant)
        return spared

    def state(self) -> list[float]:
        """What a snapshot keeps."""
        return [self._temperature, self._updated_at, self.forgotten]

    def restore(self, state: list[float], lines: int) -> None:
        """Continue from a snapshot, once the variants are there."""
        temperature, updated_at, forgotten = state
        self._temperature, self._updated_at = float(temperature), int(updated_at)
        self.forgotten = int(forgotten)
        if not 0 <= self._temperature <= 1:
            raise ValueError(f"the temperature is {temperature}, not in [0, 1]")
        counted = sum(one.count for one in self._templates.variants.values()) + self.forgotten
        if lines != counted or self._updated_at > lines:
            raise ValueError(f"{lines} lines were seen, but {counted} are counted")
        self.rebuild()

    def _push(self, variant: Variant) -> None:
        if self.concentration.bounded and not variant.seeded:
            if len(self._order) > 2 * len(self._templates.variants) + SPARE:
                self._order = [one for one in self._order if one[-1].template is not None]
                heapify(self._order)
            variant.enqueue()
            self._n_pushed += 1
            heappush(self._order, (variant.usage, variant.last_seen, self._n_pushed, variant))
