"""Very many slots: the plain engine against the same with an index that proposes.

Slots are laid from a code (`laid.py`) and tokens drawn around them, each slot equally likely, which
is the hardest case for hot slots; a share of the tokens is novel. Ids of both runs are compared for
every token, and with the rule's own arithmetic for some.
Run ``python -m benchmarks.large`` (half an hour), or with ``--quick`` (a minute).
"""

# S slots, D key size

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from distinctkv import Cache, Concentration
from distinctkv.engines import ann
from distinctkv.rule import distances

from .common import Ints, Rows, chunks, keep, short, stamp, table, timed, verdict
from .laid import Laid, cache, lay, repeats

TAU = 0.4
NOISE = 0.36  # around a slot, as far as two occurrences with noise .25 are from each other
CELLS = [(d, s) for d in (64, 384) for s in (10_000, 100_000, 1_000_000)]
QUICK = [(64, 10_000), (64, 100_000)]
NOVEL = (0.0, 0.01, 0.1)
AIM = 5.0


@dataclass
class Counted:
    """Tokens that the index was asked about, and those whose slot was proven."""

    asked: int = 0
    proven: int = 0


def main() -> None:
    """Measure the cells asked for, print tables, say which figures were reached."""
    parser = argparse.ArgumentParser(prog="benchmarks.large", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 numbers, 10k and 100k slots")
    parser.add_argument("--cells", nargs="+", help="as D,S: 64,1000000")
    parser.add_argument("--novel", type=float, nargs="+", default=NOVEL, help="shares of tokens")
    parser.add_argument("--sample", type=int, default=20, help="tokens decided again by the rule")
    asked = parser.parse_args()
    cells = QUICK if asked.quick else CELLS
    if asked.cells:
        cells = [(int(d), int(s)) for d, s in (cell.split(",") for cell in asked.cells)]
    facts = stamp("faiss-cpu")
    if ann.library() is None:
        raise SystemExit("this needs faiss: pip install 'distinctkv[ann]'")
    ann.library().omp_set_num_threads(1)
    kept: dict[str, Any] = {"machine": facts, "tau": TAU, "noise": NOISE, "full": [], "grown": []}
    for width, n_slots in cells:
        kept["full"] += full(width, n_slots, asked.novel, asked.sample)
        keep("large", kept)
    for width, n_items in [cell for cell in cells if cell[1] <= 100_000]:
        kept["grown"].append(grown(width, n_items))
        keep("large", kept)
    report(kept)


def full(width: int, n_slots: int, shares: Sequence[float], sample: int) -> list[dict[str, Any]]:
    """Tokens per second into a cache that has its slots, for some shares of novel tokens."""
    laid = lay(n_slots, width)
    n_tokens = max(2 * 1024, min(200_000, int(2e11 / (n_slots * width)) // 1024 * 1024))
    print(f"D {width}, S {short(n_slots)}, {short(n_tokens)} tokens", flush=True)
    found = []
    for novel in shares:
        rows, _ = repeats(laid, n_tokens, NOISE, novel)
        ids, row = {}, {"D": width, "slots": n_slots, "tokens": n_tokens, "novel": novel}
        for name, worth in (("plain", np.inf), ("proposed", ann.SEARCH_COST)):
            memory = cache(laid, TAU)
            with patch.object(ann, "WORTH", worth):
                warm(memory, laid)
                with counted() as count:
                    ids[name], time = timed(partial(write, memory, rows))
            row |= {f"{name}_{key}": value for key, value in time.rate(n_tokens).items()}
        row |= {"asked": count.asked, "proven": count.proven, "bytes": index_bytes(memory)}
        row["differ"] = int((ids["plain"] != ids["proposed"]).sum())
        row["sample"], row["wrong"] = sample, check(laid, rows, ids["proposed"], sample)
        found.append(row)
    return found


def warm(memory: Cache, laid: Laid) -> None:
    """Bring rows into order and, where it is worth one, the index into being: not timed."""
    indexed = laid.keys.size >= ann.SEARCH_COST
    write(memory, repeats(laid, 1024 + indexed * ann.WARM_UP, 0.05, seed=2)[0])


def index_bytes(memory: Cache) -> int:
    """Bytes that the index holds."""
    return memory._slots.index(ann.AnnIndex).nbytes


def write(memory: Cache, rows: Rows) -> Ints:
    """Slot ids of tokens written in chunks."""
    return np.concatenate([memory.write(rows[part]) for part in chunks(len(rows))])


def check(laid: Laid, rows: Rows, ids: Ints, sample: int) -> int:
    """Tokens before the first novel one whose id is not that of the rule's nearest slot."""
    old = np.flatnonzero(ids < len(laid.keys))
    some = old[np.linspace(0, len(old) - 1, sample).astype(int)]
    wrong = 0
    for token in some:
        best, nearest = np.inf, -1
        for start in range(0, len(laid.keys), 100_000):
            squared = distances(rows[token], laid.keys[start : start + 100_000])
            if squared.min() < best:
                best, nearest = float(squared.min()), start + int(squared.argmin())
        wrong += nearest != ids[token] or best / 2 > TAU
    return wrong


def grown(width: int, n_items: int) -> dict[str, Any]:
    """A cache from its first token on: each slot costs a search of all slots before it."""
    rng = np.random.default_rng(0)
    things = rng.standard_normal((n_items, width), np.float32)
    things /= np.linalg.norm(things, axis=1, keepdims=True)
    n_tokens = 4 * n_items
    rows = things[rng.integers(0, n_items, n_tokens)]
    rows += np.float32(0.25 / np.sqrt(width)) * rng.standard_normal(rows.shape, np.float32)
    ids, row = {}, {"D": width, "items": n_items, "tokens": n_tokens}
    for name, worth in (("plain", np.inf), ("proposed", ann.SEARCH_COST)):
        memory = Cache(Concentration.fixed(TAU))
        with patch.object(ann, "WORTH", worth):
            ids[name], time = timed(partial(write, memory, rows))
        row |= {f"{name}_{key}": value for key, value in time.rate(n_tokens).items()}
    return row | {"slots": len(memory), "differ": int((ids["plain"] != ids["proposed"]).sum())}


@contextmanager
def counted() -> Iterator[Counted]:
    """Count what the index is asked and proves."""
    count, prove = Counted(), ann.prove

    def spy(*given: Any) -> Any:  # noqa: ANN401
        answer = prove(*given)
        count.asked += len(given[2])
        count.proven += len(answer[0])
        return answer

    with patch.object(ann, "prove", spy):
        yield count


def report(kept: dict[str, Any]) -> None:
    """Print both tables and the verdicts."""
    head = ["D", "slots", "novel", "plain tokens/s", "proposed", "ratio", "proven", "bytes/slot"]
    lines = []
    for row in kept["full"]:
        ratio = row["plain_cpu"] / row["proposed_cpu"]
        share = row["proven"] / max(1, row["asked"])
        paces = (short(row[f"{name}_tokens_per_cpu_s"]) for name in ("plain", "proposed"))
        cells = [row["D"], short(row["slots"]), f"{row['novel']:.0%}", *paces, f"{ratio:.1f}"]
        lines.append([*cells, f"{share:.1%}", f"+{row['bytes'] / row['slots']:.0f}"])
    print("\nslots laid, tokens near them, CPU time")
    table(head, lines)
    print("\nfrom the first token on, every thing four times on average")
    head = ["D", "things", "slots", "plain tokens/s", "proposed", "ratio"]
    lines = []
    for row in kept["grown"]:
        paces = (short(row[f"{name}_tokens_per_cpu_s"]) for name in ("plain", "proposed"))
        cells = [row["D"], short(row["items"]), short(row["slots"])]
        lines.append([*cells, *paces, f"{row['plain_cpu'] / row['proposed_cpu']:.2f}"])
    table(head, lines)
    print()
    rows = [*kept["full"], *kept["grown"]]
    differ = sum(row["differ"] for row in rows)
    verdict(f"ids alike for {short(sum(row['tokens'] for row in rows))} tokens", differ == 0)
    wrong = sum(row["wrong"] for row in kept["full"])
    verdict(f"{sum(row['sample'] for row in kept['full'])} tokens as the rule says", wrong == 0)
    for row in kept["full"]:
        if row["slots"] == 1_000_000 and row["novel"] == 0:
            ratio = row["plain_cpu"] / row["proposed_cpu"]
            verdict(f"{AIM:g}x at 1M slots, D {row['D']}: {ratio:.1f}x", ratio >= AIM)


if __name__ == "__main__":
    main()
