"""A key-value cache for `generate` that grows with what is distinct in a text, not its length."""

# B sequences, H key-value heads, G query heads of each, L tokens of a pass, D key size

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Cache

from . import inputs, serialization, summary
from .attention import (
    KeyHandoff,
    attention_received,
    prepare,
    read,
    read_with_logsumexp,
    sdpa,
    sdpa_mask,
)
from .budget import BudgetController
from .config import (
    FAST,
    NAME,
    BrokenForwardError,
    CacheConfig,
    MergePolicy,
    UnsupportedModelError,
)
from .inputs import Batch, NewTokens, Window
from .layer import DistinctLayer, accumulate_pending, may_wait
from .merge import merge_window
from .metric import Metric, Moments
from .model_support import ModelSpec
from .slots import Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .cuda_graph import StaticStep


class DistinctCache(Cache):  # type: ignore[misc]
    """Slots for the old tokens of a text, the newest tokens as they are; see `distinct_cache`."""

    layers: list[DistinctLayer]

    def __init__(
        self,
        spec: ModelSpec,
        config: CacheConfig,
        metric: Metric | None = None,
        *,
        trace: bool = False,
    ) -> None:
        layers = [
            DistinctLayer(spec.rotary, trace=trace, recent=config.max_recent)
            for _ in spec.attentions
        ]
        super().__init__(layers=layers)
        self.spec, self.config, self.metric = spec, config, metric
        self.merges = config.kept != 1  # whether a slot can ever hold more than one token
        self.measures_attention = config.merge.needs_attention
        self.calibrates = False  # queries are accumulated for `calibrate`
        self.step: StaticStep | None = None  # while `captured` runs a step in static buffers
        self._forget()

    def _forget(self) -> None:
        self.batch: Batch | None = None
        self.budget = BudgetController(self.config)
        self.new: NewTokens | None = None  # of this pass
        self.window: Window | None = None  # with them
        self.seen: tuple[Tensor, Slots] | None = None  # for all layers: tokens seen, no slots
        self.frequencies: Tensor | None = None
        self.frequencies_version: tuple[Tensor, int] | None = None
        self.handed_over: int | None = None  # the layer that attends next
        self.interrupted = False  # a pass has changed some layers and not yet all
        self.has_drafts = False  # the newest tokens may be cropped
        self.notes: dict[str, Any] = {}  # JSON of whoever uses the cache, saved with it

    # What models call; a compiled model breaks its graph here, since sizes follow from the text

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor | KeyHandoff, Tensor]:
        """Hand new keys and values to our attention, or hold them as a DynamicCache would."""
        layer = self.layers[layer_idx]
        inputs.check_keys(self, layer, key_states)
        if self.spec.config._attn_implementation == NAME:
            self.handed_over = layer_idx
            return KeyHandoff(self, key_states), value_states
        inputs.check_other_attention(self, layer, key_states.shape[2])
        return layer.update(key_states, value_states)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float,
        dropout: float = 0.0,
        position_ids: Tensor | None = None,
        **options: object,
    ) -> Tensor:
        """Attention of one layer (B, L, H G, D), and its new tokens into the window."""
        index = inputs.check_module(self, self.handed_over, module)
        self.handed_over = None
        if self.step is not None:
            return self.step.attend(index, query, key, value, scaling)
        layer, length = self.layers[index], key.shape[2]
        if not (self.merges or self.calibrates):
            keys, values = layer.update(key, value)
            options |= {"scaling": scaling, "dropout": dropout}
            return sdpa(module, query, keys, values, sdpa_mask(mask, length, keys), **options)
        positions = inputs.check_options(dropout, position_ids, options)
        new = self._admit(index, key, positions, mask)
        assert self.window is not None
        window = self.window.to(key.device)
        keys, values = layer.extended(key, value)
        logsumexp = None
        if layer.slots is None:
            known = None
            if self.measures_attention and mask is None:
                known = read_with_logsumexp(query, keys, values, scaling)
            if known:
                out, logsumexp = known
            else:
                padding = None if mask is None else window.mask
                four = sdpa_mask(padding, length, keys)
                out = sdpa(module, query, keys, values, four, scaling=scaling)
        else:
            out, logsumexp = read(query, keys, values, window.mask, layer.slots, scaling)
            out = out.transpose(1, 2).contiguous()
        with torch.no_grad():
            if self.measures_attention:
                self._measure_attention(layer, query, keys, window.mask, new, scaling, logsumexp)
            layer.put(keys, values, window)
            if self.metric is None or self.calibrates:
                layer.add_query(query, scaling)
                if self.calibrates or not may_wait(layer.pending, len(self.layers)):
                    accumulate_pending([layer])
            if index == len(self.layers) - 1:
                self.seen = None
                self.finish(length)
                self.interrupted = False
        return out

    def _admit(self, index: int, key: Tensor, positions: Tensor, mask: Tensor | None) -> NewTokens:
        """The tokens of this pass, checked and counted once, at the first layer."""
        layer = self.layers[index]
        if index == 0:
            inputs.check_complete(self)
            rotary, version = self.spec.rotary, self._version()
            unchanged = _same(version, self.frequencies_version)
            frequencies = self.frequencies if unchanged else rotary.check(self.frequencies)
            B, _, L, _ = key.shape
            batch = self.batch or Batch.start(B)
            if layer.seq_length != batch.seq_length:
                raise UnsupportedModelError(
                    f"{layer.seq_length - batch.seq_length} of {layer.seq_length} tokens came by "
                    "another attention, so their positions are unknown; reset() the cache"
                )
            self.new = batch.admit(positions.to(key.device), mask, B, L)
            self.frequencies_version = version
            if self.batch is None:
                assert frequencies is not None
                self.batch = batch
                self.fix_frequencies(frequencies)
                self.budget.start(B)
            self.interrupted = True  # tokens are counted: until the last layer an error is fatal
            self.window = layer.extended_window(self.new)
        new = self.new
        if new is None or layer.seq_length != new.start:
            raise BrokenForwardError(
                f"layer {index} has seen {layer.seq_length} tokens, layer 0 {new and new.start}: a "
                "forward pass was interrupted; reset() the cache and give the context again"
            )
        return new

    def _version(self) -> tuple[Tensor, int] | None:
        """The model's tensor of frequencies, and how often it was written to, if that is known."""
        now: Tensor = self.spec.rotary.module.inv_freq  # type: ignore[assignment]
        return None if now.is_inference() else (now, now._version)

    def same_frequencies(self) -> bool:
        """Whether frequencies are those of the pass before, known without synchronising."""
        return _same(self._version(), self.frequencies_version)

    def fix_frequencies(self, frequencies: Tensor) -> None:
        """Unrotate keys and queries by these frequencies from now on."""
        self.frequencies = frequencies
        rotary = self.spec.rotary.fixed(frequencies)
        for layer in self.layers:
            layer.rotary = rotary

    def _measure_attention(
        self,
        layer: DistinctLayer,
        query: Tensor,
        keys: Tensor,
        mask: Tensor,
        new: NewTokens,
        scaling: float,
        logsumexp: Tensor | None,
    ) -> None:
        """Add the attention that tokens of the window received in this pass."""
        assert self.batch is not None
        if self.seen is None or self.seen[0].device != keys.device:
            columns = torch.arange(new.start, self.batch.seq_length, device=keys.device)
            seen = columns + 1 - self.batch.padding[:, None].to(keys.device, non_blocking=True)
            self.seen = seen, Slots.none(keys, keys)
        seen, none = self.seen
        slots = layer.slots or none
        layer.add_received(attention_received(query, keys, mask, seen, slots, scaling, logsumexp))

    def finish(self, length: int) -> None:
        """After the last layer of a pass: merge old tokens, and slots if there are too many."""
        columns = self.budget.n_to_merge(self, length)
        # Queries that come one by one wait, as their tokens do.
        if columns or length > 1:
            self.accumulate()
        if columns:
            thresholds = self.budget.current(self, columns)
            merge_window(self.layers, columns, self.config, thresholds, self.metric)
            self.share()
            self.budget.settle(self)

    def accumulate(self) -> None:
        """Count pending queries in the moments."""
        accumulate_pending(self.layers)
        self.share()

    def share(self) -> None:
        """Hold once what is the same for all layers."""
        for layer in self.layers[1:]:
            layer.share(self.layers[0])

    # Batch operations and crop, which generate calls

    def crop(self, tokens: int) -> None:
        """Take back the last ``-tokens``, or all but the first ``tokens`` if that is positive."""
        inputs.check_complete(self)
        super().crop(tokens)
        first = self.layers[0]
        if first.seq_length == 0:
            self._forget()
        elif self.batch is not None:
            assert first.positions is not None
            assert first.mask is not None
            self.batch.crop(first.seq_length, first.positions, first.mask)
            self.share()

    def activate_past_recording(self) -> None:
        """Leave all of ``recent`` in the window, however little is held: drafts will be cropped."""
        self.has_drafts = True

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder sequences, for beams."""
        inputs.check_complete(self)
        for layer in self.layers:
            layer.select(beam_idx)
        self.share()
        if self.batch is not None:
            self.batch.select(beam_idx)
            self.budget.select(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some sequences, by their numbers or by a mask."""
        if indices.dtype == torch.bool:
            indices = indices.nonzero()[:, 0]
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence."""
        batch = len(self.layers[0].keys) if self.layers[0].is_initialized else 0
        self.reorder_cache(torch.arange(batch).repeat_interleave(repeats))

    def reset(self) -> None:
        """Forget everything but the config."""
        super().reset()
        self._forget()

    # What is held

    @property
    def n_heads(self) -> int:
        """Key-value heads of all layers."""
        return self.spec.heads * len(self.layers)

    @property
    def n_sequences(self) -> int:
        """Sequences of the batch; 1 while nothing is held."""
        return len(self.layers[0].keys) if self.layers[0].is_initialized else 1

    def n_slots_each(self) -> list[int]:
        """Slots of each sequence, over all layers and heads."""
        lengths = [layer.slots.lengths for layer in self.layers if layer.slots is not None]
        if not lengths:
            return [0] * self.n_sequences
        found: list[int] = torch.stack(lengths).sum((0, 2)).tolist()
        return found

    def tokens(self, sequence: int) -> int:
        """Tokens of a sequence, without padding."""
        return 0 if self.batch is None else self.batch.tokens()[sequence]

    def in_window(self, sequence: int) -> int:
        """Tokens of a sequence that are not merged yet, without padding."""
        window = self.layers[0].window_length
        return 0 if self.batch is None else self.batch.in_window(sequence, window)

    @property
    def nbytes(self) -> int:
        """Bytes of memory behind every tensor of all sequences."""
        return summary.nbytes(self)

    def __repr__(self) -> str:
        """Size and content in one line; `summary` says more."""
        return summary.brief(self)

    def summary(self, sequence: int = 0) -> summary.Summary:
        """What the cache holds of one sequence of a batch; print it."""
        inputs.check_complete(self)
        return summary.summarise(self, sequence)

    def merged(self, tokens: Sequence[str], layer: int, head: int, sequence: int = 0) -> str:
        """Which tokens share a slot, as text; the cache must be made with ``trace=True``."""
        return summary.merged(self, tokens, layer, head, sequence)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to a safetensors file with a digest, atomically."""
        inputs.check_complete(self)
        self.accumulate()
        serialization.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], model: PreTrainedModel) -> DistinctCache:
        """Read a cache back for the model it was made with."""
        cache = serialization.load(path, model)
        cache.share()
        return cache


def _same(now: tuple[Tensor, int] | None, before: tuple[Tensor, int] | None) -> bool:
    if now is None or before is None:
        return False
    return now[0] is before[0] and now[1] == before[1]


def distinct_cache(
    model: PreTrainedModel,
    threshold: float | None = None,
    *,
    kept: float | None = None,
    budget: int | None = None,
    sinks: int = 4,
    recent: int | None = None,
    merge: MergePolicy | None = None,
    metric: Metric | None = None,
    trace: bool = False,
) -> DistinctCache:
    """A cache to pass as ``past_key_values``, sized in one of three ways; else threshold=1.4.

    ``threshold``: a token opens a slot when its squared distance from every slot is greater. It is
    in units of attention error, so one number serves every layer and head.
    ``kept``: the share of the tokens to hold, up to 1.0 for all; the threshold is searched for, and
    anew as more of a text comes. Below (sinks + recent + 1) / kept tokens all is held.
    ``budget``: tokens to hold for each head, in the mean over layers and heads; at least
    sinks + recent + 1, 37 by default.

    While tokens come one by one up to 15 more, 63 on a GPU, are held. The first ``sinks`` tokens
    are never merged, the last ``recent`` not yet: 32 by default, with ``kept`` or ``budget`` an
    eighth of what is held if that is less, at least 8; all 32 with drafts, as by
    ``prompt_lookup_num_tokens``, of which 31 can be cropped. ``merge`` is a `MergePolicy`; the
    default measures attention, ``FAST`` does not. Distances come from the context's own queries, or
    from a ``metric`` that `calibrate` made. With ``trace`` the cache remembers the slot of each
    token. The model's attention is set to ours, which for any other cache is sdpa.
    """
    config = CacheConfig(threshold, kept, budget, sinks, recent, merge or MergePolicy())
    spec = ModelSpec.of(model)
    if metric is not None:
        metric.check(spec)
    prepare(model)
    return DistinctCache(spec, config, metric, trace=trace)


@torch.no_grad()
def calibrate(
    model: PreTrainedModel,
    texts: Iterable[str] | Iterable[Tensor],
    tokenizer: Any = None,  # noqa: ANN401 - any callable of transformers' kind
) -> Metric:
    """The metric of a model, from its queries and values on some texts or token ids.

    A few pages are enough; at least as many tokens as a key has elements are needed.
    """
    if isinstance(texts, str) or (isinstance(texts, Tensor) and texts.dim() < 2):
        raise TypeError(f"texts must be several, got one {type(texts).__name__}; give [text]")
    spec = ModelSpec.of(model)
    prepare(model)
    total: list[Moments] | None = None
    n_tokens = 0
    for text in texts:
        if isinstance(text, str) and tokenizer is None:
            raise TypeError("texts are strings and there is no tokenizer; give tokenizer=")
        ids = tokenizer(text, return_tensors="pt")["input_ids"] if isinstance(text, str) else text
        ids = ids.reshape(1, -1).to(model.device)
        n_tokens += ids.shape[1]
        cache = DistinctCache(spec, CacheConfig(kept=1.0, merge=FAST))
        cache.calibrates = True
        spec.model(ids, past_key_values=cache, use_cache=True)  # without the logits of every token
        seen = [layer.moments for layer in cache.layers if layer.moments is not None]
        total = seen if total is None else [a.plus(b) for a, b in zip(total, seen, strict=True)]
    if total is None or n_tokens < spec.head_dim:
        raise ValueError(
            f"the texts have {n_tokens} tokens, keys have {spec.head_dim} elements: too few to "
            "estimate the metric; give a few pages of your own"
        )
    return Metric.of(total, spec)
