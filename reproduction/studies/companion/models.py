"""The models that are compared: blocks of Mamba-2, two of which are replaced by something else."""

# E channels of a token, B sequences, L tokens, H heads, S slots, D head size

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from distinctkv.nn import (
    DistinctAttention,
    FullAttention,
    GatedDeltaNet,
    Heads,
    HybridBlock,
    HybridLM,
    Mamba2,
    Mixer,
    NoveltyGate,
    Reading,
    SlidingWindowAttention,
)
from distinctkv.nn.baselines import KVMAttention, OVQAttention
from distinctkv.nn.functional import Allocation
from distinctkv.nn.slot_state import SlotState


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a model. With 12 heads an attention block has as many weights as Mamba-2's."""

    width: int = 512
    blocks: int = 8
    attention_at: tuple[int, ...] = (3, 6)
    heads: int = 12
    head: int = 64
    states: int = 64
    chunk: int = 64
    window: int = 512
    delta_heads: int = 6
    vocabulary: int = 256

    def attention(self, taps: int = 4, scale: float = 16.0, lag: int = 1) -> Heads:
        """The heads of the attention blocks."""
        return Heads(count=self.heads, size=self.head, taps=taps, scale=scale, lag=lag)


BASE = Size()
SMALL = Size(128, 4, (1, 3), 3, window=128, delta_heads=2)  # trains on a CPU
TOY = Size(32, 4, (1, 3), 4, 16, 8, 16, 32, 2)


def build(kind: str, size: Size) -> HybridLM:
    """A model of this kind with new weights."""
    if kind not in BUILD:
        raise ValueError(f"there is no model {kind!r}; there are {', '.join(BUILD)}")
    backbone, other = BUILD[kind]
    layers: list[Mixer[Any]] = [
        (other if place in size.attention_at else backbone)(size) for place in range(size.blocks)
    ]
    model = HybridLM(size.vocabulary, size.width, layers)
    for mixer in model.mixers:
        if isinstance(mixer, FullAttention):
            heads = mixer.project.heads
            if heads.taps > 1 and not heads.lag:  # as in Mamba-2: no tap is preferred
                nn.init.uniform_(mixer.project.conv.weight, -0.5, 0.5)
    return model


def _mamba2(size: Size) -> Mamba2:
    return Mamba2(size.width, states=size.states, head=size.head, chunk=size.chunk)


def _delta(size: Size) -> GatedDeltaNet:
    return GatedDeltaNet(size.width, heads=size.delta_heads, key=size.head, value=2 * size.head)


def _full(size: Size) -> FullAttention:
    return FullAttention(size.width, size.attention())


def _window(size: Size) -> SlidingWindowAttention:
    return SlidingWindowAttention(size.width, size.attention(), window=size.window)


def _no_convolution(size: Size) -> FullAttention:
    return FullAttention(size.width, size.attention(taps=1, lag=0))


def _no_lag(size: Size) -> FullAttention:
    return FullAttention(size.width, size.attention(lag=0))


def _low_scale(size: Size) -> FullAttention:
    return FullAttention(size.width, size.attention(scale=10.0))


Make = Callable[[Size], Mixer[Any]]
# What makes the blocks, and what those in which attention may stand.
BUILD: Mapping[str, tuple[Make, Make]] = {
    "mamba2": (_mamba2, _mamba2),
    "full": (_mamba2, _full),
    "window": (_mamba2, _window),
    "delta": (_delta, _delta),
    "delta full": (_delta, _full),
    "full, no convolution": (_mamba2, _no_convolution),
    "full, scale 10": (_mamba2, _low_scale),
    "full, lag 0": (_mamba2, _no_lag),
}


# Other reads of a trained full attention


Replace = Callable[[FullAttention], Mixer[Any]]
Rule = Literal["novelty", "random", "stride"]
BLOCK, ROWS = 256, 512  # tokens with as many random slots as new ones; queries compared at once


class CacheUnderStudy(DistinctAttention):
    """A retrofitted cache that keeps its last allocation, and takes control rules for its own.

    ``random`` opens as many slots in each 256 tokens as the rule, at random places, and a token
    joins the slot most like it. ``stride`` opens as many in all, at even distances, and a token
    joins the last one.
    """

    rule: Rule = "novelty"
    found: Allocation | None = None

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self.counts: list[Tensor] = []  # slots (B, H) after each batch

    def allocate(
        self, keys: Tensor, slots: SlotState | None = None, mask: Tensor | None = None
    ) -> Allocation:
        """The slots of the rule, or of a control with as many."""
        found = super().allocate(keys, slots, mask)
        if self.rule == "random":
            found = by_similarity(keys, as_many_at_random(found.lead))
        elif self.rule == "stride":
            found = by_stride(keys, found.lead)
        self.found = found
        self.counts.append(found.n_slots)
        return found


def as_many_at_random(lead: Tensor) -> Tensor:
    """Random places (B, L, H), in each 256 tokens as many as lead there; the first is one."""
    draw = torch.rand(lead.shape, device=lead.device)
    draw[:, 0] = -1
    parts = []
    for part, drawn in zip(*(torch.split(x, BLOCK, 1) for x in (lead, draw)), strict=True):
        rank = drawn.argsort(1).argsort(1)
        parts.append(rank < part.sum(1, keepdim=True))
    return torch.cat(parts, 1)


def by_similarity(keys: Tensor, lead: Tensor) -> Allocation:
    """Each token of keys (B, L, H, D) joins the most similar leader up to it."""
    rows, leads = keys.detach().transpose(1, 2), lead.transpose(1, 2)  # (B, H, L, ...)
    own = leads.cumsum(2) - 1
    place = torch.arange(rows.shape[2], device=keys.device)
    nearest = []
    with torch.autocast(keys.device.type, enabled=False):
        for start in range(0, rows.shape[2], ROWS):
            stop = min(start + ROWS, rows.shape[2])
            alike = rows[:, :, start:stop] @ rows[:, :, :stop].mT
            later = place[:stop] > place[start:stop, None]
            hidden = later | ~leads[:, :, None, :stop]
            nearest.append(alike.masked_fill(hidden, -torch.inf).argmax(-1))
    slot = torch.where(leads, own, own.gather(2, torch.cat(nearest, 2)))
    return _allocation(lead, slot.transpose(1, 2))


def by_stride(keys: Tensor, lead: Tensor) -> Allocation:
    """As many slots as ``lead`` opens in the mean, at even distances; tokens join the last."""
    n_slots = max(1, round(float(lead.sum(1).float().mean())))
    place = torch.arange(keys.shape[1], device=keys.device)
    slot = place * n_slots // keys.shape[1]
    opens = torch.ones_like(slot, dtype=torch.bool)
    opens[1:] = slot[1:] != slot[:-1]
    slot = opens.cumsum(0) - 1
    shape = lead.shape
    return _allocation(opens[None, :, None].expand(shape), slot[None, :, None].expand(shape))


def _allocation(lead: Tensor, slot: Tensor) -> Allocation:
    B, L, H = lead.shape
    place = torch.arange(L, device=lead.device).expand(B, H, L)
    own = torch.where(lead, slot, L).transpose(1, 2)
    opener = torch.full((B, H, L + 1), -1, device=lead.device).scatter(2, own, place)[..., :L]
    none = lead.new_zeros(B, H, dtype=torch.int64)
    return Allocation(lead, slot, opener, lead.sum(1), none, none)


def cache(tau: float, window: int = 0, rule: Rule = "novelty") -> Replace:
    """The cache on the weights of a full attention."""

    def replace(full: FullAttention) -> Mixer[Any]:
        mixer = CacheUnderStudy.retrofit(full, tau, Reading(window=window))
        assert isinstance(mixer, CacheUnderStudy)
        mixer.rule = rule
        return mixer

    return replace


def window(tokens: int) -> Replace:
    """A sliding window on the weights of a full attention."""

    def replace(full: FullAttention) -> Mixer[Any]:
        heads = full.project.heads
        return with_weights(SlidingWindowAttention(full.width, heads, window=tokens), full)

    return replace


def scheduled(kind: type[KVMAttention | OVQAttention], n_slots: int, n_tokens: int) -> Replace:
    """The rule of KVM or OVQ, with a schedule that ends at this many slots."""

    def replace(full: FullAttention) -> Mixer[Any]:
        mixer = kind(full.width, full.project.heads, chunk=min(64, n_slots))
        mixer.fit(n_slots, n_tokens)
        return with_weights(mixer, full)

    return replace


def gated(threshold: float, budget: float) -> Replace:
    """A cache whose tau is learned, with a budget of tokens to keep."""

    def replace(full: FullAttention) -> Mixer[Any]:
        gate = NoveltyGate(threshold=threshold)
        mixer = DistinctAttention(full.width, full.project.heads, gate=gate, budget=budget)
        return with_weights(mixer, full)

    return replace


def with_weights(mixer: Any, full: FullAttention) -> Mixer[Any]:  # noqa: ANN401
    """The mixer on the weights of a full attention."""
    mixer.project = full.project
    made: Mixer[Any] = mixer.to(full.like.device).train(full.training)
    return made


def attention_blocks(model: nn.Module) -> list[HybridBlock]:
    """The blocks whose mixer is a full attention, first block first."""
    blocks = (part for part in model.modules() if isinstance(part, HybridBlock))
    return [block for block in blocks if type(block.mixer) is FullAttention]


def swap(model: nn.Module, replace: Replace) -> list[Mixer[Any]]:
    """Put another mixer on the weights of each full attention; returns them."""
    made = []
    for block in attention_blocks(model):
        block.mixer = replace(block.mixer)  # type: ignore[arg-type]
        made.append(block.mixer)
    return made


@contextmanager
def swapped(model: nn.Module, *replace: Replace) -> Iterator[list[Mixer[Any]]]:
    """`swap` for a while; with several replacements, one for each block."""
    blocks = attention_blocks(model)
    before = [block.mixer for block in blocks]
    each = replace if len(replace) > 1 else replace * len(blocks)
    try:
        for block, make in zip(blocks, each, strict=True):
            block.mixer = make(block.mixer)  # type: ignore[arg-type]
        yield [block.mixer for block in blocks]
    finally:
        for block, mixer in zip(blocks, before, strict=True):
            block.mixer = mixer
