"""Not in the paper: redundant multi-query associative recall by models trained end to end.

Each of K items comes r times in random order and is then asked for once: 2 K (r + 1) tokens. All
models have a Mamba-2 block first and are trained alike (`mqar_models`). They are then evaluated on
more items and longer sequences without training again; KVM-like and OVQ-like rules get the bytes
that ours held, at every size. A full run on a graphics card uses the large size.

In every attention a key starts as the token before its own, and may learn to be another
(`nn.Heads`, ``lag=1``). Where it starts as its own token (``lag=0``), recall forms later and
opens more slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch

from distinctkv.nn import HybridLM, Reading
from distinctkv.nn.train import set_tau

from ..result import Measure, Result, Role, Row, Series, Setting
from . import Progress
from . import mqar_models as models
from .findings import paragraphs
from .mqar_models import LARGE, SMALL, Score, Size
from .runner import FULL, Outcome, Scale, device, run_training, silent
from .sweep import Method

TITLE = "Recall by trained models, against the bytes they hold"
QUESTION = (
    "Trained on sequences that name a few items several times, how many items can a model recall, "
    "in how many bytes, and does it go on where its training ended?"
)
HEADINGS = {
    "distinct": "What the paper says of distinct items, in models that it does not have",
    "recall": "Recall of K items that each came r times; the first column is as in training",
    "bytes": "Bytes held at the end of such a sequence, both blocks",
    "kinds": "Recall of other kinds of sequences, no model trained on them",
    "tau": "One trained model of slots at other thresholds",
    "bits": "The same model with slots of fewer bits",
}
LABELS: Mapping[tuple[str, str], str] = {
    ("distinct", "attention"): "Recall less attention's, as trained",
    ("distinct", "beyond"): "Recall less attention's, at the most items",
    ("distinct", "items"): "Slots per item",
    ("distinct", "reduction"): "Tokens per slot, each item four times",
    ("distinct", "length"): "Slots in a longer sequence of the same items, to those as trained",
    ("distinct", "growth"): "Slots per item at the most items, to those as trained",
    ("kinds", "newest"): "SSM + slots, mass read, newest values",
    ("bits", "float32"): "32 bits, mean values",
    ("bits", "bfloat16"): "keys of 16 bits, mean values of 32",
    ("bits", "float32_first"): "32 bits, first values",
    ("bits", "bfloat16_first"): "16 bits, first values",
}
SEEDS = 3  # the first three of those asked for, and two in a quick run
TAUS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
PARTS = (0.75, 0.6, 0.5)  # of our bytes, for a rule with a schedule
BITS: Mapping[str, tuple[str, Any]] = {  # data type of keys, and which value a slot reads
    "float32": ("float32", "mean"),
    "bfloat16": ("bfloat16", "mean"),
    "float32_first": ("float32", "first"),
    "bfloat16_first": ("bfloat16", "first"),
}
Numbers = Mapping[tuple[str, str], Mapping[str, float]]  # (table, row) -> measure -> number
Place = tuple[int, int]  # items, tokens


def _method(name: str, label: str, setting: str, role: Role = "added") -> Method:
    return Method(name, label, setting, partial(models.make_model, name), role=role)


METHODS = (
    _method("mass", "SSM + slots, mass read", "tau .15, mean values", "cache"),
    _method("first", "SSM + slots, distinct read", "tau .15, first values", "cache"),
    _method("kvm", "SSM + KVM-like slots", "as many bytes as mass, in chunks"),
    _method("ovq", "SSM + OVQ-like slots", "as many bytes as mass, in chunks"),
    _method("full", "SSM + full attention", "keeps every token"),
    _method("window", "SSM + window", "keeps the last tokens"),
    _method("mamba2", "Mamba-2", "two blocks of it"),
    _method("delta", "SSM + Gated DeltaNet", "two heads, values twice as wide as keys"),
)


QUICK = ("mass", "kvm", "full", "mamba2")  # the methods of a quick run


def methods(scale: Scale) -> tuple[Method, ...]:
    """All methods; in a quick run the models that the others are variants of."""
    return tuple(one for one in METHODS if scale.part == 1 or one.name in QUICK)


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    size = size_of(scale)
    sizes: dict[str, Setting] = {
        name: value if isinstance(value, int | float) else str(value)
        for name in size.__dataclass_fields__
        for value in [getattr(size, name)]
    }
    return {
        "scale": scale.name,
        "seeds_used": n_seeds(scale),
        **sizes,
        "tau": 0.15,
        "sequences_asked": n_sequences(64),
        "device": device(),
    }


def n_seeds(scale: Scale) -> int:
    """How many of the seeds are used."""
    return max(2, scale.of(SEEDS))


def n_sequences(tokens: int) -> int:
    """Sequences of that many tokens to evaluate on."""
    return 32 if tokens <= 512 else 4


def size_of(scale: Scale) -> Size:
    """The large size on a graphics card; on the processor the small one, trained longer in full."""
    if scale.part < 1:
        return SMALL
    return LARGE if device() == "cuda" else replace(SMALL, steps=2 * SMALL.steps)


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Train every model from every seed, and evaluate it."""

    def measure_all(used: tuple[int, ...]) -> Outcome:
        chosen = methods(scale)
        size, total, done = size_of(scale), len(used) * len(chosen), count(1)
        found = [measure(seed, size, chosen, lambda: progress(next(done), total)) for seed in used]
        rows = rows_of(found)
        return Outcome(rows, _findings(rows, size), HEADINGS, series(found, size))

    return run_training("mqar", seeds, scale, measure_all)


def measure(seed: int, size: Size, methods: Sequence[Method], tick: Callable[[], None]) -> Numbers:
    """All tables of one seed."""
    numbers: dict[tuple[str, str], Mapping[str, float]] = {}
    ours: Mapping[Place, Score] = {}
    for method in methods:
        slots_per_item = ours[size.asked[0]].slots / size.asked[0][0] if ours else 1.0
        model = models.train_model(method.make, seed, size, device(), slots_per_item)
        n_bytes = {place: one.bytes for place, one in ours.items()}
        found = evaluate_sizes(model, size, seed, n_bytes)
        ours = ours or found
        numbers["recall", method.name] = {_column(*at): one.recall for at, one in found.items()}
        numbers["bytes", method.name] = {_column(*at): one.bytes for at, one in found.items()}
        numbers["kinds", method.name] = evaluate_kinds(model, size, seed)
        if method.name == "mass":
            numbers.update(evaluate_settings(model, size, seed, size.asked[3]))
            numbers["kinds", "newest"] = evaluate_newest(model, size, seed)
        if method.name == "full":
            numbers.update(_paper(ours, found, size))
        tick()
    return numbers


def _column(items: int, tokens: int) -> str:
    return f"K={items} r={tokens // (2 * items) - 1}"


def _paper(ours: Mapping[Place, Score], full: Mapping[Place, Score], size: Size) -> Numbers:
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
    return {("distinct", name): {"number": number} for name, number in numbers.items()}


def rows_of(found: Sequence[Numbers]) -> tuple[Row, ...]:
    """Means over seeds, table by table."""
    methods = {method.name: method for method in METHODS}
    rows = []
    for table in HEADINGS:
        for place in (place for place in found[0] if place[0] == table):
            numbers = {name: [one[place][name] for one in found] for name in found[0][place]}
            if method := methods.get(place[1]):
                rows.append(method.row(numbers, table))
            else:
                label = LABELS.get(place, f"tau {place[1]}")
                measures = {name: Measure.of(column) for name, column in numbers.items()}
                rows.append(Row(place[1], label, measures, "mass", "cache", table))
    return tuple(rows)


def series(found: Sequence[Numbers], size: Size) -> tuple[Series, ...]:
    """Recall against bytes as items grow and each comes as often as in training."""
    columns = [
        _column(*at) for at in size.asked if at[1] // at[0] == size.tokens // max(size.items)
    ]
    lines = []
    for method in (one for one in METHODS if ("recall", one.name) in found[0]):
        recalls = [Measure.of([one["recall", method.name][c] for one in found]) for c in columns]
        sizes = [Measure.of([one["bytes", method.name][c] for one in found]) for c in columns]
        lines.append(
            Series(
                method.name,
                method.label,
                tuple(one.mean for one in sizes),
                tuple(one.mean for one in recalls),
                tuple(one.sd for one in recalls),
            )
        )
    return tuple(lines)


def _findings(rows: Sequence[Row], size: Size) -> tuple[str, ...]:
    """The text; ``recall.mass.first`` is recall as trained, ``most`` and ``once`` other columns."""
    columns = {
        where: _column(*size.asked[i]) for where, i in (("first", 0), ("most", 4), ("once", 6))
    }
    numbers = {
        f"{row.table}.{row.name}.{where}": row.measures[column].mean
        for row in rows
        if row.table in ("recall", "bytes")
        for where, column in columns.items()
    }
    sizes = {"steps": size.steps, "batch": size.batch, "n_values": size.n_values}
    there = {row.name for row in rows if row.table == "recall"}
    absent = [
        f"{table}.{one.name}."
        for table in ("recall", "bytes", "kinds")
        for one in METHODS
        if one.name not in there
    ]
    return paragraphs("mqar", rows, absent, **columns, **numbers, **sizes)


# Evaluation: all models see the same sequences of a seed.


def evaluate(model: HybridLM, size: Size, seed: int, place: Place, **kind: int) -> Score:
    """The score on sequences of one size and kind."""
    task, n = models.make_task(size, *place, **kind), n_sequences(place[1])
    return models.evaluate(model, np.random.default_rng((seed, *place)), task, n)


def evaluate_sizes(
    model: HybridLM, size: Size, seed: int, n_bytes: Mapping[Place, float]
) -> Mapping[Place, Score]:
    """The score at every size; a rule with a schedule gets ``n_bytes`` there.

    The model is left with the slots of the first size.
    """
    found = {}
    for place in (*size.asked[1:], size.asked[0]):
        n_slots = models.slots_for(model, n_bytes.get(place, 0.0))
        models.set_slots(model, max(1, int(n_slots)), place[1])
        found[place] = evaluate(model, size, seed, place)
    return {place: found[place] for place in size.asked}


def evaluate_kinds(model: HybridLM, size: Size, seed: int) -> Mapping[str, float]:
    """Recall where values are overwritten, and where keys share their first token."""
    place = size.asked[0]
    return {
        "overwritten": evaluate(model, size, seed, place, renewed=1).recall,
        "near-duplicates": evaluate(model, size, seed, place, siblings=4).recall,
    }


def evaluate_newest(model: HybridLM, size: Size, seed: int) -> Mapping[str, float]:
    """The other kinds of sequences, where a slot reads its newest value."""
    layer: Any = model.mixers[1]
    before, layer.reading = layer.reading, Reading("mass", "last")
    found = evaluate_kinds(model, size, seed)
    layer.reading = before
    return found


def evaluate_settings(model: HybridLM, size: Size, seed: int, place: Place) -> Numbers:
    """Recall, slots and bytes of one checkpoint at other thresholds, and in fewer bits."""
    layer: Any = model.mixers[1]
    before, tau_before, numbers = layer.reading, float(layer.tau), {}
    for tau in TAUS:
        set_tau(model, tau)
        numbers["tau", f"{tau:g}"] = _numbers(evaluate(model, size, seed, place))
    set_tau(model, tau_before)
    for row, (kind, value) in BITS.items():
        layer.reading = Reading("mass", value)
        layer.slot_dtype = torch.bfloat16 if kind == "bfloat16" else None
        numbers["bits", row] = _numbers(evaluate(model, size, seed, place))
    layer.slot_dtype, layer.reading = None, before
    return numbers


def evaluate_fewer_bytes(
    model: HybridLM, size: Size, seed: int, place: Place, n_bytes: float
) -> Numbers:
    """The same of a rule with a schedule that has a fraction of ``n_bytes``."""
    numbers = {}
    for part in PARTS:
        n_slots = models.slots_for(model, part * n_bytes)
        models.set_slots(model, max(1, int(n_slots)), place[1])
        numbers["part", f"{part:g}"] = _numbers(evaluate(model, size, seed, place))
    return numbers


def _numbers(score: Score) -> Mapping[str, float]:
    return {"recall": score.recall, "slots": score.slots, "bytes": score.bytes}
