"""A cache in shards: what merging changes, how much two processes gain, what a merge costs.

Run ``python -m benchmarks.scale`` (an hour, on two quiet cores), or with ``--quick`` (minutes).
"""

# N tokens, K items to draw from, D key size, S slots

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distinctkv import Cache, Concentration
from distinctkv.dedup import Deduplicator
from distinctkv.rule import unit
from distinctkv.scale import Processes, build, lines

from .common import OUT, draw, keep, short, stamp, table, timed, verdict, write
from .laid import Laid, cache, lay
from .texts import generated, log_lines, paragraphs

TAU = 0.5
CALM = 0.25  # noise up to which merging is held to the figures
NOISES = (0.1, 0.25, 0.5, 0.7, 0.8)
SHARDS = (2, 4, 16, 64, 256)
STREAMS = ((64, 1_000, 0.5), (64, 10_000, 0.3), (64, 10_000, 0.5), (384, 5_000, 0.5))  # D, K, tau
WIDTH, N_ITEMS, N_FILES = 64, 10_000, 4
KNOWN = (0.5, 0.99)  # share of the absorbed slots that are there already
PAIRS = 2e10  # of a new slot and an old one, which all are compared: minutes at most
make = partial(Cache, Concentration.fixed(TAU))


def main() -> None:
    """Measure, print it, say which figures were reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500k tokens, up to 10k slots")
    parser.add_argument("--only", choices=["merged", "texts", "speed", "cost"], help="one")
    asked = parser.parse_args()
    facts = stamp("faiss-cpu")
    n_tokens = 500_000 if asked.quick else 10_000_000
    most = 10_000 if asked.quick else 1_000_000
    runs: dict[str, Callable[[], Any]] = {
        "merged": lambda: merged(20_000 if asked.quick else 60_000),
        "texts": lambda: texts(2_000 if asked.quick else 20_000),
        "speed": lambda: speed(n_tokens),
        "cost": lambda: cost(most),
    }
    for name, run in runs.items():
        if asked.only in (None, name):
            print()
            section = {"machine": facts, "quick": asked.quick, "result": run()}
            keep("scale", earlier() | {name: section})


def earlier() -> dict[str, Any]:
    """What earlier runs kept, each with its machine and day."""
    path = OUT / "scale.json"
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return {name: section for name, section in kept.items() if "result" in section}


def merged(n_tokens: int) -> list[dict[str, Any]]:
    """Slots and recall of merged shards beside those of one pass."""
    rows = []
    for width, n_items, tau in STREAMS:
        for noise in NOISES:
            stream = draw(n_tokens, n_items, width, noise)
            policy = partial(Cache, Concentration.fixed(tau))
            whole = policy()
            write(whole, stream.rows)
            row = {"D": width, "K": n_items, "tau": tau, "noise": noise}
            row |= {"items": stream.distinct, "slots": len(whole), "recall": recall(whole, stream)}
            for n in SHARDS:
                cache = build(np.array_split(stream.rows, n), policy)
                row |= {f"slots_{n}": len(cache), f"recall_{n}": recall(cache, stream)}
            rows.append(row)
    print(f"merged shards, {short(n_tokens)} tokens each")
    head = ["D", "K", "tau", "noise", "items", "one pass", *map(str, SHARDS), "recall", "of 16"]
    names = ["D", "K", "tau", "noise", "items", "slots", *(f"slots_{n}" for n in SHARDS)]
    ends = ((f"{row['recall']:.4f}", f"{row['recall_16']:.4f}") for row in rows)
    table(
        head, [[*(row[name] for name in names), *end] for row, end in zip(rows, ends, strict=True)]
    )
    calm = [row for row in rows if row["noise"] <= CALM]
    worst = max(abs(row["slots_16"] / row["slots"] - 1) for row in calm)
    lost = max(row["recall"] - row["recall_16"] for row in calm)
    verdict(f"16 shards within .5 % of the slots at noise <= {CALM}: {worst:.2%}", worst <= 0.005)
    most = max(abs(row[f"slots_{n}"] / row["slots"] - 1) for row in calm for n in SHARDS)
    verdict(f"2 to 256 shards within .5 % of these slots: {most:.2%}", most <= 0.005)
    verdict(f"16 shards within .002 of the recall: {lost:+.4f}", lost <= 0.002)
    return rows


def texts(n_texts: int) -> list[dict[str, Any]]:
    """Texts that a de-duplicator keeps in one pass and in shards."""
    rows = []
    for given in filter(None, (log_lines(), paragraphs(), generated())):
        for similarity in (0.8, 0.9, 0.95):
            some, row = given.texts[:n_texts], {"texts": given.name, "similarity": similarity}
            for n in (1, *SHARDS[:3]):
                shards = np.array_split(np.array(some, object), n)
                policy = partial(Deduplicator, similarity)
                row[f"kept_{n}"] = len(build([*map(list, shards)], policy, loader=lines))
            rows.append(row)
    print(f"texts kept in shards, {short(n_texts)} of each at most, n-grams")
    table(["texts", "similarity", "one pass", *map(str, SHARDS[:3])], [[*r.values()] for r in rows])
    return rows


def recall(memory: Cache, stream: Any) -> float:  # noqa: ANN401
    """Share of tokens whose nearest slot was opened by their own item."""
    found = []
    slots = memory.slots
    opener = np.zeros(memory.n_opened, np.int64)
    opener[slots.ids] = stream.items[slots.first_seen]
    for start in range(0, len(stream), 1 << 14):
        part = stream[start : start + (1 << 14)]
        found.append(opener[memory.nearest(part.rows)[0]] == part.items)
    return float(np.concatenate(found).mean())


def speed(n_tokens: int) -> dict[str, Any]:
    """Tokens per second of one process and of two, start-up apart."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        shards = _files(n_tokens, Path(folder))
        print(f"{short(n_tokens)} tokens in {N_FILES} files, {time.perf_counter() - began:.0f} s")
        whole, alone = timed(partial(_one_pass, shards))
        in_turn, serial = timed(partial(build, shards, make))
        with Processes(2) as processes:
            began = time.perf_counter()
            list(processes(abs, range(2)))  # both are there, and have imported what they need
            list(processes(_ready, range(2)))
            start = time.perf_counter() - began
            steps: list[float] = []
            progress = partial(_step, steps)
            both, pair = timed(partial(build, shards, make, processes, progress=progress))
    merge = steps[-1] - steps[N_FILES - 1]
    ratio = alone.wall / pair.wall
    head = ["way", "wall s", "tokens per wall s", "slots"]
    lines = [
        ["one pass", alone, whole],
        ["shards in turn", serial, in_turn],
        ["two processes", pair, both],
    ]
    table(head, [[way, f"{t.wall:.1f}", short(n_tokens / t.wall), len(c)] for way, t, c in lines])
    print(f"wall: start-up, not counted, {start:.1f} s; merging, counted, {merge:.1f} s")
    verdict(f"two processes at least 1.7 times one by the wall clock: {ratio:.2f}", ratio >= 1.7)
    walls = {"one_pass": alone.wall, "in_turn": serial.wall, "two": pair.wall}
    return {"tokens": n_tokens, "slots": len(both), "start": start, "merge": merge, **walls}


def _step(steps: list[float], *_: int) -> None:
    steps.append(time.perf_counter())


def _ready(_: int) -> int:
    return len(make())


def _one_pass(shards: list[str]) -> Cache:
    cache = make()
    for shard in shards:
        write(cache, np.load(shard))
    return cache


def _files(n_tokens: int, folder: Path) -> list[str]:
    """The stream in files, from one set of items."""
    rng, paths = np.random.default_rng(0), []
    things = unit(rng.standard_normal((N_ITEMS, WIDTH))).astype(np.float32)
    popular = np.cumsum(np.arange(1, N_ITEMS + 1) ** -1.1)
    for number in range(N_FILES):
        n = n_tokens // N_FILES
        rows = things[np.searchsorted(popular, rng.random(n) * popular[-1])]
        rows += np.float32(0.25 / np.sqrt(WIDTH)) * rng.standard_normal(rows.shape, np.float32)
        paths.append(str(folder / f"{number:02}.npy"))
        np.save(paths[-1], rows)
    return paths


def cost(most: int) -> list[dict[str, Any]]:
    """Seconds that one cache needs to absorb another of its size, part of it known."""
    rows = []
    sizes = [10**power for power in range(3, 7) if 10**power <= most]
    for n_slots, known in [(size, share) for share in KNOWN for size in sizes]:
        if (1 - known) * n_slots**2 > PAIRS:
            continue
        parts = [cache(part, 0.4) for part in _overlapping(n_slots, known)]
        n_bytes = parts[1].nbytes
        _, spent = timed(partial(parts[0].absorb, parts[1]))
        row = {"slots": n_slots, "known": known, "merged": len(parts[0]), "bytes": n_bytes}
        rows.append(row | {"cpu": spent.cpu})
        print(f"  {short(n_slots)} slots, {known:.0%} known: {spent.cpu:.3g} s", flush=True)
    head = ["slots each", "known", "merged", "MB each", "CPU s", "us per slot"]
    lines = []
    for row in rows:
        cells = [short(row["slots"]), f"{row['known']:.0%}", short(row["merged"])]
        each = f"{row['cpu'] / row['slots'] * 1e6:.1f}"
        lines.append([*cells, f"{row['bytes'] / 1e6:.2f}", f"{row['cpu']:.3g}", each])
    table(head, lines)
    return rows


def _overlapping(n_slots: int, known: float) -> tuple[Laid, Laid]:
    """Two sets of slots that share a part, which is a bit different in the second."""
    fresh = round((1 - known) * n_slots)
    laid = lay(n_slots + fresh, WIDTH)
    rng, left, right = np.random.default_rng(0), laid.keys[:n_slots], laid.keys[fresh:].copy()
    shared = right[: n_slots - fresh]
    shared += np.float32(0.005 / np.sqrt(WIDTH)) * rng.standard_normal(shared.shape, np.float32)
    shared /= np.linalg.norm(shared, axis=1, keepdims=True)
    return Laid(left, laid.apart), Laid(right, laid.apart - 0.01)


if __name__ == "__main__":
    main()
