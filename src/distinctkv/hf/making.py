"""The doors: a cache for a model, and a metric for a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .anatomy import Anatomy
from .attention import prepare
from .cache import DistinctCache
from .care import Care
from .metric import Metric, Moments
from .plan import Plan

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..policy import Concentration


def distinct_cache(
    model: PreTrainedModel,
    threshold: float | None = None,
    *,
    kept: float | None = None,
    budget: int | None = None,
    surprise: Concentration | None = None,
    sinks: int = 4,
    recent: int | None = None,
    care: Care | None = None,
    metric: Metric | None = None,
    trace: bool = False,
) -> DistinctCache:
    """A cache to pass as ``past_key_values``, sized in one of four ways; with none, threshold=1.0.

    ``threshold``: a token opens a slot when its squared distance from every slot is greater. It is
    in units of attention error, so one number serves every layer and head.
    ``kept``: the part of the tokens to hold, up to 1.0 for all; the threshold is searched for, and
    anew as more of a text comes. Until kept * tokens is sinks + recent + 1, 37 unless
    that is said, all is held.
    ``budget``: tokens' worth to hold for each head, in the mean over layers and heads; at least
    sinks + recent + 1, 37 unless that is said.
    ``surprise``: a threshold, and a budget that grows while slots open; least used slots go. Say
    ``Concentration.surprise(tau=1.0, base=64, gain=512)``.

    While tokens come one by one up to 15 of them, 63 on a GPU, are held beside what was asked for.

    The first ``sinks`` tokens are never merged, the last ``recent`` not yet: 32 if it is not said,
    and by ``kept`` or ``budget`` an eighth of what is held if that is less, at least 8; all 32
    where drafts come, as by ``prompt_lookup_num_tokens``: 31 can be taken back then. ``care`` says
    where to merge less. The distance between tokens comes from the context's own queries, or from a
    ``metric`` that `calibrate` made. With ``trace`` the cache remembers which token went to which
    slot. The model's attention is set to ours, which for any other cache is sdpa.
    """
    plan = Plan(threshold, kept, budget, surprise, sinks, recent, care or Care())
    anatomy = Anatomy.of(model)
    if metric is not None and not isinstance(metric, Metric):
        raise TypeError(f"metric must be a Metric, got {metric!r}; of a file say Metric.load(path)")
    if metric is not None:
        metric.check(anatomy)
    prepare(model)
    return DistinctCache(anatomy, plan, metric, trace=trace)


@torch.no_grad()
def calibrate(
    model: PreTrainedModel,
    texts: Iterable[str] | Iterable[Tensor],
    tokenizer: Any = None,  # noqa: ANN401 - any callable of transformers' kind
) -> Metric:
    """The metric of a model, from its queries and values on some texts, or on their token ids.

    A few pages are enough; fewer tokens than a key has numbers are refused.
    """
    if isinstance(texts, str) or (isinstance(texts, Tensor) and texts.dim() < 2):
        raise TypeError(f"texts must be several, got one {type(texts).__name__}; say [text]")
    given: object = texts
    if callable(given):
        kind = type(given).__name__
        raise TypeError(f"texts are a {kind}; say calibrate(model, texts, tokenizer)")
    anatomy = Anatomy.of(model)
    prepare(model)
    total: list[Moments] | None = None
    n_tokens, least = 0, int(anatomy.sizes["head_dim"])
    for text in texts:
        ids = _ids(text, tokenizer).to(model.device)
        if ids.shape[1] == 0:
            raise ValueError(f"the text {text!r} has no tokens; leave it out")
        n_tokens += ids.shape[1]
        cache = DistinctCache(anatomy, Plan(kept=1.0))
        cache.observes = True
        anatomy.model(ids, past_key_values=cache, use_cache=True)  # no logits of every token
        seen = [layer.moments for layer in cache.layers if layer.moments is not None]
        total = seen if total is None else [a.plus(b) for a, b in zip(total, seen, strict=True)]
    if total is None:
        raise ValueError("there are no texts to calibrate with; give a few pages of your own")
    if n_tokens < least:
        raise ValueError(
            f"the texts have {n_tokens} tokens, keys have {least} numbers: so few queries do not "
            "say which of them count; give a few pages of your own"
        )
    return Metric.of(total, anatomy)


def _ids(text: object, tokenizer: Any) -> Tensor:  # noqa: ANN401
    if isinstance(text, Tensor):
        return text.reshape(1, -1)
    if not isinstance(text, str):
        kind = type(text).__name__
        raise TypeError(f"a text must be a string or a tensor of token ids, got a {kind}")
    if tokenizer is None:
        raise TypeError(
            "texts are strings and there is no tokenizer; give tokenizer=, or tensors of token ids"
        )
    ids: Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
    return ids
