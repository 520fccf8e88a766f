"""Every way there is: ours, what is written in a few lines, and the presses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch

from distinctkv.hf import MergePolicy, distinct_cache

from . import baselines as llm_rivals
from . import ours, presses, same_tokens
from .kv_states import Context, Held, hold_by
from .recipe import Recipe
from .variants import SIZES, VARIANTS
from .way import Way, each

if TYPE_CHECKING:
    from transformers import PreTrainedModel


STRONG = (
    "KVzip",
    "SnapKV",
    "TOVA",
    "KeyDiff",
    "ExpectedAttention",
    "Compactor",
    "Leverage",
    "AdaKV(Compactor)",
    "AdaKV(SnapKV)",
    "ChunkKV(SnapKV)",
    "Merging(Compactor)",
    "Global(Compactor)",
    "Global(KeyDiff)",
    "h2o, ours",
)  # rivals that are measured on every context; the others may be on fewer


@cache
def everyone() -> tuple[Way, ...]:
    """Every way there is; ours first, which share what they make of a context."""
    return (
        *(Way(name, told(one), ours.by_part(one)) for name, one in VARIANTS.items()),
        *sizing(SIZES),
        CACHE,
        *simple(),
        same_tokens.WAY,
        *presses.ways(),
    )


def simple() -> list[Way]:
    """Tokens at random, and the rivals of the study that kvpress does not have."""
    notes = {
        "h2o": "4 sinks, half of the rest for the newest, half for the most attended to",
        "rkv": ".07 of the attention of 32 queries, less .93 of likeness to later keys",
    }
    scored = [Way(f"{n}, ours", note, _scored(llm_rivals.RIVALS[n])) for n, note in notes.items()]
    return [Way("random", "4 sinks", each(_at_random)), *scored]


def sizing(sizes: Mapping[str, tuple[Recipe, Sequence[float]]]) -> list[Way]:
    """Ours at a threshold, whatever that keeps."""
    return [
        Way(f"threshold {at:g}{name}", told(one), ours.by_threshold(one, at), 1, True)
        for name, (one, thresholds) in sizes.items()
        for at in thresholds
    ]


def told(recipe: Recipe) -> str:
    """What is not as by default, in words."""
    plain = Recipe()
    names = MergePolicy.__slots__
    parts = [(one, getattr(recipe.merge, one), getattr(plain.merge, one)) for one in names]
    parts += [(one, getattr(recipe, one), getattr(plain, one)) for one in Recipe.__slots__[1:]]
    said = [f"{name}={mine}" for name, mine, usual in parts if mine != usual]
    return ", ".join(said) or "merge=FAST"


def _by_cache(model: PreTrainedModel, context: Context, part: float) -> list[Held]:
    return hold_by(distinct_cache(model, kept=part), context)


CACHE = Way(
    "ours, by the cache", "distinct_cache(model, kept=...), a search a size", each(_by_cache)
)


def _scored(score: Callable[..., torch.Tensor]) -> Callable[..., list[list[Held]]]:
    return each(lambda model, context, part: llm_rivals.kept_tokens(context, score, part))


def _at_random(model: PreTrainedModel, context: Context, part: float) -> list[Held]:
    return llm_rivals.kept_tokens(context, llm_rivals.at_random(int(context.ids.sum())), part)
