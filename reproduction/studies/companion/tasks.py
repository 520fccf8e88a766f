"""What is run: each task trains or measures something from one seed and leaves one JSON file."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import distinctkv
from distinctkv import snapshot
from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    HybridBlock,
    HybridLM,
    Reading,
    checkpoint,
)
from distinctkv.nn.attention import Attention
from distinctkv.nn.baselines import KVMAttention, OVQAttention

from ...data.download import cache as cache_folder
from . import measures, models
from .corpus import Corpus, read_novels, toy
from .models import BASE, TOY, Replace, Size, build, cache, gated, scheduled, swap, swapped, window
from .train import Line, Schedule, compile_blocks, train

TRAIN = Schedule(steps=1344, rate=2e-3)
TUNE = Schedule(steps=150, rate=3e-4, warm=10, hold=0.0)

TOY_TRAIN = Schedule(steps=20, rate=2e-3, batch=4, length=128, warm=5, every=10, save_every=10)

TRAINED = {name.replace(", ", "-").replace(" ", "-"): name for name in models.BUILD}
TAUS = (0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
WINDOWS = (1 / 32, 1 / 16, 1 / 8, 0.2, 0.25, 0.4)  # of the tokens
BOTH = ((1 / 64, 0.45), (1 / 32, 0.4), (1 / 32, 0.45), (1 / 32, 0.5), (1 / 16, 0.45), (1 / 16, 0.5))
CONTROL_TAUS = (0.3, 0.4, 0.5)
TAU, TAU_OF_BOTH, WINDOW_OF_BOTH, WINDOW = 0.4, 0.5, 1 / 16, 0.2  # of what is tuned and planted
GATE_BUDGET = 0.2  # of the tokens


@dataclass(frozen=True)
class Setting:
    """Where and at which size tasks run."""

    corpus: Corpus
    folder: Path
    size: Size = BASE
    train: Schedule = TRAIN
    tune: Schedule = TUNE
    device: str = "cpu"
    compiled: bool = False
    ranks: tuple[int, int] = (0, 1)
    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384)  # of texts with needles
    texts: int = 8  # with needles, of each kind
    say: Callable[[str], None] = print
    stop: Callable[[], bool] = lambda: False

    @cached_property
    def tokens(self) -> int:
        """Tokens of a segment."""
        return int(self.corpus.segments["held out"].shape[1]) - 1

    def path(self, task: str, seed: int, end: str) -> Path:
        """The file of a task."""
        return self.folder / f"{task}-{seed}.{end}"

    def of(self, part: float) -> int:
        """This part of the tokens of a segment."""
        return max(1, round(part * self.tokens))


def run(setting: Setting, task: str, seed: int) -> None:
    """Run a task, unless its file is there, and write the file."""
    path = setting.path(task, seed, "json")
    if path.exists():
        return
    work = TASKS.get(task.partition("+")[0])
    if work is None:
        raise ValueError(f"there is no task {task!r}; there are {', '.join(TASKS)}")
    started = perf_counter()
    torch.manual_seed(seed)
    found = work(setting, task, seed)
    if found is None or setting.ranks[0]:
        return
    about = {
        "task": task,
        "seed": seed,
        "size": asdict(setting.size),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(perf_counter() - started, 1),
        **versions(setting.device),
    }
    text = json.dumps({**about, **found}, indent=1)
    snapshot.replace(path, text.encode())
    setting.say(f"{task}-{seed} {about['seconds']} s {brief(found)}")


def versions(device: str) -> dict[str, str]:
    """What made the numbers."""
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {
        "distinctkv": distinctkv.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": name,
    }


def brief(found: Mapping[str, Any]) -> str:
    """The most telling numbers of a result in a line."""
    told = found.get("bits", {})
    parts = [f"{key} {told[key]:.4f}" for key in ("all", "rare 8-gram") if key in told]
    if found.get("train"):
        line = found["train"][-1]
        parts.append(f"loss {line['loss']:.3f} at {line['seconds']:.1f} s")
    return ", ".join(parts)


def fresh(setting: Setting, kind: str, seed: int) -> HybridLM:
    """A new model of a kind, from its seed."""
    torch.manual_seed(seed)
    return build(kind, setting.size).to(setting.device)


def trained(setting: Setting, task: str, seed: int) -> HybridLM:
    """The model that a training task has left."""
    path = setting.path(task, seed, "safetensors")
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run {task}/{seed} first")
    model = build(TRAINED[task], setting.size)
    checkpoint.load(model, path)
    return model.to(setting.device).eval()


def keep(setting: Setting, task: str, seed: int, model: HybridLM) -> None:
    """Write the weights in 16 bits."""
    if setting.ranks[0] == 0:
        checkpoint.save(deepcopy(model).bfloat16(), setting.path(task, seed, "safetensors"))


def toy_setting(folder: Path) -> Setting:
    """Toy models on drawn words, on the processor: seconds, and numbers that mean nothing."""
    return Setting(
        toy(), folder, TOY, TOY_TRAIN, replace(TOY_TRAIN, steps=10),
        lengths=(1024, 2048), texts=2, say=lambda text: None,
    )  # fmt: skip


def run_all(n_seeds: int) -> Path:
    """Train and measure everything on this graphics card; goes on where it was stopped."""
    folder = cache_folder() / "companion"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "corpus.npz"
    if not path.exists():
        read_novels().save(path)
    setting = Setting(Corpus.load(path), folder, device="cuda", compiled=True)
    for seed in range(n_seeds):
        for task in PLAN:
            run(setting, task, seed)
    return folder


# Training


def from_scratch(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Train a model; its bits on both texts, and its weights beside."""
    model = fresh(setting, TRAINED[task], seed)
    lines = fitted(setting, model, setting.train, seed, setting.path(task, seed, "resume"))
    if lines is None:
        return None
    keep(setting, task, seed, model)
    setting.path(task, seed, "resume").unlink(missing_ok=True)
    if setting.ranks[0]:
        return {}
    return {
        "parameters": sum(part.numel() for part in model.parameters()),
        "schedule": asdict(setting.train),
        "train": [asdict(line) for line in lines],
        "bits": measures.bits(model, setting.corpus),
        "foreign": measures.bits(model, setting.corpus, "foreign"),
        "slots": measures.slot_counts(model),
    }


def fitted(
    setting: Setting, model: HybridLM, schedule: Schedule, seed: int, path: Path | None = None
) -> list[Line] | None:
    """Train a model as far as the schedule goes; None if it was stopped before."""
    if setting.compiled:
        compile_blocks(model)

    def log(line: Line) -> None:
        slots = " ".join(f"{part:.3f}" for part in line.slots.values())
        setting.say(f"  step {line.step} loss {line.loss:.4f} {line.seconds:.1f} s {slots}")

    lines = train(
        model, setting.corpus.train, schedule, seed,
        path=path, ranks=setting.ranks, log=log, stop=setting.stop,
    )  # fmt: skip
    return lines if lines and lines[-1].step == schedule.steps else None


def tuned(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """A trained full attention, trained on for a few steps with another read; ``tune+READ``."""
    read = task.partition("+")[2]
    if read not in TUNED:
        raise ValueError(f"there is nothing to tune {read!r}; there are {', '.join(TUNED)}")
    model = trained(setting, "full", seed)
    choice = TUNED[read](setting)
    if choice is not None:
        swap(model, choice)
    lines = fitted(setting, model, setting.tune, seed + 1000)
    if lines is None:
        return None
    found: dict[str, Any] = {
        "read": read,
        "schedule": asdict(setting.tune),
        "train": [asdict(line) for line in lines],
    }
    if read == "gate":
        found["tau"] = [float(mixer.tau) for mixer in measures.caches(model)]
        return {**found, "bits": measures.bits(model, setting.corpus), **slots_seen(model, setting)}
    back_to_full(model, setting)
    found["rows"] = [measured(model, setting, name, one) for name, one in TUNED_READS(setting)]
    same = next(row for row in found["rows"] if row["read"] == read)
    return {**found, "bits": same["bits"]}


def slots_seen(model: HybridLM, setting: Setting) -> dict[str, Any]:
    """Slots per token of a layer with a learned tau, as it counted them in the last batch."""
    counted = (mixer.slots_per_token for mixer in measures.caches(model))
    part = [float(one) for one in counted if one is not None]
    kept = [
        measures.kept_bytes(one * setting.tokens, setting.tokens, setting.size.head) for one in part
    ]
    return {"slots": [one * setting.tokens for one in part], "kept": sum(kept) / len(kept)}


def back_to_full(model: HybridLM, setting: Setting) -> None:
    """Full attention again on the weights of every other read."""
    for place in setting.size.attention_at:
        block = model.blocks[place]
        assert isinstance(block, HybridBlock)
        if isinstance(block.mixer, Attention) and type(block.mixer) is not FullAttention:
            full = FullAttention(setting.size.width, setting.size.attention())
            full.project = block.mixer.project
            block.mixer = full.to(setting.device)


# Reading a trained full attention in other ways


def reads(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Bits of one full checkpoint under many reads, none of them trained."""
    model = trained(setting, "full", seed)
    rows = []
    slots: dict[float, list[float]] = {}
    for name, one in plan_of_reads(setting):
        rows.append(measured(model, setting, name, one))
        if name.startswith("cache tau="):
            slots[float(name.partition("=")[2])] = [
                sum(layer) / len(layer) for layer in rows[-1]["slots"]
            ]
        if setting.stop():
            return None
    for tau in CONTROL_TAUS:
        for label, kind in (("KVM", KVMAttention), ("OVQ", OVQAttention)):
            each = [max(2, round(n)) for n in slots[tau]]
            one = [scheduled(kind, n, setting.tokens) for n in each]
            row = measured(model, setting, f"{label} as tau={tau:g}", one)
            row["slots"] = [[float(n)] * setting.size.heads for n in each]
            row["kept"] = kept(row["slots"], setting)
            rows.append(row)
    return {"rows": rows}


Choice = Replace | list[Replace] | None


def plan_of_reads(setting: Setting) -> list[tuple[str, Choice]]:
    """Names and replacements, in the order of their worth."""
    of = setting.of
    return [
        ("full", None),
        *((f"cache tau={tau:g}", cache(tau)) for tau in TAUS),
        *((f"window {of(part)}", window(of(part))) for part in WINDOWS),
        *((f"window {of(part)}, cache tau={tau:g}", cache(tau, of(part))) for part, tau in BOTH),
        *((f"random as tau={tau:g}", cache(tau, rule="random")) for tau in CONTROL_TAUS),
        *((f"stride as tau={tau:g}", cache(tau, rule="stride")) for tau in CONTROL_TAUS),
    ]


def measured(model: HybridLM, setting: Setting, name: str, choice: Choice) -> dict[str, Any]:
    """Bits and slots of a read."""
    each = choice if isinstance(choice, list) else [choice or (lambda full: full)]
    with swapped(model, *each):
        found = {"read": name, "bits": measures.bits(model, setting.corpus)}
        slots = measures.slot_counts(model)
    return {**found, "slots": slots, "kept": kept(slots, setting) if slots else 1.0}


def kept(slots: list[list[float]], setting: Setting) -> float:
    """The part of the bytes of a full attention's keys and values."""
    flat = [one for layer in slots for one in layer]
    return measures.kept_bytes(sum(flat) / len(flat), setting.tokens, setting.size.head)


TUNED: Mapping[str, Callable[[Setting], Replace | None]] = {
    "full": lambda setting: None,
    "cache": lambda setting: plain_cache(TAU),
    "window": lambda setting: window(setting.of(WINDOW)),
    "both": lambda setting: plain_cache(TAU_OF_BOTH, setting.of(WINDOW_OF_BOTH)),
    "gate": lambda setting: gated(0.3, setting.of(GATE_BUDGET)),
}


def plain_cache(tau: float, tokens: int = 0) -> Replace:
    """The layer itself: what is trained keeps no record of its slots."""
    return lambda full: DistinctAttention.retrofit(full, tau, Reading(window=tokens))


def TUNED_READS(setting: Setting) -> list[tuple[str, Choice]]:  # noqa: N802
    """How tuned weights are read: as they were tuned, and as the others were."""
    of = setting.of
    return [
        ("full", None),
        ("cache", cache(TAU)),
        ("window", window(of(WINDOW))),
        ("both", cache(TAU_OF_BOTH, of(WINDOW_OF_BOTH))),
        *((f"cache tau={tau:g}", cache(tau)) for tau in (0.3, 0.35, 0.45, 0.5)),
    ]


# Needles, growth, time


def planted(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Needles found by the trained models, and by one full checkpoint under other reads."""
    rows = []
    of = setting.of
    full = trained(setting, "full", seed)
    choices: list[tuple[str, HybridLM, Choice]] = [
        ("full", full, None),
        (f"cache tau={TAU:g}", full, cache(TAU)),
        ("cache tau=0.3", full, cache(0.3)),
        (f"window {of(WINDOW)}", full, window(of(WINDOW))),
    ]
    for other in ("mamba2", "window"):
        if setting.path(other, seed, "safetensors").exists():
            choices.append((f"{other}, trained", trained(setting, other, seed), None))
    for name, model, choice in choices:
        each = choice if isinstance(choice, list) else [choice or (lambda full: full)]
        with swapped(model, *each):
            found = measures.needles(model, setting.corpus.books, setting.lengths, setting.texts)
        rows += [{"read": name, **row} for row in found]
        if setting.stop():
            return None
    return {"needles": rows}


def grown(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Slots after more and more tokens, and the power of the tokens with which they grow."""
    model = trained(setting, "full", seed)
    length = setting.lengths[-1]
    found = measures.growth(model, setting.corpus.books, (0.3, 0.4, 0.5), length, setting.texts)
    for lines in found.values():
        tokens = lines["tokens"]
        for layer in [name for name in lines if name.startswith("layer")]:
            half = len(tokens) // 2
            lines[f"exponent, {layer}"] = [
                measures.exponent(tokens[half:], lines[layer][half:]),
            ]
    return {"growth": found}


def timed(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Decoding and prefill on a GPU."""
    if setting.device != "cuda":
        raise ValueError("times of decoding are measured on a GPU; run this task there")
    model = trained(setting, "full", seed)
    books, rows = setting.corpus.books, []
    for length in (16384, 65536):
        rows += measures.decode(model, books, length, 64, TAU)
        torch.cuda.empty_cache()
    replacements: dict[str, Replace | None] = {
        "full": None, f"cache tau={TAU:g}": cache(TAU), "window": window(setting.of(WINDOW)),
    }  # fmt: skip
    return {"decode": rows, "prefill": measures.prefill(model, replacements, books, 16384, 4)}


def profiled(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Seconds of the first step (compilation) and of a later one of every kind of model."""
    rows = []
    short = replace(setting.train, steps=14, every=1, save_every=1000)

    def one(name: str, model: HybridLM) -> None:
        silent = replace(setting, say=lambda text: None)
        if setting.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        lines = fitted(silent, model, short, seed) or []
        at = [line.seconds for line in lines]
        later = sorted(b - a for a, b in pairwise(at[3:]))
        peak = torch.cuda.max_memory_allocated() if setting.device == "cuda" else 0
        size = sum(part.numel() for part in model.parameters())
        rows.append({
            "name": name, "first": at[0], "step": later[len(later) // 2],
            "peak GiB": peak / 2**30, "parameters": size,
        })  # fmt: skip
        setting.say(f"  {name}: {rows[-1]}")
        if setting.device == "cuda":
            torch.cuda.empty_cache()

    one("mamba2", fresh(setting, "mamba2", seed))
    for kind in ("full", "window", "delta"):
        one(kind, fresh(setting, kind, seed))
    for name in ("cache", "gate", "both"):
        model = fresh(setting, "full", seed)
        choice = TUNED[name](setting)
        assert choice is not None
        swap(model, choice)
        one(f"tuned {name}", model)
    longer = replace(setting, size=replace(setting.size, chunk=2 * setting.size.chunk))
    one(f"mamba2, chunk {longer.size.chunk}", fresh(longer, "mamba2", seed))
    return {"profile": rows}


# What a full run runs for each seed, in this order.
PLAN = (
    "mamba2", "full", "reads", "tune+full", "tune+cache", "tune+both", "tune+window", "tune+gate",
    "window", "needles", "growth", "times", "delta", "full-no-convolution", "full-scale-10",
)  # fmt: skip
TASKS: Mapping[str, Callable[[Setting, str, int], dict[str, Any] | None]] = {
    **dict.fromkeys(TRAINED, from_scratch),
    "tune": tuned,
    "reads": reads,
    "needles": planted,
    "growth": grown,
    "times": timed,
    "profile": profiled,
}
