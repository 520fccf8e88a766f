"""De-duplication against semhash: what both keep, and how fast, with the embedding apart.

    python -m benchmarks.dedup

Both get the same texts and the same vectors (static word vectors, made before and looked up, so
that no embedding is timed) and the same threshold. semhash runs with its exact back end and with
its default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distinctkv.dedup import Deduplicator, NGrams

from .common import Race, keep, race, short, stamp, table, verdict
from .texts import Texts, generated, log_lines, paragraphs

Rows = NDArray[np.float32]
SIMILARITIES = (0.8, 0.9, 0.95)
BUDGETS = (100, 1000, inf)
HEAD = (
    "texts, N, similarity, kept, batch, single, semhash exact, semhash default, /exact, /default, "
    "single/batch, Jaccard exact, Jaccard default"
)


class Stub:
    """An encoder that only looks up."""

    def __init__(self, texts: Sequence[str], embed: Callable[[list[str]], Rows]) -> None:
        self._places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        self.rows = embed([*self._places])

    def encode(self, texts: Sequence[str]) -> Rows:
        """Rows of texts."""
        return self.rows[[self._places[text] for text in texts]]


def word_vectors(texts: list[str]) -> Rows:
    """The mean of WordLlama's vectors of the tokens of each text (256 numbers)."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    home = Path(find_spec("wordllama").origin).parent
    tokenizer = Tokenizer.from_file(str(home / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    [table] = load_file(home / "weights" / "l2_supercat_256.safetensors").values()
    table = table.astype(np.float32)
    found = (one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False))
    return np.stack([table[ids or [0]].mean(axis=0) for ids in found])


def semhash(texts: Sequence[str], stub: Stub, similarity: float, backend: str) -> list[str]:
    """What semhash keeps."""
    from semhash import SemHash

    index = SemHash.from_records([*texts], model=stub, ann_backend=backend)
    kept: list[str] = index.self_deduplicate(threshold=similarity).selected
    return kept


def batch(texts: Sequence[str], stub: Stub, similarity: float) -> list[str]:
    """What we keep, all at once."""
    seen = Deduplicator(similarity, encode=stub.encode)
    decisions = seen.add_many(texts)
    return [text for text, decision in zip(texts, decisions, strict=True) if decision]


def single(texts: Sequence[str], stub: Stub, similarity: float) -> list[str]:
    """What we keep, one by one."""
    seen = Deduplicator(similarity, encode=stub.encode)
    return [text for text in texts if seen.add(text)]


def jaccard(one: Sequence[str], other: Sequence[str]) -> float:
    """How much of two sets is in both."""
    return len({*one} & {*other}) / len({*one} | {*other})


def runs(texts: Sequence[str], stub: Stub, similarity: float) -> dict[str, Callable[[], Any]]:
    """All that is compared, by name."""
    return {
        "batch": lambda: batch(texts, stub, similarity),
        "single": lambda: single(texts, stub, similarity),
        "exact": lambda: semhash(texts, stub, similarity, "basic"),
        "default": lambda: semhash(texts, stub, similarity, "usearch"),
    }


def measured(given: Texts, similarity: float, stub: Stub) -> dict[str, Any]:
    """Rates and kept sets for one set of texts and one threshold."""
    races: dict[str, Race] = race(runs(given.texts, stub, similarity), rounds=3, patience=12.0)
    n = len(given.texts)
    kept = {name: found.result for name, found in races.items()}
    return {
        "texts": given.name,
        "n": n,
        "similarity": similarity,
        "kept": len(kept["batch"]),
        "rates": {name: found.rate(n) for name, found in races.items()},
        "jaccard": {name: jaccard(kept["batch"], kept[name]) for name in races},
        "same": kept["batch"] == kept["single"],
    }


def encoders(texts: Sequence[str]) -> list[dict[str, Any]]:
    """All of it together with our encoder, for some budgets, and the encoder's own cost."""
    rows = []
    for budget in BUDGETS:
        make = partial(Deduplicator, 0.9, budget=budget)
        runs = {
            "encode": lambda: NGrams()(texts),
            "batch": lambda make=make: make().add_many(texts),
            "single": lambda make=make: [*map(make().add, texts)],
        }
        races = race(runs, rounds=3, patience=12.0)
        kept = {name: [*map(bool, races[name].result)] for name in ("batch", "single")}
        rates = {name: found.rate(len(texts)) for name, found in races.items()}
        same = kept["batch"] == kept["single"]
        rows.append({"budget": budget, "kept": sum(kept["batch"]), "rates": rates, "same": same})
    return rows


def _ratio(row: dict[str, Any], one: str, other: str) -> float:
    """How many times as fast, by the clock that says less."""
    rates = row["rates"]
    return min(
        rates[one][clock] / rates[other][clock] for clock in ("tokens_per_s", "tokens_per_cpu_s")
    )


def rated(row: dict[str, Any], *ways: str) -> list[str]:
    """Records a second, for a table."""
    return [short(row["rates"][way]["tokens_per_s"]) for way in ways]


def show(rows: list[dict[str, Any]], totals: dict[str, list[dict[str, Any]]]) -> None:
    """Print what was measured."""
    print(
        "\nrecords/s by the wall clock, vectors of 256 numbers looked up, the embedding not timed"
    )
    table(
        HEAD.split(", "),
        [
            [
                *(row["texts"], short(row["n"]), row["similarity"], row["kept"]),
                *rated(row, "batch", "single", "exact", "default"),
                f"{_ratio(row, 'batch', 'exact'):.1f}",
                f"{_ratio(row, 'batch', 'default'):.1f}",
                f"{_ratio(row, 'inline', 'batch'):.2f}",
                *(f"{row['jaccard'][name]:.4f}" for name in ("exact", "default")),
            ]
            for row in rows
        ],
    )
    print("\nwith our n-grams timed too, similarity .9: records/s by the wall clock")
    table(
        ["texts", "budget", "kept", "encoding alone", "batch", "single", "single/batch"],
        [
            [
                *(name, "none" if row["budget"] == inf else row["budget"], row["kept"]),
                *rated(row, "encode", "batch", "single"),
                f"{_ratio(row, 'inline', 'batch'):.2f}",
            ]
            for name, found in totals.items()
            for row in found
        ],
    )


def judge(rows: list[dict[str, Any]], totals: dict[str, list[dict[str, Any]]]) -> None:
    """Print which figures were reached."""
    least = min(row["jaccard"]["exact"] for row in rows)
    verdict(f"the kept set of semhash's exact mode: Jaccard {least:.4f}", least == 1)
    for name in totals:
        least = min(_ratio(row, "batch", "exact") for row in rows if row["texts"] == name)
        verdict(f"at least 5x its exact mode, {name}: {least:.1f}", least >= 5)
    every = [*rows, *(row for found in totals.values() for row in found)]
    verdict("one by one keeps what a batch keeps", all(row["same"] for row in every))


def main() -> None:
    """Measure and print."""
    facts = stamp("semhash", "vicinity", "usearch", "wordllama")
    sets = [found for found in (log_lines(), paragraphs()) if found is not None] or [generated()]
    rows, totals = [], {}
    for given in sets:
        stub = Stub(given.texts, word_vectors)
        print(f"{given.name}: {len(given.texts):,} texts, {len(stub.rows):,} different", flush=True)
        rows += [measured(given, similarity, stub) for similarity in SIMILARITIES]
        totals[given.name] = encoders(given.texts)
    show(rows, totals)
    print()
    judge(rows, totals)
    keep("dedup", {"facts": facts, "rows": rows, "with encoding": totals})


if __name__ == "__main__":
    main()
