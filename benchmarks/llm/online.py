"""``python -m benchmarks.llm.online``: a log that never ends, read in chunks within little memory.

Each chunk attends to the slots of what came before. Printed are the slots after each doubling, the
exponent of their growth, and the nats of the tokens beside those of a full cache.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import Cache, DynamicCache

from distinctkv.hf import distinct_cache
from distinctkv.studies import llm_model
from distinctkv.studies.llm_kit import Kit

from ..common import stamp
from .fetch import get
from .texts import log_lines, sentences

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK = 256


class Course(NamedTuple):
    """Nats of each token but those of the first chunk, and slots a head after each chunk."""

    nll: float
    slots: list[float]


@torch.no_grad()
def follow(model: PreTrainedModel, ids: Tensor, cache: Cache, chunk: int = CHUNK) -> Course:
    """Read (1, T) tokens chunk by chunk."""
    lost, slots = [], []
    last: Tensor | None = None  # what the chunk before says of the first token of this one
    for part in ids.split(chunk, dim=1):
        logits = model(part, past_key_values=cache).logits[0].float()
        if last is not None:
            said = torch.cat((last[None], logits[:-1]))
            lost.append(cross_entropy(said, part[0], reduction="none"))
        last = logits[-1]
        summary = getattr(cache, "summary", None)
        slots.append(summary().kept * cache.get_seq_length() if summary else cache.get_seq_length())
    return Course(float(torch.cat(lost).mean()), slots)


def exponent(slots: Sequence[float]) -> float:
    """The power of the length by which slots grow, from the first chunk to the last.

    >>> round(exponent([10.0, 20.0, 30.0, 40.0]), 2)
    1.0
    """
    return log(slots[-1] / slots[0]) / log(len(slots))


def main() -> None:
    """Follow one stream of each kind, full and at each threshold."""
    args = _arguments()
    stamp("torch", "transformers")
    model, tokenizer = llm_model.load(
        args.model or llm_model.find() or get(), args.device, args.dtype
    )
    for name, lines in (("log", log_lines), ("novel", sentences)):
        for seed in range(args.contexts):
            kit = Kit(tokenizer, args.length, np.random.default_rng(seed))
            tokens = sum(kit.fill(lines(kit)), ())
            ids = torch.tensor([tokens], device=model.device)
            full = follow(model, ids, DynamicCache())
            print(f"\n{name}, seed {seed}, {len(tokens)} tokens: full cache {full.nll:.3f} nats")
            for at in args.threshold:
                mine = follow(model, ids, distinct_cache(model, threshold=at))
                places = [2**i - 1 for i in range(len(mine.slots).bit_length())]
                grown = " ".join(f"{mine.slots[place]:.0f}" for place in places)
                print(
                    f"  threshold {at:g}: {mine.nll:.3f} nats ({mine.nll / full.nll - 1:+.1%}), "
                    f"slots {grown} .. {mine.slots[-1]:.0f} ({mine.slots[-1] / len(tokens):.1%}), "
                    f"exponent {exponent(mine.slots):.2f}",
                    flush=True,
                )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.llm.online", description=__doc__)
    parser.add_argument("--contexts", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096, help="in tokens")
    parser.add_argument("--threshold", type=float, nargs="+", default=[1.0, 2.0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--model", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
