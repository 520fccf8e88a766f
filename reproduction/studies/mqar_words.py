"""What the numbers of study ``mqar`` say, and what they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .result import Measure, Row

if TYPE_CHECKING:
    from .mqar_models import Size

Rows = Mapping[tuple[str, str], Row]
HEADINGS = {
    "paper": "The paper's words on recall with redundancy, as numbers",
    "recall": "Recall of K items that each came r times; the first column is as in training",
    "bytes": "Bytes held at the end of such a sequence, both blocks",
    "kinds": "Recall of other kinds of sequences, no model trained on them",
    "tau": "One trained model of slots at other thresholds",
    "bits": "The same model with slots of fewer bits",
}
LABELS: Mapping[tuple[str, str], str] = {
    ("paper", "attention"): "Recall less attention's, as trained",
    ("paper", "beyond"): "Recall less attention's, at the most items",
    ("paper", "items"): "Slots per item",
    ("paper", "reduction"): "Tokens per slot, each item four times",
    ("paper", "length"): "Slots in a longer sequence of the same items, to those as trained",
    ("paper", "growth"): "Slots per item at the most items, to those as trained",
    ("kinds", "newest"): "SSM + slots, mass read, newest values",
    ("bits", "float32"): "32 bits, mean values",
    ("bits", "bfloat16"): "keys of 16 bits, mean values of 32",
    ("bits", "float32_first"): "32 bits, first values",
    ("bits", "bfloat16_first"): "16 bits, first values",
}


def reading(rows: Rows, size: Size, n_seeds: int) -> tuple[str, ...]:
    """The result in words."""
    columns = list(rows["recall", "mass"].measures)
    first, most, once = columns[0], columns[4], columns[6]

    def of(table: str, row: str, measure: str = "number") -> Measure:
        return rows[table, row].measures[measure]

    def recall(row: str, column: str) -> str:
        return f"{of('recall', row, column).mean:.3f}"

    def held(row: str, column: str) -> str:
        return f"{of('bytes', row, column).mean:,.0f}"

    def each(rows_: tuple[str, ...], column: str) -> str:
        return " and ".join(recall(row, column) for row in rows_)

    return (
        f"{n_seeds} seeds, {size.steps} steps of {size.batch} sequences, one recipe for all, none "
        f"tuned for a row. As trained ({first}) slots recall {recall('mass', first)} from "
        f"{held('mass', first)} bytes, full attention {recall('full', first)} from "
        f"{held('full', first)}. At {most}, without training again, it is {recall('mass', most)} "
        f"from {held('mass', most)} bytes and {recall('full', most)} from {held('full', most)}.",
        f"KVM-like and OVQ-like rules on the same layer, with as many bytes as ours held, recall "
        f"{each(('kvm', 'ovq'), first)} as trained and {each(('kvm', 'ovq'), most)} at {most}. "
        "They are told how much to hold beforehand, at every size; ours finds it.",
        f"A slot is not an item. There are {of('paper', 'items').mean:.1f} of them for each, "
        "because a key tells what stands before its token: one for what follows the item's name, "
        "which is read, and one for what follows its value, which is not. The paper's fourfold is "
        f"{of('paper', 'reduction').mean:.1f}. In a longer sequence of the same items there are "
        f"{of('paper', 'length').mean:.2f} times as many, and at the most items "
        f"{of('paper', 'growth').mean:.2f} times as many for each: with {size.n_values} values, "
        "items share some.",
        f"Where nothing comes again ({once}) slots recall {recall('mass', once)} from "
        f"{held('mass', once)} bytes, attention {recall('full', once)} from "
        f"{held('full', once)}.",
        f"Fixed states, Mamba-2 and Gated DeltaNet, recall {each(('mamba2', 'delta'), first)} as "
        f"trained and {each(('mamba2', 'delta'), most)} at {most}, from {held('mamba2', first)} "
        f"and {held('delta', first)} bytes whatever comes. "
        f"{_of_states(of('recall', 'mamba2', first))}",
        "Overwritten values are not recalled by a mean of old and new, in slots or in attention "
        f"({of('kinds', 'mass', 'overwritten').mean:.3f} and "
        f"{of('kinds', 'full', 'overwritten').mean:.3f}). The same checkpoint that answers with a "
        f"slot's newest value has {of('kinds', 'newest', 'overwritten').mean:.3f}. Keys of two "
        "tokens of which the first is shared need training of their own: no row tells them apart.",
        "Keys of 16 bits, rounded before anything is decided, recall "
        f"{of('bits', 'bfloat16', 'recall').mean:.3f} where 32 bits recall "
        f"{of('bits', 'float32', 'recall').mean:.3f}; with first values, of 16 bits as well, "
        f"{of('bits', 'bfloat16_first', 'recall').mean:.3f} from "
        f"{of('bits', 'bfloat16_first', 'bytes').mean:,.0f} bytes, backbone included, for "
        f"{of('bits', 'float32', 'bytes').mean:,.0f}.",
    )


def _of_states(recall: Measure) -> str:
    """What may be said of fixed states after this much training."""
    if recall.mean > 0.9:
        return "Where a fixed state is enough, it is enough."
    return (
        "The first column is what this much training gives them, not what they can hold: trained "
        "longer on a graphics card, two Mamba-2 blocks recall 64 items as well as slots do, from "
        "about half of the bytes (docs/understand/trained.md)."
    )
