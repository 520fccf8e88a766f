"""Not in the paper, which leaves it open: a language model with the cache on a real corpus.

Models of 8 blocks and 13 million weights are trained on 74 MB of novels, byte by byte. All blocks
are Mamba-2, or two of them hold attention to every token, to a window, or to slots. The models were
trained on a graphics card; what they left is in ``results.json`` and is read here. A full run
trains them again where there is a graphics card and the corpus; every run trains toy models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from distinctkv import snapshot

from ...result import Measure, Result, Role, Row, Series, Setting
from .. import Progress
from ..findings import paragraphs
from ..runner import FULL, Scale, device, finish, silent

TITLE = "A language model on novels, with the cache in two of its blocks"
QUESTION = (
    "A state-space model forgets what it read long ago, and attention keeps everything. How much "
    "of what attention adds is kept by slots for distinct keys, in how many bytes?"
)
HEADINGS = {
    "models": "Trained models: bits per byte of held-out novels",
    "reads": "One trained full attention under other reads, nothing trained again: the part of "
    "attention's lead over Mamba-2 that is kept; bytes counted at 16 bits a number, and held",
    "tuned": "The same after 150 more steps of training with that read, in parts of the lead "
    "before them",
    "controls": "Rules that evict by attention, on the same weights, beside the cache and a window",
    "needles": "Planted strings found at the end of a text, by its length",
    "depths": "One planted string, by where it stands in the text",
    "pairs": "The same models of tokens that are pairs of pairs of bytes: bits per byte",
    "pair reads": "The trained full attention of these tokens under other reads, in parts of its "
    "lead over Mamba-2",
    "rates": "Bits per byte after half the steps, by the learning rate",
    "growth": "Slots of a head after so many tokens, and the power of the tokens with which they "
    "grow over the last three doublings",
    "decode": "One decoded token of 64 sequences: both attention layers, without projections",
    "prefill": "Four texts of 16,384 bytes read at once: both attention layers, with projections",
    "small models": "Small models (0.5 million weights, trained on a CPU): bits per byte",
    "small needles": "Small models trained to answer: planted strings found, by kind and length",
    "small depths": "The same, one planted string, by where it stands in the text",
    "toy": "Toy models, trained now: they show that everything runs, and no more",
}
SHIPPED = Path(__file__).with_name("results.json")
SMALL = Path(__file__).with_name("small.json")  # of models that were trained on a CPU
TOYS = ("mamba2", "full", "tune+cache")
SLICES = {
    "bits per byte": "all",
    "repeated 8-grams, far": "8-gram far",
    "rare 8-grams": "rare 8-gram",
    "rare 8-grams, far": "rare 8-gram far",
    "rare 16-grams, far": "rare 16-gram far",
}
PARTS = {
    "overall": "all",
    "far 8-grams": "8-gram far",
    "rare 8-grams": "rare 8-gram",
    "rare, far": "rare 8-gram far",
}
PAIR_SLICES = {
    "bits per byte": "all",
    "repeated 4-grams, far": "4-gram far",
    "rare 4-grams": "rare 4-gram",
    "rare 4-grams, far": "rare 4-gram far",
}
PAIR_PARTS = {"overall": "all", "rare 4-grams": "rare 4-gram", "rare, far": "rare 4-gram far"}
GROWN = ("10 %", "20 %", "40 %")  # what the taus of task growth keep of 4,096 tokens
PARTS_SHOWN = {"overall": "all", "rare 8-grams": "rare"}
LABELS = {
    "mamba2": "Mamba-2",
    "window": "Window of 512",
    "full": "Full attention",
    "full-scale-10": "Full, scale from 10",
    "full-lag-0": "Full, taps start alike",
    "full-no-convolution": "Full, no convolution",
    "delta": "Gated DeltaNet",
    "delta-full": "Gated DeltaNet, full attention",
}
Found = Mapping[str, Mapping[int, Any]]  # what a task left, by task and seed


def settings(scale: Scale) -> Mapping[str, Setting]:
    """Every number that decides the result, the seeds apart."""
    return {
        "scale": scale.name,
        "shipped": hashlib.sha256(SHIPPED.read_bytes() + SMALL.read_bytes()).hexdigest()[:12],
        "trained_again": trains(scale),
        "device": device(),
        "seeds_used": 2,
    }


def trains(scale: Scale) -> bool:
    """Whether a run trains the models and does not read the shipped files."""
    from ...data.download import folders
    from .corpus import NOVELS

    there = any((folder / NOVELS).is_file() for folder in folders())
    return scale.part == 1 and device() == "cuda" and there


def run(seeds: Sequence[int], scale: Scale = FULL, progress: Progress = silent) -> Result:
    """Read what the trained models have left, and train the toy models."""
    started, done = perf_counter(), count(1)
    used = tuple(seeds)[:2]
    total = len(used) * len(TOYS)
    with TemporaryDirectory() as folder:
        toys = train_toys(Path(folder), used, lambda: progress(next(done), total))
    if trains(scale):
        from .tasks import run_all

        found = read(run_all(len(used)))
    else:
        found = read(SHIPPED)
    rows = [*rows_of(found), *small_rows(), *toy_rows(toys)]
    result = Result(
        study="companion",
        title=TITLE,
        question=QUESTION,
        findings=paragraphs("companion", rows),
        rows=tuple(rows),
        settings=settings(scale),
        seeds=used,
        series=tuple(series_of(rows)),
        headings=HEADINGS,
    )
    return finish(result, perf_counter() - started)


def train_toys(folder: Path, seeds: Sequence[int], tick: Callable[[], None]) -> Found:
    """Run the tasks at toy size on the processor."""
    from .tasks import run as run_task
    from .tasks import toy_setting

    setting = toy_setting(folder)
    for seed in seeds:
        for task in TOYS:
            run_task(setting, task, seed)
            tick()
    return read(folder)


def read(folder: Path) -> Found:
    """The results in a folder, or in the file that `collect` has made of one, by task and seed."""
    found: dict[str, dict[int, Any]] = {}
    for one in json.loads(folder.read_text("utf-8")) if folder.is_file() else in_folder(folder):
        found.setdefault(one["task"], {})[one["seed"]] = one
    return found


def in_folder(folder: Path) -> list[Any]:
    """The results in a folder."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def collect(folder: Path, file: Path) -> None:
    """Write the results in a folder into one file, a line each, numbers to six digits.

    What the file has already stays, unless it is in the folder, too.
    """
    before = json.loads(file.read_text("utf-8")) if file.exists() else []
    kept = {(one["task"], one["seed"]): one for one in [*before, *in_folder(folder)]}
    lines = [json.dumps(rounded(kept[key]), separators=(",", ":")) for key in sorted(kept)]
    snapshot.replace(file, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def rounded(part: Any) -> Any:  # noqa: ANN401  (JSON)
    """The same with numbers of six digits.

    >>> rounded({"bits": [1.23456789, 2]})
    {'bits': [1.23457, 2]}
    """
    if isinstance(part, dict):
        return {name: rounded(one) for name, one in part.items()}
    if isinstance(part, list):
        return [rounded(one) for one in part]
    return float(f"{part:.6g}") if isinstance(part, float) else part


# Rows


def rows_of(found: Found) -> list[Row]:
    """All tables of the trained models."""
    tables = (
        *(model_rows, read_rows, control_rows, tuned_rows, needle_rows, depth_rows, growth_rows),
        *(decode_rows, prefill_rows, pair_rows, pair_read_rows, rate_rows),
    )
    return [row for table in tables for row in table(found)]


def shipped_rows() -> list[Row]:
    """All tables of the models that were trained on a graphics card."""
    return rows_of(read(SHIPPED))


def small_rows() -> list[Row]:
    """Tables of the small models that were trained on a CPU."""
    found = read(SMALL)
    rows = [*model_rows(found), *needle_rows(found), *depth_rows(found)]
    return [replace(row, table=f"small {row.table}") for row in rows]


def measure(numbers: Iterable[float]) -> Measure:
    """Mean and spread over seeds; of one seed, the number.

    >>> measure([2.0])
    Measure(mean=2.0, sd=0.0, n=1)
    """
    each = list(numbers)
    return Measure.of(each) if len(each) > 1 else Measure(each[0], 0.0, 1)


def over_seeds(each: Sequence[Mapping[str, float]]) -> dict[str, Measure]:
    """Measures of what every seed has."""
    names = [name for name in each[0] if all(name in one for one in each)]
    return {name: measure(one[name] for one in each) for name in names}


def said(n: int) -> str:
    """How many seeds there are."""
    return f"{n} seed{'s' * (n != 1)}"


def model_rows(found: Found) -> list[Row]:
    """Bits per byte of each trained model."""
    return trained_rows(found, LABELS, SLICES, "models")


def pair_rows(found: Found) -> list[Row]:
    """The same of models of tokens that are pairs of bytes."""
    labels = {f"{name}-bpe": LABELS[name] for name in ("mamba2", "window", "full")}
    return trained_rows(found, labels, PAIR_SLICES, "pairs")


def trained_rows(
    found: Found, labels: Mapping[str, str], slices: Mapping[str, str], table: str
) -> list[Row]:
    """Bits per byte of models, of all text and of these slices."""
    rows = []
    for name, label in labels.items():
        if runs := found.get(name):
            numbers = [
                {
                    **{
                        shown: one["bits"][part]
                        for shown, part in slices.items()
                        if part in one["bits"]
                    },
                    "foreign text": one["foreign"]["all"],
                    "parameters": float(one["parameters"]),
                }
                for one in runs.values()
            ]
            steps = next(iter(runs.values()))["schedule"]["steps"]
            setting = f"{steps} steps, {said(len(runs))}"
            rows.append(Row(name, label, over_seeds(numbers), setting, "added", table=table))
    return rows


def lead_kept(
    bits: Mapping[str, float],
    top: Mapping[str, float],
    gap: Mapping[str, float],
    parts: Mapping[str, str] = PARTS,
) -> dict[str, float]:
    """The part of a lead ``gap`` that is left where ``bits`` are more than ``top``, by slice."""
    return {
        shown: 1 - (bits[part] - top[part]) / gap[part]
        for shown, part in parts.items()
        if part in gap and gap[part] > 0
    }


def gaps(found: Found, seed: int, task: str = "reads", end: str = "") -> dict[str, float] | None:
    """What the full attention that a task has read has over Mamba-2 of the same seed, in bits."""
    low, reads = (found.get(f"{name}{end}", {}).get(seed) for name in ("mamba2", task))
    if low is None or reads is None:
        return None
    top = reads["rows"][0]["bits"]
    return {part: low["bits"][part] - top[part] for part in top if part in low["bits"]}


def read_rows(found: Found) -> list[Row]:
    """Every read of the full checkpoints: bytes, and the part of the lead that is kept."""
    return rows_of_reads(found, "reads", "reads")


def control_rows(found: Found) -> list[Row]:
    """The same with rules that evict by attention."""
    return rows_of_reads(found, "controls", "controls")


def pair_read_rows(found: Found) -> list[Row]:
    """The same of tokens that are pairs of bytes."""
    return rows_of_reads(found, "controls", "pair reads", "-bpe", PAIR_PARTS)


def rows_of_reads(
    found: Found, task: str, table: str, end: str = "", parts: Mapping[str, str] = PARTS
) -> list[Row]:
    """What a task says of reads of one checkpoint for each seed."""
    numbers: dict[str, list[dict[str, float]]] = {}
    for seed, one in found.get(f"{task}{end}", {}).items():
        gap = gaps(found, seed, task, end)
        if gap is None:
            continue
        top = one["rows"][0]["bits"]
        for row in one["rows"]:
            numbers.setdefault(row["read"], []).append(read_measures(row, top, gap, parts))
    return [
        Row(slug(name), name, over_seeds(each), said(len(each)), role_of(name), table=table)
        for name, each in numbers.items()
    ]


def read_measures(
    row: Mapping[str, Any],
    top: Mapping[str, float],
    gap: Mapping[str, float],
    parts: Mapping[str, str] = PARTS,
) -> dict[str, float]:
    """What the tables show of a read: parts of full attention's bytes, and of its lead."""
    size = {"bytes": row["kept"], **held(row)}
    return {**size, **lead_kept(row["bits"], top, gap, parts), "bits per byte": row["bits"]["all"]}


def held(row: Mapping[str, Any]) -> dict[str, float]:
    """Slots as a part of the tokens, and the part of full attention's bytes in the buffers.

    Of a window these are the bytes counted. KVM and OVQ hold sums of 32 bits for keys, too.
    """
    from . import measures
    from .corpus import LENGTH
    from .models import BASE

    slots, kept = row.get("slots"), row["kept"]
    if not slots:
        return {"held": kept}
    if isinstance(slots, int):  # one number for all heads
        return {"slots": slots / LENGTH, "held": kept * measures.scheduled_times(BASE.head)}
    part = sum(sum(layer) / len(layer) for layer in slots) / len(slots) / LENGTH
    counted = measures.kept_bytes(part, 1, BASE.head)  # without a window
    return {"slots": part, "held": kept + counted * (measures.held_times(slots, BASE.head) - 1)}


def slug(name: str) -> str:
    """A name for a row.

    >>> slug("window 256, cache tau=0.5")
    'window_256_cache_tau_0_5'
    """
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def role_of(name: str) -> Role:
    """Whether a read is the cache."""
    return "cache" if "cache" in name or name in ("both", "gate") else "added"


def tuned_rows(found: Found) -> list[Row]:
    """Reads after a short training with them; the lead is counted from the tuned full attention."""
    numbers: dict[str, list[dict[str, float]]] = {}
    for task, runs in found.items():
        if not task.startswith("tune+"):
            continue
        tuned = task.partition("+")[2]
        for seed, one in runs.items():
            gap, control = gaps(found, seed), found.get("tune+full", {}).get(seed)
            if gap is None or control is None:
                continue
            top = control["rows"][0]["bits"]
            for row in one.get("rows", [{**one, "read": tuned}]):
                name = f"{tuned}, read as {row['read']}"
                numbers.setdefault(name, []).append(read_measures(row, top, gap))
    return [
        Row(
            slug(name),
            f"tuned as {name}",
            over_seeds(each),
            said(len(each)),
            role_of(name),
            table="tuned",
        )
        for name, each in numbers.items()
    ]


def needle_rows(found: Found) -> list[Row]:
    """Answers found, by kind of task and length."""
    return asked_rows(
        found, "needles", lambda row: (row["task"], row["read"], in_thousands(row["length"]))
    )


def depth_rows(found: Found) -> list[Row]:
    """Single answers found, by length and depth."""

    def place(row: Mapping[str, Any]) -> tuple[str, str, str]:
        deep = f"{row['depth']:.0%}" if row["task"] == "single" else ""
        return in_thousands(row["length"]), row["read"], deep

    return asked_rows(found, "depths", place)


def in_thousands(length: int) -> str:
    """A length in few characters.

    >>> in_thousands(512), in_thousands(4096)
    ('512', '4k')
    """
    return f"{length // 1024}k" if length >= 1024 else str(length)


def asked_rows(
    found: Found, table: str, place: Callable[[Mapping[str, Any]], tuple[str, str, str]]
) -> list[Row]:
    """The part of answers found; ``place`` says first word, read and column of a cell, or none."""
    numbers: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = {}
    steps = 0
    for seed, one in found.get("needles", {}).items():
        steps = one.get("schedule", {"steps": 0})["steps"]
        for row in one["needles"]:
            first, read, column = place(row)
            if column:
                columns = numbers.setdefault((first, read), {}).setdefault(seed, {})
                columns.setdefault(column, []).append(row["found"])
    return [
        Row(
            slug(f"{first} {read}"),
            f"{first}: {read}",
            over_seeds([{n: sum(v) / len(v) for n, v in one.items()} for one in each.values()]),
            f"trained for {steps} steps to answer, {said(len(each))}",
            role_of(read),
            table=table,
        )
        for (first, read), each in numbers.items()
    ]


def rate_rows(found: Found) -> list[Row]:
    """Bits per byte at each rate, of each model."""
    runs = {name: one for name, one in found.items() if name.startswith("rate+")}
    return [
        Row(
            slug(name),
            LABELS[name.partition("+")[2]],
            over_seeds([{row["read"]: row["bits"]["all"] for row in one["rows"]} for one in each]),
            f"{each[0]['schedule']['steps']} steps, {said(len(each))}",
            "added",
            table="rates",
        )
        for name, each in ((name, list(one.values())) for name, one in runs.items())
    ]


def growth_rows(found: Found) -> list[Row]:
    """Slots by tokens, and the exponent."""
    numbers: dict[tuple[str, str], list[dict[str, float]]] = {}
    for one in found.get("growth", {}).values():
        for part, lines in zip(GROWN, one["growth"].values(), strict=True):
            for layer in [name for name in lines if name.startswith("layer")]:
                slots = dict(zip(lines["tokens"], lines[layer], strict=True))
                columns = {f"{int(t)} tokens": n for t, n in slots.items() if t >= 1024}
                columns["exponent"] = lines[f"exponent, {layer}"][0]
                numbers.setdefault((part, layer), []).append(columns)
    return [
        Row(
            slug(f"{part} {layer}"),
            f"tau of {part} at 4,096, {'second' if layer.endswith('1') else 'first'} attention",
            over_seeds(each),
            said(len(each)),
            "cache",
            table="growth",
        )
        for (part, layer), each in numbers.items()
    ]


def decode_rows(found: Found) -> list[Row]:
    """Milliseconds, bytes of the buffers and of what lies in them, both layers together."""
    from .measures import kept_bytes
    from .models import BASE

    row_bytes = 2 * 2 * BASE.head * BASE.heads  # of a token's key and value, 16 bits a number
    numbers: dict[tuple[str, float], list[dict[str, float]]] = {}
    for one in found.get("times", {}).values():
        for length in sorted({row["length"] for row in one["decode"]}):
            parts = [row for row in one["decode"] if row["length"] == length]
            sums = {
                read: {
                    "milliseconds": 1000 * sum(r["seconds"] for r in parts if r["read"] == read),
                    "gigabytes": sum(r["bytes"] for r in parts if r["read"] == read) / 1e9,
                }
                for read in ("full", "cache")
            }
            sums["full"]["counted"] = sums["full"]["gigabytes"]
            sums["cache"]["counted"] = sum(
                r["batch"] * kept_bytes(r["slots"], 1, BASE.head) * row_bytes / 1e9
                for r in parts
                if r["read"] == "cache"
            )
            for read, columns in sums.items():
                speed = sums["full"]["milliseconds"] / columns["milliseconds"]
                numbers.setdefault((read, length), []).append({**columns, "times as fast": speed})
    return [
        Row(
            f"{read}_{int(length) // 1024}k",
            f"{'slots' if read == 'cache' else 'full attention'}, {int(length) // 1024}k tokens",
            over_seeds(each),
            said(len(each)),
            "cache" if read == "cache" else "added",
            table="decode",
        )
        for (read, length), each in numbers.items()
    ]


def prefill_rows(found: Found) -> list[Row]:
    """Milliseconds of both layers, and the most memory meanwhile."""
    numbers: dict[str, list[dict[str, float]]] = {}
    for one in found.get("times", {}).values():
        for row in one["prefill"]:
            columns = {
                "milliseconds": 1000 * row["seconds"],
                "peak gigabytes": row["peak bytes"] / 1e9,
            }
            numbers.setdefault(row["read"], []).append(columns)
    return [
        Row(
            f"prefill_{read}",
            read,
            over_seeds(each),
            said(len(each)),
            role_of(read),
            table="prefill",
        )
        for read, each in numbers.items()
    ]


def toy_rows(toys: Found) -> list[Row]:
    """Bits per byte of the toy models, and of one of them read by slots."""
    rows = [
        Row(
            f"toy_{name}",
            f"Toy: {LABELS[name]}",
            {"bits per byte": bits(toys[name])},
            "20 steps",
            "added",
            table="toy",
        )
        for name in ("mamba2", "full")
    ]
    tuned = toys["tune+cache"].values()
    slots = Row(
        "toy_cache",
        "Toy: slots of 20 % of the bytes",
        {"bits per byte": measure(one["rows"][1]["bits"]["all"] for one in tuned)},
        "10 steps more",
        "cache",
        table="toy",
    )
    return [*rows, slots]


def bits(runs: Mapping[int, Any]) -> Measure:
    """Bits per byte over seeds."""
    return measure(one["bits"]["all"] for one in runs.values())


# Series and findings


def series_of(rows: Sequence[Row]) -> list[Series]:
    """The part of the lead that each kind of read keeps, against its bytes."""
    found = []
    for name in ("cache", "both", "window", "random", "stride", "kvm", "ovq"):
        chosen = [
            row.measures for row in rows if row.table == "reads" and row.name.startswith(f"{name}_")
        ]
        chosen = [one for one in chosen if "rare 8-grams" in one]
        for part, short in PARTS_SHOWN.items():
            lead = [one[part] for one in chosen]
            if lead:
                x = tuple(one["bytes"].mean for one in chosen)
                y, sd = tuple(one.mean for one in lead), tuple(one.sd for one in lead)
                found.append(Series(f"{name}.{short}", name, x, y, sd))
    return found
