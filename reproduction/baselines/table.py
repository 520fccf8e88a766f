"""The table of peers in the docs, made from the classes themselves.

``python -m reproduction.baselines.table > docs/look-up/peers.md`` brings the page up to date.
"""

from __future__ import annotations

import sys

from .. import baselines as peers
from .base import Peer

INTRODUCTION = """\
# Peers

Every rival of the cache as a streaming memory, with the same `write`, `read`, `len` and `nbytes`.
The docstring of each names its source, how we deviate from it, and its best setting.

```python
import numpy as np
from reproduction.baselines import H2O

rng = np.random.default_rng(0)
keys, labels = rng.standard_normal((300, 16)), rng.integers(0, 5, 300)
memory = H2O(budget=64)
memory.write(keys, np.eye(5)[labels])  # values are vectors: a label is a row of zeros and a one
print(len(memory), memory.nbytes, memory.read(keys[-3:]).argmax(1), labels[-3:])
```

Sizes are in bytes. `L` is the number of tokens seen, `D` of numbers in a key, `C` in a value, `B`
the budget, `S` the slots held; any other name is a setting of the peer or is explained there.
"""

ABSENCE = """\
## Without a row

Systems that are often named with these, and why they are not in the table.
"""

# System, and the reason it has no row.
ABSENT = (
    (
        "Product-key memory (PKM), memory layers",
        "The table is trained parameters; a stream writes nothing into it.",
    ),
    (
        "kNN-LM",
        "Its datastore is `KNN`; mixing with a language model's own guess needs the model.",
    ),
    (
        "S4, S4D, Mamba",
        "Their recurrences are trained. What such a state holds without training is "
        "`Superposition` and, where it forgets, `DecayedSuperposition`.",
    ),
    (
        "DMC, GSA, MoM, Raven",
        "Whether and where to write is a trained gate, which means nothing without its model.",
    ),
    (
        "HOLA, Memory Caching",
        "They hang on a trained recurrent model: one keeps its errors, the other its states.",
    ),
    (
        "R-KV, ManifoldKV",
        "Eviction by key similarity, as `KeyDiff` and `Redundancy`, with other scores.",
    ),
)


def markdown() -> str:
    """The page: a row for each exported peer, by name, and the systems that have none."""
    rows = [row(getattr(peers, name)) for name in sorted(peers.__all__, key=str.casefold)]
    head = [
        "| Peer | How it works | What it keeps | How it grows | Bytes |",
        "|---|---|---|---|---|",
    ]
    absent = [f"- **{system}.** {reason}" for system, reason in ABSENT]
    return "\n".join([INTRODUCTION, *head, *rows, "", ABSENCE, *absent, ""])


def row(peer: type[Peer]) -> str:
    """A peer's card as a row.

    >>> row(peers.Recency)[:45]
    '| `Recency` | softmax over a sliding window |'
    """
    card = peer.card
    cells = f"`{peer.__name__}`", card.mechanism, card.keeps, card.growth, card.size
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())
