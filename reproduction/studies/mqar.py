"""Ours, beyond the paper: redundant multi-query associative recall by models trained end to end.

Each of K items comes r times in random order and is then asked for once: 2 K (r + 1) tokens. All
models have a Mamba-2 block first and are trained alike (`mqar_models`). They are then asked for
more items and longer sequences without training again; KVM-like and OVQ-like rules get the bytes
that ours held, at every size. A graphics card runs the large size, if the run is a full one.

In every attention a key starts as the token before its own, and may learn to be another
(`nn.Heads`, ``lag=1``). Where it starts as its own token (``lag=0``), recall forms later and
opens more slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

from .device import Told, device, result_of
from .mqar_words import HEADINGS, LABELS, reading
from .result import Measure, Result, Role, Row, Series, Setting
from .study import FULL, Progress, Scale, silent

if TYPE_CHECKING:
    from .mqar_asking import Numbers
    from .mqar_models import Found, Size

TITLE = "Recall by trained models, against the bytes they hold"
QUESTION = (
    "Trained on sequences that name a few items several times, how many items can a model recall, "
    "in how many bytes, and does it go on where its training ended?"
)
SEEDS = 3  # the first three of those asked for, and two in a quick run


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of second block."""

    name: str
    label: str
    setting: str
    role: Role = "added"


CASES = (
    Case("mass", "SSM + slots, mass read", "tau .15, mean values", "cache"),
    Case("first", "SSM + slots, distinct read", "tau .15, first values", "cache"),
    Case("kvm", "SSM + KVM-like slots", "as many bytes as mass, in chunks"),
    Case("ovq", "SSM + OVQ-like slots", "as many bytes as mass, in chunks"),
    Case("full", "SSM + full attention", "keeps every token"),
    Case("window", "SSM + window", "keeps the last tokens"),
    Case("mamba2", "Mamba-2", "two blocks of it"),
    Case("delta", "SSM + Gated DeltaNet", "two heads, values twice as wide as keys"),
)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    fixed: dict[str, Setting] = {"scale": scale.name, "seeds_used": n_seeds(scale)}
    if find_spec("torch") is None:
        return {**fixed, "device": device()}
    from .mqar_asking import asked

    size = size_of(scale)
    sizes: dict[str, Setting] = {
        name: value if isinstance(value, int | float) else str(value)
        for name in size.__dataclass_fields__
        for value in [getattr(size, name)]
    }
    return {**fixed, **sizes, "tau": 0.15, "sequences_asked": asked(64), "device": device()}


def n_seeds(scale: Scale) -> int:
    """How many of the seeds are used."""
    return max(2, scale.of(SEEDS))


def size_of(scale: Scale) -> Size:
    """The large size on a graphics card; on the processor the small one, trained longer in full."""
    from .mqar_models import LARGE, SMALL

    if scale.part < 1:
        return SMALL
    return LARGE if device() == "cuda" else replace(SMALL, steps=2 * SMALL.steps)


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every model from every seed, and ask."""

    def tell(used: tuple[int, ...]) -> Told:
        size, total, done = size_of(scale), len(used) * len(CASES), count(1)
        found = [measure(seed, size, lambda: progress(next(done), total)) for seed in used]
        rows = rows_of(found)
        said = reading({(row.table, row.name): row for row in rows}, size, len(used))
        return Told(rows, said, HEADINGS, series(found, size))

    return result_of("mqar", seeds, scale, tell)


def measure(seed: int, size: Size, tick: Callable[[], None]) -> Numbers:
    """All tables of one seed."""
    from . import mqar_models as models
    from .mqar_asking import answers, kinds, served

    numbers: dict[tuple[str, str], Mapping[str, float]] = {}
    ours: Mapping[tuple[int, int], Found] = {}
    for case in CASES:
        each = ours[size.asked[0]].slots / size.asked[0][0] if ours else 1.0
        model = models.trained(case.name, seed, size, device(), each)
        found = answers(model, size, seed, {at: one.bytes for at, one in ours.items()})
        ours = ours or found
        numbers["recall", case.name] = {_column(*at): one.recall for at, one in found.items()}
        numbers["bytes", case.name] = {_column(*at): one.bytes for at, one in found.items()}
        numbers["kinds", case.name] = kinds(model, size, seed)
        if case.name == "mass":
            numbers.update(served(model, size, seed))
        if case.name == "full":
            numbers.update(_paper(ours, found, size))
        tick()
    return numbers


def _column(items: int, tokens: int) -> str:
    return f"K={items} r={tokens // (2 * items) - 1}"


def _paper(ours: Mapping[tuple[int, int], Found], full: Mapping[Any, Found], size: Size) -> Numbers:
    """What the paper says of recall at fourfold redundancy, of mass against attention."""
    first, longer, most = size.asked[0], size.asked[1], size.asked[4]
    numbers = {
        "attention": ours[first].recall - full[first].recall,
        "beyond": ours[most].recall - full[most].recall,
        "items": ours[first].slots / first[0],
        "reduction": full[first].slots / ours[first].slots,
        "length": ours[longer].slots / ours[first].slots,
        "growth": (ours[most].slots / most[0]) / (ours[first].slots / first[0]),
    }
    return {("paper", name): {"number": number} for name, number in numbers.items()}


def rows_of(found: Sequence[Numbers]) -> tuple[Row, ...]:
    """Means over seeds, table by table."""
    cases = {case.name: case for case in CASES}
    rows = []
    for table in HEADINGS:
        for place in (place for place in found[0] if place[0] == table):
            case = cases.get(place[1])
            measures = {
                name: Measure.of([one[place][name] for one in found]) for name in found[0][place]
            }
            label = case.label if case else LABELS.get(place, f"tau {place[1]}")
            setting, role = (case.setting, case.role) if case else ("mass", "cache")
            rows.append(Row(place[1], label, measures, setting, role, table))
    return tuple(rows)


def series(found: Sequence[Numbers], size: Size) -> tuple[Series, ...]:
    """Recall against bytes as items grow and each comes as often as in training."""
    columns = [
        _column(*at) for at in size.asked if at[1] // at[0] == size.tokens // max(size.items)
    ]
    lines = []
    for case in CASES:
        recalls = [Measure.of([one["recall", case.name][c] for one in found]) for c in columns]
        held = [Measure.of([one["bytes", case.name][c] for one in found]) for c in columns]
        lines.append(
            Series(
                case.name,
                case.label,
                tuple(one.mean for one in held),
                tuple(one.mean for one in recalls),
                tuple(one.sd for one in recalls),
            )
        )
    return tuple(lines)
