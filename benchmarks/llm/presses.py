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
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distinctkv.studies.llm_held import Context, Held, Layer, keep
from distinctkv.studies.llm_rivals import protect, weights

from .way import Way, each

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
    made = [
        Way(name, told(make()), each(partial(compressed, make))) for name, make in makers.items()
    ]
    for name, make in (("Compactor", compactor), ("KeyDiff", kvpress.KeyDiffPress)):
        note = f"{told(make())}; best over all layers and heads, {LEAST:.0%} of each head safe"
        made.append(Way(f"Global({name})", note, each(partial(chosen_over_all, make))))
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
    make: Callable[[], Any], model: PreTrainedModel, context: Context, kept: float
) -> list[Held]:
    """What the press returns for each layer; keys that it masks are hidden."""
    press = make()
    press.compression_ratio = 1 - kept
    press.post_init_from_model(model)
    held = []
    for layer, options in _layers(context):
        seen = _attention(layer) if type(press).__name__ == "ObservedAttentionPress" else None
        keys, values = press.compress(
            layer.module, layer.hidden, layer.keys, layer.values, seen, options
        )
        bias = torch.zeros(keys.shape[1:3], device=keys.device)
        held.append(Held(keys[0], values[0], _hide(layer.module, bias)))
    return held


def chosen_over_all(
    make: Callable[[], Any], model: PreTrainedModel, context: Context, kept: float
) -> list[Held]:
    """The tokens of the highest scores over all layers and heads, a part of each head safe."""
    press = make()
    press.compression_ratio = 1 - kept
    press.post_init_from_model(model)
    scores = []
    for layer, options in _layers(context):
        one = press.score(layer.module, layer.hidden, layer.keys, layer.values, None, options)[0]
        best = one.topk(max(1, int(LEAST * len(context))), -1).indices
        scores.append(protect(one.float(), RECENT).scatter(-1, best, inf))
    flat = torch.cat([one.flatten() for one in scores])
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[flat.topk(int(kept * len(flat))).indices] = True
    masks = mask.split([one.numel() for one in scores])
    return keep(context, [m.view_as(s) for m, s in zip(masks, scores, strict=True)])


def kvzip(model: PreTrainedModel, context: Context, parts: Sequence[float]) -> list[list[Held]]:
    """KVzip from end to end: it prefills, reads the context again, and masks."""
    from kvpress import KVzipPress
    from transformers import DynamicCache

    found: list[list[Held]] = []

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
                found.append([_masked(layer) for layer in context.layers])

    # The positions that the model knows must do for the context and a part of it again.
    room = model.config.max_position_embeddings - len(context) - 64
    press = Press(compression_ratio=0.5, chunk_size=min(2048, room))
    with _stock(model), press(model):
        model.model(input_ids=context.ids, past_key_values=DynamicCache())
    return found


def _masked(layer: Layer) -> Held:
    bias = torch.zeros(layer.keys.shape[1:3], device=layer.keys.device)
    return Held(layer.keys[0], layer.values[0], _hide(layer.module, bias))


def _layers(context: Context) -> Iterator[tuple[Layer, dict[str, Any]]]:
    for layer in context.layers:
        layer.module.rotary_emb = context.rotary  # as kvpress does
        layer.module.masked_key_indices = None
        yield layer, {"position_embeddings": context.rotation}


def _hide(module: Any, bias: Tensor) -> Tensor:  # noqa: ANN401
    masked = getattr(module, "masked_key_indices", None)
    if masked is not None:
        bias[masked[1].to(bias.device), masked[2].to(bias.device)] = -inf
        module.masked_key_indices = None
    return bias


def _attention(layer: Layer) -> Tensor:
    """All attention weights, (1, H G, T, T)."""
    return weights(layer, 0, layer.keys.shape[2]).flatten(0, 1)[None]


@contextmanager
def _stock(model: PreTrainedModel) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
