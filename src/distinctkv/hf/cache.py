"""A cache for `generate` that grows with what is new in the text, not with its length."""

# B sequences, H key-value heads, L tokens of a pass

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Cache

from . import attention, inputs, serialization, summary
from .attention import Handed, prepare, read, received, stock
from .budget import Sizing
from .config import NAME, Care, Plan
from .inputs import Arrival, Outside, Streams
from .layer import DistinctLayer
from .merge import absorb_all
from .metric import Metric, Moments, may_wait, measure
from .model_support import Anatomy, Look, Sample
from .slots import Slots

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..policy import Concentration
    from .cuda_graph import Steps


class Holding(Cache):  # type: ignore[misc]
    """A cache of ours as seen from outside."""

    layers: list[DistinctLayer]
    anatomy: Anatomy
    plan: Plan
    streams: Streams | None
    sizing: Sizing
    cut: bool

    @property
    def n_heads(self) -> int:
        """Key-value heads of all layers."""
        return self.anatomy.heads * len(self.layers)

    @property
    def n_streams(self) -> int:
        """Streams of the batch; one while nothing is held."""
        return len(self.layers[0].keys) if self.layers[0].is_initialized else 1

    def n_slots(self, stream: int) -> int:
        """Slots of a stream, over all layers and heads."""
        return self.n_slots_each()[stream]

    def n_slots_each(self) -> list[int]:
        """Slots of each stream."""
        lengths = [layer.slots.lengths for layer in self.layers if layer.slots is not None]
        if not lengths:
            return [0] * self.n_streams
        found: list[int] = torch.stack(lengths).sum((0, 2)).tolist()
        return found

    def tokens(self, stream: int) -> int:
        """Tokens of a stream, without padding."""
        return 0 if self.streams is None else self.streams.seen - int(self.streams.pads[stream])

    def outside(self, stream: int) -> int:
        """Tokens of a stream that are not slots yet, without padding."""
        return 0 if self.streams is None else self.streams.outside(stream, self.layers[0].outside)

    @property
    def nbytes(self) -> int:
        """Bytes of memory behind every tensor of all streams."""
        return summary.nbytes(self)

    def __repr__(self) -> str:
        """How it is sized and what it holds, in a line; `summary` says more."""
        return summary.brief(self)

    def summary(self, stream: int = 0) -> summary.Summary:
        """What the cache holds of one stream of a batch; print it."""
        inputs.check_whole(self)
        return summary.summarise(self, stream)

    def merged(self, tokens: Sequence[str], layer: int, head: int, stream: int = 0) -> str:
        """Which tokens share a slot, as text; the cache must be made with ``trace=True``."""
        return summary.merged(self, tokens, layer, head, stream)


class Moving(Holding):
    """A cache of ours whose streams can be moved."""

    drafts: bool

    @abstractmethod
    def forget(self) -> None:
        """Know nothing of any text."""

    def crop(self, tokens: int) -> None:
        """Take back the last ``-tokens``, or all but the first ``tokens`` if that is positive."""
        inputs.check_whole(self)
        try:
            tokens = index(tokens)
        except TypeError as error:
            raise TypeError(
                f"tokens must be a whole number, got {tokens!r}; -2 takes back the last two"
            ) from error
        super().crop(tokens)
        first = self.layers[0]
        if first.seen == 0:
            self.forget()
        elif self.streams is not None:
            assert first.positions is not None
            assert first.real is not None
            self.streams.crop(first.seen, first.positions, first.real)
            self.share()

    def activate_past_recording(self) -> None:
        """Leave all of ``recent`` outside, however little is held: drafts come, to be cropped."""
        self.drafts = True

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder streams, for beams."""
        self._select(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some streams, by their numbers or by a yes or no to each."""
        if indices.dtype == torch.bool:
            if self.is_initialized and indices.shape != (self.n_streams,):
                raise ValueError(
                    f"the choice says yes or no to {indices.numel()} streams, the cache holds "
                    f"{self.n_streams}; give one for each, or the numbers of those to keep"
                )
            indices = indices.nonzero()[:, 0]
        self._select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each stream."""
        batch = len(self.layers[0].keys) if self.layers[0].is_initialized else 0
        self._select(torch.arange(batch).repeat_interleave(repeats))

    def _select(self, streams: Tensor) -> None:
        inputs.check_whole(self)
        for layer in self.layers:
            layer.select(streams)
        self.share()
        if self.streams is not None:
            self.streams.select(streams)
            self.sizing.select(streams.tolist())

    def share(self) -> None:
        """Hold once what is the same for all layers."""
        first = self.layers[0]
        for layer in self.layers[1:]:
            if layer.is_initialized and layer.keys.device == first.keys.device:
                layer.positions, layer.real = first.positions, first.real
                if layer.moments is not None and first.moments is not None:
                    layer.moments.count = first.moments.count


# B streams, H key-value heads, L tokens of a pass


# Tokens that wait, when they come one by one, to be absorbed together: more where launching counts.
BLOCK, BLOCK_ELSEWHERE = 16, 64


class DistinctCache(Moving):
    """Slots for the old tokens of a text, the newest tokens as they are; see `distinct_cache`."""

    def __init__(
        self, anatomy: Anatomy, plan: Plan, metric: Metric | None = None, *, trace: bool = False
    ) -> None:
        usage = plan.surprise is not None
        layers = [
            DistinctLayer(anatomy.rotary, usage=usage, trace=trace, recent=plan.most)
            for _ in anatomy.attentions
        ]
        super().__init__(layers=layers)
        self.anatomy, self.plan, self.metric = anatomy, plan, metric
        self.observes = False  # queries for `calibrate`
        self.step: Steps | None = None  # while a pass runs in place
        self.forget()

    def forget(self) -> None:
        """Know nothing of any text."""
        self.streams = None
        self.sizing = Sizing(self.plan)
        self.arrival: Arrival | None = None
        self.window: Outside | None = None
        self.counts: tuple[Tensor, Slots] | None = None  # for all layers: tokens seen, no slots
        self.frequencies: Tensor | None = None
        self.turning: tuple[Tensor, int] | None = None
        self.awaited: int | None = None
        self.cut = False  # a pass has changed some layers and not yet all
        self.drafts = False  # the newest tokens may be taken back
        self.made_by: Look | Sample | None = None  # the weights that read the first tokens
        self.notes: dict[str, Any] = {}  # of whoever uses the cache, as JSON: they go into its file

    def turn_at(self, frequencies: Tensor) -> None:
        """Turn keys and queries back by these from now on, whatever the model reads meanwhile."""
        self.frequencies = frequencies
        rotary = self.anatomy.rotary.at(frequencies)
        for layer in self.layers:
            layer.rotary = rotary

    # What models call; a compiled model steps outside for it, since sizes follow from the text

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor | Handed, Tensor]:
        """Hand new keys and values on to our attention, or hold them as a DynamicCache would."""
        layer = self.layers[layer_idx]
        inputs.check_keys(self, layer, key_states)
        if layer_idx == 0 and layer.seen == 0:
            self.made_by = self.anatomy.look()
        if self.anatomy.config._attn_implementation == NAME:
            self.awaited = layer_idx
            return Handed(self, key_states, layer.seen), value_states
        inputs.check_stock(self, layer, key_states.shape[2])
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
        """Attention of one layer, and then its new tokens into the cache."""
        index = inputs.check_caller(self, module)
        if self.step is not None:
            return self.step.attend(index, query, key, value, scaling)
        layer, length = self.layers[index], key.shape[2]
        if not (self.plan.merges or self.observes):
            keys, values = layer.update(key, value)
            asked = {"scaling": scaling, "dropout": dropout, **options}
            return stock(module, query, keys, values, mask, **asked)[0]
        positions = inputs.check_wishes(dropout, position_ids, options)
        arrival = inputs.admit(self, index, key, positions, mask)
        assert self.window is not None
        window = self.window.to(key.device)
        keys, values = layer.window(key, value)
        whole, watches, known = keys.shape[2] == layer.seen + length, self.plan.care.watches, None
        if whole and watches and mask is None:
            known = attention.read_with_logsumexp(query, keys, values, scaling)
        if known:
            out = known[0]
        elif whole:
            out = stock(module, query, keys, values, mask, scaling=scaling)[0]
        else:
            assert layer.slots is not None
            cap = self.plan.care.cap
            out = read(query, keys, values, window.real, layer.slots, scaling, cap)
            out = out.transpose(1, 2).contiguous()
        with torch.no_grad():
            if watches:
                logs = known[1] if known else None
                self._weigh(layer, query, keys, window.real, arrival, scaling, logs)
            layer.put(keys, values, window)
            if self.metric is None or self.observes:
                layer.ask(query, scaling)
                if self.observes or not may_wait(layer.asked, len(self.layers)):
                    layer.measure()
            if index == len(self.layers) - 1:
                self.counts = None
                self.finish(length)
                self.cut = False
        return out

    def _weigh(
        self,
        layer: DistinctLayer,
        query: Tensor,
        keys: Tensor,
        real: Tensor,
        arrival: Arrival,
        scaling: float,
        logs: Tensor | None,
    ) -> None:
        """Measure the attention that tokens get before they are merged."""
        assert self.streams is not None
        if layer is self.layers[0] or self.counts is None or self.counts[0].device != keys.device:
            columns = torch.arange(arrival.seen, self.streams.seen, device=keys.device)
            seen = columns + 1 - self.streams.pads[:, None].to(keys.device)
            self.counts = seen, Slots.none(keys, keys)
        seen, none = self.counts
        slots = layer.slots or none
        cap = self.plan.care.cap
        layer.attend(received(query, keys, real, seen, slots, scaling, cap, logs))

    def finish(self, length: int) -> None:
        """After the last layer of a pass: old tokens into slots, and back within bounds."""
        inputs.check_windows(self)
        first, columns = self.layers[0], self.due(length)
        absorbs = columns > 0
        # Queries that come one by one wait, as their tokens do.
        if absorbs or length > 1:
            self._measured()
        if absorbs:
            assert first.real is not None
            padding = ~first.real[:, :columns]
            thresholds = self.sizing.now(self, columns)
            opened = absorb_all(self.layers, columns, self.plan, thresholds, self.metric)
            for layer in self.layers:
                layer.trim_measured()
            self.sizing.note(opened.masked_fill(padding.to(opened.device), -1.0))
            self.share()
        self.sizing.settle(self)

    def due(self, length: int) -> int:
        """Columns to absorb after a pass of so many tokens; 0 if they may wait."""
        assert self.streams is not None
        plan, tokens = self.plan, (self.streams.seen - self.streams.pads).tolist()
        newest = plan.most if self.drafts else plan.newest(max(tokens))
        columns = self.layers[0].outside - newest
        # What was held whole until now does not wait for more.
        begins = any(plan.begins(n) and not plan.begins(n - length) for n in tokens)
        least = 1 if length > 1 or begins else self.block
        return columns if plan.merges and columns >= least else 0

    @property
    def block(self) -> int:
        """Tokens that come one by one and are absorbed together."""
        return BLOCK if self.layers[0].keys.is_cpu else BLOCK_ELSEWHERE

    def _measure(self) -> None:
        """No query waits to be measured; refuse a cache that a pass left in the middle."""
        inputs.check_whole(self)
        self._measured()

    def _measured(self) -> None:
        measure(self.layers)
        self.share()

    # A file

    @property
    def identity(self) -> dict[str, Any]:
        """Marks of the model as it was when it read the first tokens, as JSON."""
        if self.made_by is None:
            return self.anatomy.identity
        if isinstance(self.made_by, Look):
            self.made_by = self.made_by.text()
        return {**self.anatomy.sizes, "weights": self.made_by}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache to a safetensors file with a digest, whole or not at all."""
        self._measure()
        serialization.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], model: PreTrainedModel) -> DistinctCache:
        """Read a cache back for the model it was made with."""
        cache = serialization.load(path, model)
        cache.share()
        return cache

    # What generate calls

    def reset(self) -> None:
        """Forget everything but the plan."""
        super().reset()
        self.forget()


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
