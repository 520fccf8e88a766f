"""What is run: each task trains or measures something from one seed and leaves one JSON file."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
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
from . import needles as planting
from .corpus import Corpus, read_novels, read_pairs, spread, toy
from .heavy import heavy
from .models import (
    BASE,
    SMALL,
    TOY,
    Replace,
    Size,
    build,
    cache,
    gated,
    scheduled,
    swap,
    swapped,
    window,
)
from .train import Batches, Line, Schedule, compile_blocks, compile_for_measures, train

TRAIN = Schedule(steps=400, rate=2e-3)
TUNE = Schedule(steps=150, rate=3e-4, warm=10, hold=0.0)
GATE = Schedule(steps=100, rate=2e-3, batch=8, warm=10, hold=0.0)
NEEDLES = Schedule(steps=200, rate=1e-3, warm=20)
TOY_TRAIN = Schedule(steps=20, rate=2e-3, batch=4, length=128, warm=5, every=10, save_every=10)

TRAINED = {name.replace(", ", "-").replace(" ", "-"): name for name in models.BUILD}
TAUS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)  # between which tau is interpolated
PARTS = (0.05, 0.1, 0.2, 0.3, 0.4)  # of the bytes of all keys and values
CONTROLS = {"random": (0.1, 0.2, 0.3), "stride": (0.2,), "KVM": (0.1, 0.2), "OVQ": (0.1, 0.2)}
BOTH = 0.25  # of the part of a window with slots that is the window
MAIN = 0.2  # the part at which reads are tuned and asked for needles
RATES, SWEPT = (1e-3, 2e-3, 4e-3), 0.5  # of a sweep, and the part of the steps that it takes
PAIRED = "-bpe"  # the end of a task with tokens that are pairs of bytes


@dataclass(frozen=True)
class Setting:
    """Where and at which size tasks run."""

    corpus: Corpus
    folder: Path
    size: Size = BASE
    train: Schedule = TRAIN
    tune: Schedule = TUNE
    gate: Schedule = GATE
    needles: Schedule = NEEDLES
    device: str = "cpu"
    compiled: bool = False
    ranks: tuple[int, int] = (0, 1)
    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384)  # of texts with needles
    texts: int = 8  # with needles, of each kind
    say: Callable[[str], None] = print
    stop: Callable[[], bool] = lambda: False
    pairs: Callable[[], Corpus] | None = None  # the corpus of tokens that are pairs of bytes
    end: str = ""  # of the name of every task

    @cached_property
    def tokens(self) -> int:
        """Tokens of a segment."""
        return int(self.corpus.segments["held out"].shape[1]) - 1

    def path(self, task: str, seed: int, end: str) -> Path:
        """The file of a task."""
        return self.folder / f"{task}{self.end}-{seed}.{end}"

    def of(self, part: float, length: int | None = None) -> int:
        """This part of the tokens of a segment, or of a text."""
        return max(1, round(part * (length or self.tokens)))

    def of_bytes(self, part: float, length: int | None = None) -> int:
        """So many tokens, with four bytes each beside keys and values, take this part of theirs."""
        each = measures.kept_bytes(1, 1, self.size.head)
        return max(2, round(part * (length or self.tokens) / each))

    def paired(self) -> Setting:
        """The same with tokens that are pairs of bytes."""
        if self.pairs is None:
            raise ValueError("there is no corpus of pairs; give --pairs FILE")
        corpus = self.pairs()
        size = replace(self.size, vocabulary=corpus.vocabulary)
        return replace(self, corpus=corpus, size=size, end=PAIRED)


def run(setting: Setting, task: str, seed: int) -> None:
    """Run a task, unless its file is there, and write the file."""
    path = setting.path(task, seed, "json")
    if path.exists():
        return
    name = task.removesuffix(PAIRED)
    work = TASKS.get(name.partition("+")[0])
    if work is None:
        raise ValueError(f"there is no task {task!r}; there are {', '.join(TASKS)}")
    started = perf_counter()
    if name != task:
        setting = setting.paired()
    torch.manual_seed(seed)
    found = work(setting, name, seed)
    if found is None or setting.ranks[0]:
        return
    about = {
        "task": task,
        "seed": seed,
        "command": "python -m reproduction.studies.companion run CORPUS FOLDER "
        f"{task}/{seed} " + ("--small" if setting.size == SMALL else f"--texts {setting.texts}"),
        "size": asdict(setting.size),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(perf_counter() - started, 1),
        **versions(setting.device),
    }
    text = json.dumps({**about, **found})
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
    for row in found.get("rows", ()):
        parts.append(
            f"{row['read']} {row['bits']['all']:.4f} {row['bits'].get('rare 8-gram', 0):.3f}"
        )
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
        raise FileNotFoundError(f"{path} is missing: run {task}{setting.end}/{seed} first")
    model = build(TRAINED[task], setting.size)
    checkpoint.load(model, path)
    return ready(setting, model.to(setting.device).eval())


def ready(setting: Setting, model: HybridLM) -> HybridLM:
    """The model, compiled for measuring."""
    if setting.compiled:
        compile_for_measures(model)
    return model


def keep(setting: Setting, task: str, seed: int, model: HybridLM) -> None:
    """Write the weights in 16 bits."""
    if setting.ranks[0] == 0:
        checkpoint.save(deepcopy(model).bfloat16(), setting.path(task, seed, "safetensors"))


def toy_setting(folder: Path) -> Setting:
    """Toy models on drawn words, on the processor: seconds, and numbers that mean nothing."""
    short = replace(TOY_TRAIN, steps=10)
    return Setting(
        toy(), folder, TOY, TOY_TRAIN, short, short, short, lengths=(1024, 2048), texts=2,
        say=lambda text: None, pairs=partial(toy, pairs=True),
    )  # fmt: skip


def small_setting(corpus: Corpus, folder: Path) -> Setting:
    """Models that a CPU trains, on texts of 1,024 bytes, to find needles."""
    text = Schedule(steps=300, rate=2e-3, batch=8, length=1024, warm=50)
    return Setting(
        corpus.first(32, text.length), folder, SMALL, train=text,
        tune=replace(text, steps=150, rate=5e-4, warm=10, hold=0.0),
        needles=replace(text, steps=900), lengths=(512, 1024, 2048, 4096), texts=16,
    )  # fmt: skip


def run_all(n_seeds: int) -> Path:
    """Train and measure everything on this graphics card; goes on where it was stopped."""
    folder = cache_folder() / "companion"
    folder.mkdir(parents=True, exist_ok=True)
    path, pairs = folder / "corpus.npz", folder / "pairs.npz"
    for file, made in ((path, read_novels), (pairs, read_pairs)):
        if not file.exists():
            made().save(file)
    setting = Setting(
        Corpus.load(path), folder, device="cuda", compiled=True, pairs=partial(Corpus.load, pairs)
    )
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
    model = trained(setting, task, seed)  # in 16 bits, as all that follows reads it
    return {
        "parameters": sum(part.numel() for part in model.parameters()),
        "schedule": asdict(setting.train),
        "train": [asdict(line) for line in lines],
        "bits": measures.bits(model, setting.corpus),
        "foreign": measures.bits(model, setting.corpus, "foreign"),
        "slots": measures.slot_counts(model),
    }


def fitted(
    setting: Setting,
    model: HybridLM,
    schedule: Schedule,
    seed: int,
    path: Path | None = None,
    kind: type[Batches] = Batches,
) -> list[Line] | None:
    """Train a model as far as the schedule goes; None if it was stopped before."""
    if setting.compiled:
        compile_blocks(model)

    def log(line: Line) -> None:
        slots = " ".join(f"{part:.3f}" for part in line.slots.values())
        setting.say(f"  step {line.step} loss {line.loss:.4f} {line.seconds:.1f} s {slots}")

    lines = train(
        model, setting.corpus.train, schedule, seed,
        path=path, kind=kind, ranks=setting.ranks, log=log, stop=setting.stop,
    )  # fmt: skip
    return lines if lines and lines[-1].step == schedule.steps else None


def swept(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """A model trained for fewer steps at several rates; ``rate+MODEL``."""
    kind, rows = task.partition("+")[2], []
    if kind not in TRAINED:
        raise ValueError(f"there is no model {kind!r} to train; there are {', '.join(TRAINED)}")
    short = replace(setting.train, steps=max(1, round(SWEPT * setting.train.steps)))
    for rate in RATES:
        model = fresh(setting, TRAINED[kind], seed)
        lines = fitted(setting, model, replace(short, rate=rate), seed)
        if lines is None:
            return None
        found = measures.bits(ready(setting, model.eval()), setting.corpus)
        rows.append({"read": f"{rate:g}", "rate": rate, "bits": found, "loss": lines[-1].loss})
    return {"model": kind, "schedule": asdict(short), "rows": rows}


def tuned(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """A trained full attention, trained on for a few steps with another read; ``tune+READ``."""
    read = task.partition("+")[2]
    model = trained(setting, "full", seed)
    tau, both = (tau_for(setting, model, MAIN, window) for window in (0.0, BOTH))
    choices: dict[str, Replace | None] = {
        "full": None,
        "cache": plain_cache(tau),
        "window": window(setting.of(MAIN)),
        "both": plain_cache(both, setting.of(MAIN * BOTH)),
        "gate": gated(tau, setting.of(MAIN)),
    }
    if read not in choices:
        raise ValueError(f"there is nothing to tune {read!r}; there are {', '.join(choices)}")
    choice = choices[read]
    if choice is not None:
        swap(model, choice)
    schedule = setting.gate if read == "gate" else setting.tune
    lines = fitted(setting, model, schedule, seed + 1000)
    if lines is None:
        return None
    _curves.pop(model, None)  # its keys are others now
    ready(setting, model)
    found: dict[str, Any] = {
        "read": read,
        "start": tau,
        "schedule": asdict(schedule),
        "train": [asdict(line) for line in lines],
    }
    if read == "gate":
        found["tau"] = [float(mixer.tau) for mixer in measures.caches(model)]
        return {**found, "bits": measures.bits(model, setting.corpus), **slots_seen(model, setting)}
    back_to_full(model, setting)
    parts = (MAIN, MAIN / 2) if read in ("cache", "both", "window") else (MAIN,)
    choose = {"cache": cache_at, "both": both_at, "window": window_at}.get(read)
    found["rows"] = [measured(model, setting, "full", None)]
    if choose is not None:
        for part in parts:
            found["rows"].append(measured(model, setting, *choose(setting, model, part)))
    return {**found, "bits": found["rows"][min(1, len(found["rows"]) - 1)]["bits"]}


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
    """Bits of one full checkpoint under many reads of equal bytes, none of them trained."""
    model = trained(setting, "full", seed)
    head, scheduled_slots = setting.size.head, {}
    plan: list[tuple[str, Choice]] = [("full", None)]
    for at in (cache_at, window_at, both_at):
        plan += [at(setting, model, part) for part in PARTS]
    for rule in ("random", "stride"):
        plan += [
            (f"{rule} {percent(part)}", cache(tau_for(setting, model, part), rule=rule))
            for part in CONTROLS[rule]
        ]
    for name, kind in (("KVM", KVMAttention), ("OVQ", OVQAttention)):
        for part in CONTROLS[name]:
            n = setting.of_bytes(part)
            plan.append((f"{name} {percent(part)}", scheduled(kind, n, setting.tokens)))
            scheduled_slots[plan[-1][0]] = n
    rows = measured_all(setting, model, plan)
    for row in rows:
        if row["read"] in scheduled_slots:  # the schedule ends there, whatever the tokens are
            n = scheduled_slots[row["read"]]
            row |= {"slots": n, "kept": measures.kept_bytes(n, setting.tokens, head)}
    return {"rows": rows, "taus": [tau_for(setting, model, part) for part in PARTS]}


def controls(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """The same, of few reads, with rules that evict by attention beside them."""
    model = trained(setting, "full", seed)
    plan: list[tuple[str, Choice]] = [("full", None)]
    for at in (cache_at, window_at, heavy_at, votes_at):
        plan += [at(setting, model, part) for part in (MAIN, MAIN / 2)]
    return {"rows": measured_all(setting, model, plan)}


def measured_all(
    setting: Setting, model: HybridLM, plan: Sequence[tuple[str, Choice]]
) -> list[dict[str, Any]]:
    """Bits and slots of reads, until the time is over."""
    rows = []
    for name, choice in plan:
        started = perf_counter()
        row = measured(model, setting, name, choice)
        rows.append({**row, "seconds": round(perf_counter() - started, 2)})
        if setting.stop():
            break
    return rows


Choice = Replace | None


def percent(part: float) -> str:
    """A part of the bytes in words.

    >>> percent(0.2)
    '20 %'
    """
    return f"{100 * part:g} %"


def cache_at(setting: Setting, model: HybridLM, part: float) -> tuple[str, Choice]:
    """The cache at the tau whose slots take this part of the bytes."""
    return f"cache {percent(part)}", cache(tau_for(setting, model, part))


def window_at(setting: Setting, model: HybridLM, part: float) -> tuple[str, Choice]:
    """A window of this part of the tokens."""
    return f"window {percent(part)}", window(setting.of(part))


def both_at(setting: Setting, model: HybridLM, part: float) -> tuple[str, Choice]:
    """A window of a quarter of the bytes, and slots for the tokens that have left it."""
    tau = tau_for(setting, model, part, BOTH)
    return f"both {percent(part)}", cache(tau, setting.of(part * BOTH))


def heavy_at(setting: Setting, model: HybridLM, part: float) -> tuple[str, Choice]:
    """H2O with so many tokens that they and their scores take this part of the bytes."""
    return f"H2O {percent(part)}", heavy(setting.of_bytes(part))


def votes_at(setting: Setting, model: HybridLM, part: float) -> tuple[str, Choice]:
    """The same with the tokens for which the last block votes."""
    return f"block votes {percent(part)}", heavy(setting.of_bytes(part), votes=True)


def tau_for(setting: Setting, model: HybridLM, part: float, of_window: float = 0.0) -> float:
    """The tau at which slots, with a window, take this part of the bytes of training text."""
    tokens = setting.of(part * of_window) if of_window else 0
    curves = _curves.get(model)
    if curves is None:
        text = spread(setting.corpus.train, setting.tokens, 16)
        curves = _curves[model] = measures.slots_by_tau(model, text, TAUS)
    kept = [
        measures.kept_bytes(float(one[-1 - tokens]), setting.tokens, setting.size.head)
        + tokens / setting.tokens
        for one in curves
    ]
    return float(np.interp(-part, [-one for one in kept], TAUS))


_curves: WeakKeyDictionary[HybridLM, Any] = WeakKeyDictionary()


def measured(model: HybridLM, setting: Setting, name: str, choice: Choice) -> dict[str, Any]:
    """Bits and slots of a read."""
    with swapped(model, choice or (lambda full: full)) as mixers:
        found = {"read": name, "bits": measures.bits(model, setting.corpus)}
        slots = measures.slot_counts(model)
        part = measures.kept(model, setting.tokens)
        taus = [float(mixer.tau) for mixer in mixers if isinstance(mixer, DistinctAttention)]
    about = {"tau": taus[0]} if taus else {}
    return {**found, **about, "slots": slots, "kept": part}


def plain_cache(tau: float, tokens: int = 0) -> Replace:
    """The layer itself: what is trained keeps no record of its slots."""
    return lambda full: DistinctAttention.retrofit(full, tau, Reading(window=tokens))


# Needles, growth, time


def planted(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Models that learned to answer, and needles found by them and by other reads of one.

    The last read is the cache after a few more steps with it.
    """
    found: dict[str, Any] = {
        "schedule": asdict(setting.needles), "tune": asdict(setting.tune),
        "planted": planting.about(), "needles": [],
    }  # fmt: skip
    for name in ("full", "mamba2"):
        if name == "mamba2" and not setting.path(name, seed, "safetensors").exists():
            continue
        model = trained(setting, name, seed)
        lines = fitted(setting, model, setting.needles, seed + 2000, kind=planting.PlantedBatches)
        if lines is None:
            return None
        ready(setting, model.eval())
        found[f"train {name}"] = [asdict(line) for line in lines]
        found[f"bits {name}"] = measures.bits(model, setting.corpus)
        started = perf_counter()
        for length in setting.lengths:
            for read, choice in readings(setting, name, model, length):
                found["needles"] += asked(setting, model, read, choice, length)
        found[f"seconds asked {name}"] = round(perf_counter() - started, 1)
        if name == "full":
            swap(model, plain_cache(tau_for(setting, model, MAIN)))
            tune = replace(setting.tune, length=setting.needles.length)
            lines = fitted(setting, model, tune, seed + 3000, kind=planting.PlantedBatches)
            if lines is None:
                return None
            found["train cache"] = [asdict(line) for line in lines]
            back_to_full(model, setting)
            _curves.pop(model, None)  # its keys are others now
            read, choice = cache_at(setting, ready(setting, model.eval()), MAIN)
            for length in setting.lengths:
                found["needles"] += asked(setting, model, f"{read}, trained", choice, length)
    return found


def readings(setting: Setting, name: str, model: HybridLM, length: int) -> list[tuple[str, Choice]]:
    """The reads that are asked for needles, of equal bytes at each length but for the cache.

    The threshold of the cache is that for texts of the length trained on.
    """
    if name != "full":
        return [(name, None)]
    return [
        (name, None),
        cache_at(setting, model, MAIN),
        cache_at(setting, model, MAIN / 2),
        (f"window {percent(MAIN)}", window(setting.of(MAIN, length))),
        (f"H2O {percent(MAIN)}", heavy(setting.of_bytes(MAIN, length))),
    ]


def asked(
    setting: Setting, model: HybridLM, read: str, choice: Choice, length: int
) -> list[dict[str, Any]]:
    """Needles found by a read in texts of a length, and the part of the bytes that it kept."""
    rows: list[dict[str, Any]] = []
    with swapped(model, choice or (lambda full: full)):
        for kind in planting.KINDS:
            rows += planting.found(model, setting.corpus.books, kind, length, setting.texts)
        part = measures.kept(model, length)
    told = ", ".join(
        f"{planting.mean_found([r for r in rows if r['task'] == kind]):.2f}"
        for kind in planting.KINDS
    )
    setting.say(f"  {length} {read} {told}")
    return [{"read": read, "kept": part, **row} for row in rows]


def grown(setting: Setting, task: str, seed: int) -> dict[str, Any] | None:
    """Slots after more and more tokens, and the power of the tokens with which they grow."""
    model = trained(setting, "full", seed)
    length = setting.lengths[-1]
    taus = [tau_for(setting, model, part) for part in (0.1, 0.2, 0.4)]
    found = measures.growth(model, setting.corpus.books, taus, length, setting.texts)
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
    books, rows, tau = setting.corpus.books, [], tau_for(setting, model, MAIN)
    for length in (16384, 65536):
        rows += measures.decode(model, books, length, 64, tau)
        torch.cuda.empty_cache()
    replacements: dict[str, Replace | None] = {
        "full": None, "cache": cache(tau), "window": window(setting.of(MAIN)),
    }  # fmt: skip
    return {
        "tau": tau, "decode": rows,
        "prefill": measures.prefill(model, replacements, books, 16384, 4),
    }  # fmt: skip


# What a full run runs for each seed, in this order.
PLAN = (
    "mamba2", "full", "reads", "controls", "needles", "tune+full", "tune+cache", "tune+both",
    "tune+window", "tune+gate", "window", "growth", "times", "mamba2-bpe", "full-bpe",
    "controls-bpe", "full-lag-0", "full-no-convolution", "full-scale-10", "rate+mamba2",
    "rate+full", "rate+window",
)  # fmt: skip
TASKS: Mapping[str, Callable[[Setting, str, int], dict[str, Any] | None]] = {
    **dict.fromkeys(TRAINED, from_scratch),
    "tune": tuned,
    "rate": swept,
    "reads": reads,
    "controls": controls,
    "needles": planted,
    "growth": grown,
    "times": timed,
}
