"""De-duplication against semhash: what both keep, and how fast, with the embedding apart.

    python -m benchmarks.dedup

Both get the same texts and the same vectors (static word vectors, made before and looked up, so
that no embedding is timed) and the same threshold. semhash runs with its exact back end and with
its default.
"""

# N texts

from __future__ import annotations

import random
import tarfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Race, keep, race, short, stamp, table, verdict
from distinctkv.data.places import folders
from distinctkv.streams import Deduplicator, NGrams

Rows = NDArray[np.float32]
SIMILARITIES = (0.8, 0.9, 0.95)
N_TEXTS = 20_000
BUDGETS = (100, 1000, inf)


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


class Texts(NamedTuple):
    """Texts to de-duplicate, and where they are from."""

    name: str
    texts: list[str]


def edited(text: str, draw: random.Random) -> str:
    """A near-duplicate: one character in fifty is another one."""
    letters = list(text)
    for _ in range(max(1, len(text) // 50)):
        letters[draw.randrange(len(letters))] = draw.choice("abcdefghijklmnop")
    return "".join(letters)


def mixed(texts: Sequence[str], n_texts: int, seed: int = 0) -> list[str]:
    """A third of the texts come again as they were, a third edited; in random order."""
    draw = random.Random(seed)
    some = [*texts[: n_texts * 3 // 5]]
    draw.shuffle(some)
    again = [
        text if draw.random() < 0.5 else edited(text, draw) for text in some[: n_texts * 2 // 5]
    ]
    some += again
    draw.shuffle(some)
    return some


def log_lines() -> Texts | None:
    """Lines of all Loghub systems at hand, in random order."""
    files = sorted((folders()[0] / "loghub_2k").rglob("*_2k.log"))
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    random.Random(0).shuffle(lines)
    return Texts("log lines", lines[:N_TEXTS]) if len(lines) >= 10_000 else None


def paragraphs() -> Texts | None:
    """Paragraphs of novels, and near-duplicates of some."""
    path = folders()[0] / "text" / "english_novels_100.tar.xz"
    if not path.exists():
        return None
    found: list[str] = []
    with tarfile.open(path) as books:
        for book in books:
            if (file := books.extractfile(book)) is not None:
                text = file.read().decode("utf-8-sig").replace("\r\n", "\n")
                found += [part for part in text.split("\n\n") if 40 < len(part) < 2000]
            if len(found) >= 2 * N_TEXTS:
                break
    return Texts("paragraphs", mixed(found, N_TEXTS))


def generated() -> Texts:
    """Sentences of made-up words, and near-duplicates of some."""
    draw = random.Random(1)
    words = ["".join(draw.choices("aeioubcdfglmnprst", k=draw.randint(2, 9))) for _ in range(5000)]
    made = [" ".join(draw.choices(words, k=draw.randint(6, 20))) for _ in range(N_TEXTS)]
    return Texts("generated", mixed(made, N_TEXTS))


def semhash(texts: Sequence[str], stub: Stub, similarity: float, backend: str) -> list[str]:
    """What semhash keeps."""
    from semhash import SemHash

    index = SemHash.from_records([*texts], model=stub, ann_backend=backend)
    kept: list[str] = index.self_deduplicate(threshold=similarity).selected
    return kept


def batch(texts: Sequence[str], stub: Stub, similarity: float) -> list[str]:
    """What we keep, all at once."""
    seen = Deduplicator(similarity, encode=stub.encode)
    verdicts = seen.add_many(texts)
    return [text for text, verdict in zip(texts, verdicts, strict=True) if verdict]


def inline(texts: Sequence[str], stub: Stub, similarity: float) -> list[str]:
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
        "inline": lambda: inline(texts, stub, similarity),
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
        "same": kept["batch"] == kept["inline"],
    }


def encoders(texts: Sequence[str]) -> list[dict[str, Any]]:
    """All of it together with our encoder, for some budgets, and the encoder's own cost."""
    rows = []
    for budget in BUDGETS:
        make = partial(Deduplicator, 0.9, budget=budget)
        runs = {
            "encode": lambda: NGrams()(texts),
            "batch": lambda make=make: make().add_many(texts),
            "inline": lambda make=make: [*map(make().add, texts)],
        }
        races = race(runs, rounds=3, patience=12.0)
        kept = {name: [*map(bool, races[name].result)] for name in ("batch", "inline")}
        rates = {name: found.rate(len(texts)) for name, found in races.items()}
        same = kept["batch"] == kept["inline"]
        rows.append({"budget": budget, "kept": sum(kept["batch"]), "rates": rates, "same": same})
    return rows


def _ratio(row: dict[str, Any], one: str, other: str) -> float:
    """How many times as fast, by the clock that says less."""
    rates = row["rates"]
    return min(
        rates[one][clock] / rates[other][clock] for clock in ("tokens_per_s", "tokens_per_cpu_s")
    )


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
    print(
        "\nrecords/s by the wall clock, vectors of 256 numbers looked up, the embedding not timed"
    )
    table(
        [
            "texts",
            "N",
            "similarity",
            "kept",
            "batch",
            "inline",
            "semhash exact",
            "semhash default",
            "/exact",
            "/default",
            "inline/batch",
            "Jaccard exact",
            "Jaccard default",
        ],
        [
            [
                row["texts"],
                short(row["n"]),
                row["similarity"],
                row["kept"],
                *(
                    short(row["rates"][name]["tokens_per_s"])
                    for name in ("batch", "inline", "exact", "default")
                ),
                f"{_ratio(row, 'batch', 'exact'):.1f}",
                f"{_ratio(row, 'batch', 'default'):.1f}",
                f"{_ratio(row, 'inline', 'batch'):.2f}",
                f"{row['jaccard']['exact']:.4f}",
                f"{row['jaccard']['default']:.4f}",
            ]
            for row in rows
        ],
    )
    print("\nwith our n-grams timed too, similarity .9: records/s by the wall clock")
    table(
        ["texts", "budget", "kept", "encoding alone", "batch", "inline", "inline/batch"],
        [
            [
                name,
                "none" if row["budget"] == inf else row["budget"],
                row["kept"],
                *(
                    short(row["rates"][way]["tokens_per_s"])
                    for way in ("encode", "batch", "inline")
                ),
                f"{_ratio(row, 'inline', 'batch'):.2f}",
            ]
            for name, found in totals.items()
            for row in found
        ],
    )
    worst = min(_ratio(row, "inline", "batch") for row in rows)
    print()
    verdict(
        "the kept set of semhash's exact mode: "
        f"Jaccard {min(row['jaccard']['exact'] for row in rows):.4f}",
        all(row["jaccard"]["exact"] == 1 for row in rows),
    )
    for given in sets:
        least = min(_ratio(row, "batch", "exact") for row in rows if row["texts"] == given.name)
        verdict(f"at least 5x its exact mode, {given.name}: {least:.1f}", least >= 5)
    every = [*rows, *(row for found in totals.values() for row in found)]
    verdict("one by one keeps what a batch keeps", all(row["same"] for row in every))
    verdict(
        f"one by one at the cost of a batch (within 10 %): {worst:.2f} of its speed", worst >= 0.9
    )
    keep("dedup", {"facts": facts, "rows": rows, "with encoding": totals})


if __name__ == "__main__":
    main()
