"""Decoding with the cache on a GPU beside full and pruned ones: speed, memory, largest batch.

The rows that are compared come first for each batch: the baseline to beat, a full StaticCache whose
steps are one CUDA graph and whose attention is our split-key kernel without slots (`split_keys`),
and ours at a quarter. They run as long as the whole benchmark has some seconds left, even beyond
the share of this part; all other rows come after them, as far as the share goes. Attention over the
other full caches and pruned ones is torch's, which may not choose cuDNN's: where that is allowed
(``dynamic, cuDNN``), each new length may be planned anew. ``captured``: steps are one graph, of
ours by `distinctkv.hf.captured`; `static` is a StaticCache with the masked sdpa of transformers,
`every` our cache with a slot for each token.
"""

# B sequences, H key-value heads, G query heads of each, R columns of a static cache, D key size

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import count, takewhile
from math import nan
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, StaticCache

from distinctkv.hf import FAST, DistinctCache, MergePolicy, captured, distinct_cache
from distinctkv.hf.attention import prepare, read
from distinctkv.hf.cuda_graph import GraphRecorder
from distinctkv.hf.slots import Slots

from .gpu_llm_kit import Bench, Row

GB = 1e9
SPLIT_KEYS = "split_keys"  # the name of our attention for the baseline
BASELINE = "full, captured"
COMPARED = (BASELINE, "threshold 1/4, captured")
# Of the first batch, of the last, which a full cache does not fit, and of the others.
MORE = ("dynamic", "pruned 1/4", "every, captured", "fast 1/4, captured", "kept 1/4, captured",
        "threshold 1/4", "threshold 1/8, captured", "pruned 1/8", "kept 1/8, captured",
        "static, captured", "dynamic, cuDNN", "fast 1/4")  # fmt: skip
LAST, FEWER = ("pruned 1/4",), ("dynamic", "pruned 1/4", "fast 1/4, captured")
LEAST = 5.0  # seconds of the whole benchmark with which a compared row still begins
WATCHED = 3  # tokens whose kernels are added up


def split_keys(
    module: Any,  # noqa: ANN401
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    position_ids: Tensor,
    **options: object,
) -> tuple[Tensor, None]:
    """Attention of one token over a StaticCache by the kernel of our cache, without slots.

    ``key`` and ``value`` (B, H, R, D) are the buffers, the new token at its position. The kernel
    reads the new token in the last column, which is kept free for it.
    """
    now = position_ids[0]
    for buffer in (key, value):
        buffer[:, :, -1:] = buffer.index_select(2, now)
    columns = torch.arange(key.shape[2], device=key.device)
    mask = ((columns < now) | (columns == len(columns) - 1)).expand(len(key), -1)
    out, _ = read(query, key, value, mask, Slots.none(key, value), scaling)
    return out.transpose(1, 2).contiguous(), None


class Fixed:
    """Steps of a StaticCache as a graph: the first two run as they are."""

    def __init__(self) -> None:
        self.replay: Callable[[], Any] | None = None
        self.ran = 0

    def run(self, model: Any, cache: StaticCache, token: Tensor, position: Tensor, n: int) -> None:  # noqa: ANN401
        """N greedy tokens."""
        if self.ran == 0:
            self.token, self.position = token.clone(), position.clone()

        def step() -> None:
            out = model(
                self.token, past_key_values=cache, position_ids=self.position, use_cache=True
            )
            self.token.copy_(out.logits[:, -1:].argmax(-1))
            self.position += 1

        for _ in range(n):
            if self.ran == 2:
                self.replay = GraphRecorder(model).record(step)
            (self.replay or step)()
            self.ran += 1


class Decoding:
    """Caches made once, and repeated for each batch."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.model = bench, bench.model
        self.made: dict[str, Any] = {}

    def rows(self) -> list[Row]:
        """Tokens a second of each cache, and the memory it takes."""
        bench, rows, took = self.bench, [], 0.0
        for B, name in _order(bench.batches):
            # As long as the last took, and a half.
            if bench.left() > 1.5 * took or (name in COMPARED and bench.rest() > LEAST):
                start = time.perf_counter()
                rows.append(self.tried(name, B))
                print(f"{B} {name} {rows[-1]['tokens/s']:.0f}/s", flush=True)
                took = time.perf_counter() - start
            else:
                print(f"{B} {name} left out: no time", flush=True)
        full = {row["batch"]: row["tokens/s"] for row in rows if row["cache"] == BASELINE}
        for row in rows:
            row["of full"] = row["tokens/s"] / full.get(row["batch"], float("nan"))
        return rows

    def make(self, name: str, B: int) -> Any:  # noqa: ANN401
        """A cache of B streams."""
        way, _, part = name.partition(",")[0].partition(" 1/")
        if way in ("dynamic", "pruned", "static"):
            self.model.set_attn_implementation("sdpa")
        elif way == "full":
            AttentionInterface.register(SPLIT_KEYS, split_keys)
            AttentionMaskInterface.register(SPLIT_KEYS, lambda *_, **__: None)
        else:
            prepare(self.model)
        if way in ("static", "full"):
            return self.static(B, SPLIT_KEYS if way == "full" else "sdpa")
        if name not in self.made:
            self.made[name] = getattr(self, way)(int(part or 1))
            self.warm(self.made[name])
        cache = copy.deepcopy(self.made[name])
        cache.batch_repeat_interleave(B)
        return cache

    def warm(self, cache: Any) -> None:  # noqa: ANN401
        """Decode until tokens merge, in a copy: kernels are built once."""
        if isinstance(cache, DistinctCache):
            self.steps_of(copy.deepcopy(cache), 1, 0, self.bench.steps + self.bench.warm)

    def dynamic(self, part: int) -> DynamicCache:
        """All tokens."""
        cache = DynamicCache()
        self.bench.forward(self.bench.ids(1, self.bench.T), cache)
        return cache

    def pruned(self, part: int) -> DynamicCache:
        """One token in so many."""
        cache = DynamicCache()
        for index, layer in enumerate(self.dynamic(1).layers):
            held = (each[:, :, ::part].clone() for each in (layer.keys, layer.values))
            cache.update(*held, index)
        return cache

    def static(self, B: int, attention: str) -> StaticCache:
        """All tokens, room for those to come, and a column for the newest."""
        self.model.set_attn_implementation("sdpa")
        cache = StaticCache(self.model.config, self.bench.T + 2 * self.bench.steps + 1)
        whole = self.dynamic(1)
        self.model.set_attn_implementation(attention)
        for index, layer in enumerate(whole.layers):
            cache.update(
                *(each.expand(B, -1, -1, -1) for each in (layer.keys, layer.values)), index
            )
        return cache

    def every(self, part: int) -> DistinctCache:
        """A slot for each token: none is within half a position of another."""
        cache = distinct_cache(self.model, 1e-6, merge=MergePolicy(0.0, 0.5, attention_mean=False))
        self.bench.forward(self.bench.ids(1, self.bench.T), cache)
        return cache

    def kept(self, part: int) -> DistinctCache:
        """Slots, whose threshold is searched for again whenever there are too many."""
        cache = distinct_cache(self.model, kept=1 / part)
        self.bench.forward(self.bench.ids(1, self.bench.T), cache)
        return cache

    def threshold(self, part: int) -> DistinctCache:
        """As many slots by the threshold that was found, once for all."""
        return self._fixed(part, MergePolicy())

    def fast(self, part: int) -> DistinctCache:
        """The same without measuring attention."""
        return self._fixed(part, FAST)

    def _fixed(self, part: int, merge: MergePolicy) -> DistinctCache:
        ids = self.bench.ids(1, self.bench.T)
        searched = distinct_cache(self.model, kept=1 / part, merge=merge)
        self.bench.forward(ids, searched)
        cache = distinct_cache(self.model, searched.summary().threshold, merge=merge)
        self.bench.forward(ids, cache)
        return cache

    @torch.no_grad()
    def steps_of(self, cache: Any, B: int, start: int, n: int) -> None:  # noqa: ANN401
        """N greedy tokens for each stream."""
        token = torch.full((B, 1), 5, device=self.bench.device)
        position = torch.full((1, 1), self.bench.T + start, device=self.bench.device)
        if isinstance(cache, StaticCache):
            self.fixed.run(self.model, cache, token, position, n)
            return
        for _ in range(n):
            out = self.model(token, past_key_values=cache, position_ids=position, use_cache=True)
            token, position = out.logits[:, -1:].argmax(-1), position + 1

    def tried(self, name: str, B: int) -> Row:
        """One row, also where memory does not suffice."""
        torch.backends.cuda.enable_cudnn_sdp("cuDNN" in name)
        self.fixed = Fixed()
        try:
            with captured(self.model) if "captured" in name else nullcontext():
                return self.decode(name, B)
        except torch.OutOfMemoryError:
            return {"batch": B, "cache": f"{name}: does not fit", "tokens/s": nan}
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)
            if not self.bench.tiny:
                torch.cuda.empty_cache()

    def decode(self, name: str, B: int) -> Row:
        """One cache, one batch: as many tokens as wait to be merged, and then the merging."""
        cache = self.make(name, B)
        self.steps_of(cache, B, 0, self.bench.warm)
        if not self.bench.tiny:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        times, most, last = [], self.bench.steps - 2 * self.bench.warm, 2 * self.bench.warm
        for start, n in ((self.bench.warm, most), (self.bench.warm + most, last)):
            self.bench.wait()
            begun = time.perf_counter()
            self.steps_of(cache, B, start, n)
            self.bench.wait()
            times.append(time.perf_counter() - begun)
        each, taken = times[0] / most, sum(times)
        peak = 0 if self.bench.tiny else torch.cuda.max_memory_allocated()
        held = cache.nbytes if isinstance(cache, DistinctCache) else _bytes(cache)
        reading = self.reading(cache, B)
        return {"batch": B, "cache": name, "tokens/s": B * self.bench.steps / taken,
                "ms a token": 1e3 * each, "merging ms": 1e3 * (times[1] - last * each),
                "peak GB": peak / GB, "held GB": held / GB, "us a read": 1e6 * reading,
                "device ms": self.busy(cache, B)}  # fmt: skip

    def busy(self, cache: Any, B: int) -> float:  # noqa: ANN401
        """Milliseconds a token that the device is at work: what launching costs is left out."""
        starts = count(self.bench.steps + self.bench.warm, WATCHED)
        spent = self.bench.busy(lambda: self.steps_of(cache, B, next(starts), WATCHED))
        return sum(spent.values()) / WATCHED

    @torch.no_grad()
    def reading(self, cache: Any, B: int) -> float:  # noqa: ANN401
        """Seconds of the attention of one layer alone, in the mean over 20 reads of all layers."""
        config = self.model.config
        D = cache.layers[0].keys.shape[-1]
        query = torch.randn(B, config.num_attention_heads, 1, D).to(cache.layers[0].keys)

        def one(layer: Any, keys: Tensor, values: Tensor) -> Tensor:  # noqa: ANN401
            if isinstance(cache, DistinctCache):
                return read(query, keys, values, layer.mask, layer.slots, D**-0.5)[0]
            return torch.nn.functional.scaled_dot_product_attention(
                query, keys, values, enable_gqa=True
            )

        # Steps in place leave a window with room behind it.
        windows = [(one.keys.contiguous(), one.values.contiguous()) for one in cache.layers]

        def all_of_them() -> None:
            for layer, window in zip(cache.layers, windows, strict=True):
                one(layer, *window)

        return self.bench.clock(all_of_them, 10) / len(cache.layers)

    def largest(self) -> list[Row]:
        """The largest batch, doubled from the last, with which two tokens can be decoded."""
        rows = []
        for name in ("full", "dynamic", "pruned 1/4", "threshold 1/4", "threshold 1/8"):
            fits = 0
            for B in takewhile(
                lambda B: self.bench.left() > 3, (self.bench.batches[0] << n for n in count())
            ):
                if (self.bench.tiny and B > 4) or not self._fits(name, B):
                    break
                fits = B
            rows.append({"cache": name, "largest batch": fits})
        return rows

    def _fits(self, name: str, B: int) -> bool:
        try:
            self.steps_of(self.make(name, B), B, 0, 2)
            self.bench.wait()
        except torch.OutOfMemoryError:
            return False
        finally:
            if not self.bench.tiny:
                torch.cuda.empty_cache()
        return True


def _order(batches: Sequence[int]) -> list[tuple[int, str]]:
    """What is compared first, each batch at once; then the rest.

    >>> _order([128, 1, 512])[:3]
    [(128, 'full, captured'), (128, 'threshold 1/4, captured'), (1, 'full, captured')]
    >>> len(_order([128])) == len(COMPARED + MORE)
    True
    """
    first, last = batches[0], batches[-1]
    rest = dict.fromkeys(batches, FEWER) | {last: LAST} | {first: MORE}
    compared = [(B, name) for B in batches for name in COMPARED]
    return compared + [(B, name) for B in batches for name in rest[B]]


def _bytes(cache: DynamicCache) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
