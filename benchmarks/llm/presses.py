"""The presses of kvpress, as they are, on what one pass over a context made.

kvpress pins transformers < 5.3, so it needs an environment of its own (``distinctkv[press]``).
Where it cannot be imported, its presses are left out, and the table says so.
"""

# H key-value heads, T tokens

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .baselines import protect
from .kv_states import Context, Held, Layer, keep, picked
from .way import Way

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECENT, LEAST = 32, 0.02  # what a choice over all heads leaves to each: newest tokens, and a part


def ways() -> list[Way]:
    """A way for each press, if kvpress is here."""
    try:
        import kvpress
    except ImportError:
        return []
    logging.getLogger("kvpress").setLevel(logging.ERROR)
    compactor, snap = kvpress.CompactorPress, partial(kvpress.SnapKVPress, window_size=RECENT)
    makers: dict[str, Callable[[], Any]] = {
        "StreamingLLM": kvpress.StreamingLLMPress,
        "SnapKV": snap,
        "ObservedAttention": kvpress.ObservedAttentionPress,
        "TOVA": kvpress.TOVAPress,
        "KeyDiff": kvpress.KeyDiffPress,
        "Knorm": kvpress.KnormPress,
        "ExpectedAttention": partial(kvpress.ExpectedAttentionPress, epsilon=0.01),
        "Compactor": compactor,
        "Leverage": kvpress.LeverageScorePress,
        "LagKV": kvpress.LagKVPress,
        "Cap": kvpress.CapPress,
        "CUR": kvpress.CURPress,
        "AdaKV(Compactor)": lambda: kvpress.AdaKVPress(compactor()),
        "AdaKV(SnapKV)": lambda: kvpress.AdaKVPress(snap()),
        "ChunkKV(SnapKV)": lambda: kvpress.ChunkKVPress(snap()),
        "Merging(Compactor)": lambda: kvpress.MergingPress(compactor()),
    }
    made = [Way(name, told(make()), partial(compressed, make)) for name, make in makers.items()]
    for name, make in (("Compactor", compactor), ("KeyDiff", kvpress.KeyDiffPress)):
        note = f"{told(make())}; best over all layers and heads, {LEAST:.0%} of each head safe"
        made.append(Way(f"Global({name})", note, partial(chosen_over_all, make)))
    rereading = Way("KVzip", "reads the context again; prompt without a chat template", kvzip, 2)
    return [*made, rereading]


def told(press: Any) -> str:  # noqa: ANN401
    """The setting of a press, in words."""
    inner = getattr(press, "press", None)
    said = {f.name: getattr(press, f.name) for f in fields(press) if f.name[0] != "_"}
    said = {name: one for name, one in said.items() if name not in ("compression_ratio", "press")}
    mine = ", ".join(f"{name}={one}" for name, one in said.items()) or "no settings"
    return f"{mine} ({told(inner)})" if inner else mine


def compressed(
    make: Callable[[], Any], model: PreTrainedModel, context: Context, parts: Sequence[float]
) -> list[list[Held]]:
    """What the press returns for each part and layer; keys that it masks are gone."""
    press = make()
    press.post_init_from_model(model)
    found: list[list[Held]] = [[] for _ in parts]
    for layer, options in _layers(context):
        _once(press, layer)
        for part, held in zip(parts, found, strict=True):
            press.compression_ratio = 1 - part
            keys, values = press.compress(
                layer.module, layer.hidden, layer.keys, layer.values, None, options
            )
            held.append(_seen(layer.module, keys[0], values[0]))
    return found


def chosen_over_all(
    make: Callable[[], Any], model: PreTrainedModel, context: Context, parts: Sequence[float]
) -> list[list[Held]]:
    """The tokens of the highest scores over all layers and heads, a part of each head safe."""
    press = make()
    press.post_init_from_model(model)
    scores: list[list[Tensor]] = [[] for _ in parts]
    for layer, options in _layers(context):
        _once(press, layer)
        for part, found in zip(parts, scores, strict=True):
            press.compression_ratio = 1 - part
            one = press.score(layer.module, layer.hidden, layer.keys, layer.values, None, options)
            best = one[0].topk(max(1, int(LEAST * len(context))), -1).indices
            found.append(protect(one[0].float(), RECENT).scatter(-1, best, inf))
    return [_highest(context, found, part) for found, part in zip(scores, parts, strict=True)]


def _highest(context: Context, scores: Sequence[Tensor], part: float) -> list[Held]:
    flat = torch.cat([one.flatten() for one in scores])
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.topk(int(part * len(flat))).indices] = True
    masks = mask.split([one.numel() for one in scores])
    return keep(context, [m.view_as(s) for m, s in zip(masks, scores, strict=True)])


def _once(press: Any, layer: Layer) -> None:  # noqa: ANN401
    """Let the scores of a layer be made once: they do not depend on the part that is kept.

    Those of StreamingLLM do, and cost nothing; Compactor adds two that do not.
    """
    inner = getattr(press, "press", press)
    kind = type(inner).__name__
    if kind == "ObservedAttentionPress":
        # What kvpress makes of all attention weights, which need not be held at once.
        T = layer.keys.shape[2]
        asked = torch.arange(T, 0, -1, device=layer.keys.device)
        inner.score = lambda *_, **__: (layer.received.mass / asked)[None]
    elif kind == "CompactorPress":
        for one in (inner._leverage_press, inner._non_causal_press):
            one.score = _remembered(one)
    elif kind != "StreamingLLMPress":
        inner.score = _remembered(inner)


def _remembered(press: Any) -> Callable[..., Tensor]:  # noqa: ANN401
    known: list[Tensor] = []

    def score(*args: Any, **options: Any) -> Tensor:  # noqa: ANN401
        if not known:
            known.append(type(press).score(press, *args, **options))
        return known[0].clone()  # AdaKV writes into it

    return score


def kvzip(model: PreTrainedModel, context: Context, parts: Sequence[float]) -> list[list[Held]]:
    """KVzip from end to end: it prefills, reads the context again, and masks."""
    found: list[list[Held]] = []

    def masked() -> None:
        found.append([_masked(layer) for layer in context.layers])

    zipped(model, context.ids, parts, masked)
    return found


def zipped(
    model: PreTrainedModel, ids: Tensor, parts: Sequence[float], then: Callable[[], None]
) -> None:
    """KVzip over (1, T) ids, and what is to be done once each part is masked."""
    from kvpress import KVzipPress
    from kvpress.presses import kvzip_press
    from transformers import DynamicCache

    # It loads a tokenizer for every context, which is no part of the method.
    kvzip_press.AutoTokenizer = Tokenizers

    class Press(KVzipPress):  # type: ignore[misc]
        def prepare(self, model: PreTrainedModel, tokenizer: Any, *args: Any) -> Any:  # noqa: ANN401
            # Our contexts have no chat template around them, so none is to be left out.
            self.prefix_length = 0
            self._suffix_ids = tokenizer.encode("\n", return_tensors="pt", add_special_tokens=False)
            return super().prepare(model, tokenizer, *args)

        def compress_post(self, model: PreTrainedModel) -> None:
            # The scores are the same for every part.
            for part in parts:
                self.compression_ratio = 1 - part
                super().compress_post(model)
                then()

    # The positions that the model knows must do for the context and a part of it again.
    room = model.config.max_position_embeddings - ids.shape[1] - 64
    press = Press(compression_ratio=0.5, chunk_size=min(2048, room))
    with stock(model), press(model):
        model.model(input_ids=ids, past_key_values=DynamicCache())


class Tokenizers:
    """Tokenizers that are loaded once."""

    @staticmethod
    @cache
    def from_pretrained(name: str) -> Any:  # noqa: ANN401
        """The tokenizer of a model's folder."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(name)


def _masked(layer: Layer) -> Held:
    return _seen(layer.module, layer.keys[0], layer.values[0])


def _layers(context: Context) -> Iterator[tuple[Layer, dict[str, Any]]]:
    for layer in context.layers:
        layer.module.rotary_emb = context.rotary  # as kvpress does
        layer.module.masked_key_indices = None
        yield layer, {"position_embeddings": context.rotation}


def _seen(module: Any, keys: Tensor, values: Tensor) -> Held:  # noqa: ANN401
    """What a press has left, without the keys that it told attention to mask."""
    masked = getattr(module, "masked_key_indices", None)
    module.masked_key_indices = None
    if masked is None:
        return Held(keys, values, torch.zeros(keys.shape[:2], device=keys.device))
    mask = torch.ones(keys.shape[:2], dtype=torch.bool, device=keys.device)
    mask[masked[1].to(mask.device), masked[2].to(mask.device)] = False
    return picked(keys, values, mask)


@contextmanager
def stock(model: PreTrainedModel) -> Iterator[None]:
    """The attention of transformers, with keys repeated for the heads that share them.

    Not repeated, float32 on CUDA has no kernel but one that holds all pairs of tokens.
    """
    from transformers.integrations import sdpa_attention

    before, shares = model.config._attn_implementation, sdpa_attention.use_gqa_in_sdpa
    model.set_attn_implementation("sdpa")
    sdpa_attention.use_gqa_in_sdpa = lambda *_: False
    try:
        yield
    finally:
        sdpa_attention.use_gqa_in_sdpa = shares
        model.set_attn_implementation(before)
