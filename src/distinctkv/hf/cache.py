"""A cache for `generate` that grows with what is new in the text, not with its length."""

# B streams, H key-value heads, L tokens of a pass

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import door, flashing, saving
from .anatomy import Anatomy
from .attention import Handed, read, stock
from .errors import NAME
from .importance import received
from .layer import DistinctLayer
from .measuring import may_wait, measure
from .merging import absorb_all
from .metric import Metric
from .moving import Moving
from .plan import Plan
from .sizing import Sizing
from .slots import Slots
from .streams import Arrival, Outside
from .weights import Look, Sample

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from .stepping import Steps

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
        door.check_keys(self, layer, key_states)
        if layer_idx == 0 and layer.seen == 0:
            self.made_by = self.anatomy.look()
        if self.anatomy.config._attn_implementation == NAME:
            self.awaited = layer_idx
            return Handed(self, key_states, layer.seen), value_states
        door.check_stock(self, layer, key_states.shape[2])
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
        index = door.check_caller(self, module)
        if self.step is not None:
            return self.step.attend(index, query, key, value, scaling)
        layer, length = self.layers[index], key.shape[2]
        if not (self.plan.merges or self.observes):
            keys, values = layer.update(key, value)
            asked = {"scaling": scaling, "dropout": dropout, **options}
            return stock(module, query, keys, values, mask, **asked)[0]
        positions = door.check_wishes(dropout, position_ids, options)
        arrival = door.admit(self, index, key, positions, mask)
        assert self.window is not None
        window = self.window.to(key.device)
        keys, values = layer.window(key, value)
        whole, watches, known = keys.shape[2] == layer.seen + length, self.plan.care.watches, None
        if whole and watches and mask is None:
            known = flashing.read_with_logsumexp(query, keys, values, scaling)
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
        door.check_windows(self)
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
        door.check_whole(self)
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
        saving.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], model: PreTrainedModel) -> DistinctCache:
        """Read a cache back for the model it was made with."""
        cache = saving.load(path, model)
        cache.share()
        return cache

    # What generate calls

    def reset(self) -> None:
        """Forget everything but the plan."""
        super().reset()
        self.forget()
