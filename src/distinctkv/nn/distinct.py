"""`DistinctAttention`: a layer that keeps one slot for each distinct key."""

# B sequences, H heads, L queries, N tokens with those before, F of them written, T columns,
# S slots, W window, D head size, E model width

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import NamedTuple, Self, get_args

import torch
from torch import Tensor
from torch.nn import functional as fn

from ..policy import Concentration, check_metric
from .allocation import Allocation, allocate, taus
from .attention import (
    Attention,
    FullAttention,
    Heads,
    Projection,
    SlidingWindowAttention,
    TokenState,
    attend,
    causal_mask,
)
from .eviction import Usage, above
from .eviction import write as evict_and_write
from .gates import Gate, NoveltyGate, decided
from .mixer import Packing, check_sizes, reads_without_sync
from .slot_attention import Mode, Value, read, slot_keys
from .slot_state import SlotState
from .slot_update import read_one, step, write
from .soft import budget_penalty, causal_novelty

ROOM = 16  # slots a state starts with, and by whose multiples it grows


@dataclass(frozen=True, slots=True)
class Reading:
    """How slots are read.

    ``mass`` weighs a slot by its tokens, which makes the layer attention with each key replaced
    by its slot's; ``distinct`` counts every slot once (paper, eq. 3). ``value`` is what a slot
    answers. ``window`` tokens, the present one among them, are read as they are and written into
    the slots only when they leave it.
    """

    mode: Mode = "mass"
    value: Value = "mean"
    window: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown words, and a window where there is no joint read."""
        if self.mode not in get_args(Mode) or self.value not in get_args(Value):
            raise ValueError(
                f"mode is one of {get_args(Mode)} and value one of {get_args(Value)}, "
                f"got {self.mode!r} and {self.value!r}"
            )
        if self.window < 0:
            raise ValueError(f"window must be 0 or more tokens, got {self.window}")
        if self.window and (self.mode, self.value) != ("mass", "mean"):
            raise ValueError(
                f"a window is read together with the mass and the mean, got mode={self.mode!r} "
                f"and value={self.value!r}; leave the window out"
            )


NOVELTY_READING = Reading("distinct", "first")  # what the soft form of the rule becomes


@dataclass(repr=False)
class DistinctState(TokenState):
    """Slots, tokens that have not left the window, and the last inputs of the convolution."""

    slots: SlotState
    open: Tensor  # (B, up to W - 1), which tokens of the window will be written
    most: int = 0  # no stream has more slots than this
    room: int = ROOM  # slots that there is always room for
    usage: Usage | None = None  # of the slots, where a budget evicts

    def room_for(self, n: int) -> None:
        """See to it that n more tokens find room, whatever they are.

        Compiled, nothing grows: a token that finds no room is counted, and `check` raises.
        """
        if torch.compiler.is_compiling():
            self.most = self.slots.capacity
            return
        if self.most + n > self.slots.capacity:
            self.most = int(self.slots.n_slots.max())
        if self.most + n > self.slots.capacity:
            self._resize(_roomy(self.most + n))
        self.most += n

    def fit(self) -> None:
        """Give back the room that many tokens might have needed and did not; waits for them."""
        if torch.compiler.is_compiling():
            return
        self.most = int(self.slots.n_slots.max())
        if self.slots.capacity > (least := max(self.room, _roomy(self.most))):
            self._resize(least)

    def _resize(self, capacity: int) -> None:
        self.slots = self.slots.resized(capacity)
        if self.usage is not None:
            self.usage = self.usage.resized(capacity)

    def check(self) -> DistinctState:
        """Raise if the slots refused a key or had no room; reads the device."""
        super().check()
        self.slots.check()
        return self


def _roomy(n: int) -> int:
    """Room for n slots, a quarter of them again, and one more."""
    return ROOM * -(-(n + n // 4 + 1) // ROOM)


def check_settings(concentration: Concentration, reading: Reading) -> None:
    """Refuse a threshold that no cosine exceeds, and a budget beside a window."""
    check_metric("cosine", concentration.tau)
    if concentration.bounded and reading.window:
        raise ValueError(
            f"a layer with a budget ({concentration.base}) evicts token by token and has no "
            f"window, got window={reading.window}; leave one of the two out"
        )


def check_gate(gate: Gate, reading: Reading, width: int) -> None:
    """Refuse a gate that cannot decide by ``width`` numbers what a layer writes."""
    if gate.needs_novelty and reading != NOVELTY_READING:
        raise ValueError(
            f"a {type(gate).__name__} keeps tokens, each with its own value: the layer reads "
            f"{NOVELTY_READING}, got {reading}; leave reading out"
        )
    if not gate.needs_novelty and not reading.window:
        raise ValueError("a gate needs a window: give reading=Reading(window=1) or more")
    token = next(gate.parameters(), torch.zeros(())).new_ones(1, width)
    try:
        with torch.no_grad():
            gate.logit(token[:, 0], gate.embed(token))
    except RuntimeError as wrong:
        needs = (
            "keys of the size of a head" if gate.needs_novelty else "tokens as wide as the layer"
        )
        raise ValueError(
            f"{type(gate).__name__} does not take {width} numbers ({wrong}); it gets {needs}"
        ) from wrong


QUERIES = 512  # queries whose masks are held at once
# Log weight of padding: nothing beside a token, yet a query may see nothing else.
PADDING_WEIGHT = -1e30


class Columns(NamedTuple):
    """What a query can see: keys and values (B, T, H, D), and the logarithm of their weight."""

    keys: Tensor
    values: Tensor
    weight: Tensor | None  # (B, H, T), None if all are 1


def columns(
    far: Tensor,
    k: Tensor,
    v: Tensor,
    state: SlotState | None,
    written: Tensor | None,
    real: Tensor | None = None,
) -> Columns:
    """Slots from before, the first F tokens under their slots' keys ``far``, all N tokens again.

    Those of the F that are not ``written`` (B, F) and of the N that are not ``real`` (B, N) weigh
    nothing.
    """
    F = far.shape[1]
    keys, values = [far, k], [v[:, :F], v]
    if state is None and written is None and real is None:
        return Columns(torch.cat(keys, 1), torch.cat(values, 1), None)
    weight = k.new_zeros(k.shape[0], k.shape[2], F + k.shape[1])
    if written is not None:
        weight[..., :F].masked_fill_(~written[:, None], -torch.inf)
    if real is not None:
        weight[..., F:].masked_fill_(~real[:, None], PADDING_WEIGHT)
    if state is not None:
        used = state.used
        count = torch.where(used, state.counts, 1).to(state.values.dtype)
        held = torch.where(used[..., None], state.values / count[..., None], 0)
        keys.insert(0, torch.where(used[..., None], state.keys, 0).transpose(1, 2).to(k))
        values.insert(0, held.transpose(1, 2).to(v))
        weight = torch.cat([count.log().masked_fill(~used, -torch.inf).to(weight), weight], -1)
    return Columns(torch.cat(keys, 1), torch.cat(values, 1), weight)


def visible(now: Tensor, n_tokens: int, n_written: int, window: int) -> Tensor:
    """Which of F + N token columns a query at each place ``now`` (Q,) may see: far, then near ones.

    >>> visible(torch.tensor([1, 2]), 3, 2, 2).int()  # tokens 1 and 2 ask; 0 and 1 are written
    tensor([[0, 0, 1, 1, 0],
            [1, 0, 0, 1, 1]], dtype=torch.int32)
    """
    now = now[:, None]
    token = torch.arange(n_tokens, device=now.device)
    far = token[:n_written] <= now - window
    near = (token <= now) & (token > now - window)
    return torch.cat([far, near], 1)


def read_near_and_far(
    q: Tensor, seen: Columns, n_tokens: int, n_written: int, window: int
) -> Tensor:
    """One softmax over all columns: (B, L, H, D); queries are those of the last L of N tokens."""
    key, value = seen.keys.transpose(1, 2), seen.values.transpose(1, 2)
    before = key.shape[2] - n_written - n_tokens  # slots from before
    at, parts = places(q, n_tokens), []
    for start in range(0, q.shape[1], QUERIES):
        part = slice(start, start + QUERIES)
        allowed = visible(at[part], n_tokens, n_written, window)
        allowed = fn.pad(allowed, (before, 0), value=True)
        bias = allowed if seen.weight is None else _bias(seen.weight, allowed)
        query = q[:, part].transpose(1, 2)
        with torch.autocast(q.device.type, enabled=False):
            parts.append(fn.scaled_dot_product_attention(query, key, value, bias, scale=1.0))
    return torch.cat(parts, 2).transpose(1, 2)


def places(q: Tensor, n_tokens: int) -> Tensor:
    """Where queries (B, L, H, D) stand, the last L of N."""
    return torch.arange(n_tokens - q.shape[1], n_tokens, device=q.device)


def slot_reads(
    q: Tensor, keys: Tensor, assign: Tensor, mask: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The weight each query gives to the slot of each far token, (B, H, L, F)."""
    logits = torch.einsum("blhd,bthd->bhlt", q, keys)
    if weight is not None:
        logits = logits + weight[: len(logits), :, None]
    share = logits.masked_fill(~mask, -torch.inf).softmax(-1)[..., : assign.shape[1]]
    slot = assign.transpose(1, 2)
    same = (slot[..., :, None] == slot[..., None, :]).to(share)
    return share @ same


def _bias(weight: Tensor, allowed: Tensor) -> Tensor:
    return weight[:, :, None].masked_fill(~allowed, -torch.inf)


READ = 0.1  # a slot counts as read if a query gives it this much of its weight
ROWS = 4  # sequences of a batch whose reads teach the write gate


class DistinctAttention(Attention[DistinctState]):
    """Attention over slots: a token opens one where its key is novel, else joins the nearest.

    Gradients go straight through to each token's own key. ``tau`` is a buffer, so that it may be
    ramped in training and chosen anew afterwards without a recompilation.

    With a budget (``Concentration.surprise``) evaluation evicts the least used slots as
    `distinctkv.rule` does, token by token; training keeps all slots.

    A `NoveltyGate` learns tau. In training all tokens are read, ``log g`` added to their logits,
    and `write_loss` penalises a number of kept tokens that is not ``budget`` (per head and
    sequence). Evaluation allocates by the rule at g = 1/2, that is at tau = the gate's threshold.
    Other gates on the novelty (`MetricGate`, `KeyNoveltyGate`; they get the key of a head) train in
    the same way. In evaluation they open a slot where g > 1/2 for the novelty to the slots. That
    is decided token by token, which is slow, and there is no tau (it is nan).

    A gate on the token alone (`WriteGate`) stores only what will be read: in training it learns
    from the reads (`write_loss`), in evaluation tokens on which it is shut are not written. It
    needs a window of 1 or more.

    With ``slot_dtype``, torch.bfloat16 say, evaluation holds slots in fewer bits: keys are rounded
    once, before anything is decided, and what is decided is what the rule says of them in float32.
    Values of the first or last token are rounded too. Sums, for the mean, are not: in 16 bits a
    slot of 256 tokens would take in no more of them.

    >>> mixer = DistinctAttention(width=32, concentration=Concentration.fixed(0.3))
    >>> mixer(torch.randn(1, 10, 32)).shape
    torch.Size([1, 10, 32])
    >>> DistinctAttention(width=32, gate=NoveltyGate(threshold=0.25), budget=8).tau
    tensor(0.2500)
    """

    fixed_tau: Tensor | None
    penalty_weight: Tensor

    def __init__(
        self,
        width: int,
        heads: Heads | None = None,
        *,
        concentration: Concentration | None = None,
        reading: Reading | None = None,
        gate: Gate | None = None,
        budget: float | None = None,
        slot_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        learned = gate is not None and gate.needs_novelty
        if learned and concentration is not None:
            raise ValueError(
                f"the gate decides what opens a slot, got {concentration} beside it; "
                f"NoveltyGate(threshold={concentration.tau}) starts there"
            )
        if budget is not None and not (learned and 0 < budget < inf):
            raise ValueError(
                f"budget is the number of tokens that a gate on the novelty learns to keep, above "
                f"0, got {budget} and gate={gate}; a budget of slots is Concentration.surprise(...)"
            )
        if reading is None:
            reading = NOVELTY_READING if learned else Reading()
        self.concentration = concentration or Concentration.fixed(0.15)
        check_settings(self.concentration, reading)
        self.project = Projection(width, Heads() if heads is None else heads)
        if gate is not None:
            check_gate(gate, reading, self.project.heads.size if learned else width)
        # Slots are evicted, or opened by what no threshold says.
        self._steps = self.concentration.bounded or (learned and not isinstance(gate, NoveltyGate))
        self.reading, self.gate, self.budget, self.slot_dtype = reading, gate, budget, slot_dtype
        tau = torch.tensor(self.concentration.tau, dtype=torch.float64)
        self.register_buffer("fixed_tau", None if learned else tau)
        self.register_buffer("penalty_weight", torch.ones(()), persistent=False)
        # Of the last call without a state; None if none of its tokens left the window.
        self.slots_per_token: Tensor | None = None
        self._reads: tuple[Tensor, Tensor, Packing | None] | None = None
        self._kept: Tensor | None = None  # (B, L, H), by a gate on the novelty

    @property
    def tau(self) -> Tensor:
        """The threshold: a buffer, or what a `NoveltyGate` has learned; ``fill_`` sets it.

        Other gates on the novelty have none: nan.
        """
        if isinstance(self.gate, NoveltyGate):
            return self.gate.threshold.detach()
        return torch.tensor(nan) if self.fixed_tau is None else self.fixed_tau

    @property
    def learns_tau(self) -> bool:
        """Whether a gate on the novelty decides what opens a slot."""
        return self.fixed_tau is None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move or cast, but never round tau."""
        tau = self.fixed_tau
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if tau is not None and self.fixed_tau is not None:
            moved = self.fixed_tau
            self.fixed_tau = moved.double() if tau.is_meta else tau.to(moved.device)
        return self

    def __getstate__(self) -> dict[str, object]:
        """All but what the last batch left for `write_loss`, which holds on to its graph."""
        return {**self.__dict__, "_reads": None, "_kept": None}

    @classmethod
    def retrofit(
        cls, full: FullAttention, tau: float, reading: Reading | None = None
    ) -> DistinctAttention:
        """The cache on the weights of a trained full attention, which are shared, not copied."""
        if not isinstance(full, FullAttention) or isinstance(full, SlidingWindowAttention):
            raise TypeError(f"a retrofit needs a FullAttention, got {type(full).__name__}")
        width = full.project.out_proj.out_features
        fixed = Concentration.fixed(tau)
        new = cls(width, full.project.heads, concentration=fixed, reading=reading)
        new.project = full.project
        return new.to(full.like.device).train(full.training)

    @property
    def kind(self) -> str:
        """The layer in words but for tau, which may change from token to token."""
        held = str(self.slot_dtype or "as weights").removeprefix("torch.")
        read = f"read={self.reading.mode} {self.reading.value}, window={self.reading.window}"
        policy, budget = self.concentration, ""
        if policy.bounded:
            budget = f", budget={policy.base:g} + {policy.gain:g} T"
        return f"{type(self).__name__}({super().extra_repr()}, {read}, slots={held}{budget})"

    def extra_repr(self) -> str:
        """Tau, heads, read, window, type of slots."""
        tau = "?" if self.tau.is_meta else f"{float(self.tau):.4g}"
        return f"tau={tau}, {self.kind.partition('(')[2][:-1]}"

    def start(self, batch: int, *, room: int = ROOM) -> DistinctState:
        """No slots, no tokens.

        There is room for ``room`` slots of each stream, and more is made as they open. A compiled
        layer makes no more: then give all the room that will be needed.
        """
        check_sizes(room=room)
        heads = self.project.heads
        wide = torch.promote_types(self.like.dtype, torch.float32)
        none = self.like.new_zeros(batch, 0, heads.count, heads.size, dtype=wide)
        shut = torch.zeros(batch, 0, dtype=torch.bool, device=none.device)
        slots = SlotState.empty(none.to(self.slot_dtype or wide), none, room)
        if self.reading.value != "mean":
            slots = slots._replace(values=slots.values.to(slots.keys.dtype))
        conv_state = self.project.conv.start(batch)
        usage = Usage.empty(slots) if self._steps else None
        return DistinctState(conv_state, none, none, slots, shut, room=room, usage=usage).of(self)

    def mix(
        self, x: Tensor, state: DistinctState | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Outputs for (B, L, E) tokens; see `Mixer`."""
        self._reads = self._kept = None
        if state is None:
            self.slots_per_token = None
        q, k, v, conv_state = self.project(x, None if state is None else state.conv_state, mask)
        y = (self._windowed if self.reading.window else self._plain)(x, q, k, v, state, mask)
        if state is not None:
            state.conv_state = conv_state
            if x.shape[1] > 1:
                state.fit()
        return self.project.out(y)

    def _plain(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: DistinctState | None,
        mask: Tensor | None,
    ) -> Tensor:
        """What `mix` reads from slots alone."""
        mode, value = self.reading.mode, self.reading.value
        if state is None and self.training and self.learns_tau:
            return self._soft(x, q, k, v, mask)
        if state is not None or not self.training:
            k = self._round(k)
            v = v if value == "mean" else self._round(v)
        if self._steps and (state is not None or not self.training):
            return self._stepwise(x, q, k, v, state, mask)
        if state is not None:
            state.room_for(x.shape[1])
            kept = k.to(state.slots.keys.dtype)
            y, state.slots = step(
                q, kept, v, state.slots, self.tau,
                mode=mode, value=value, scale=1.0, mask=mask,
            )  # fmt: skip
            return y
        found = self.allocate(k, mask=mask)
        self._count(found.n_slots, x, mask)
        return read(q, k, v, found, mode=mode, value=value, scale=1.0)

    def _soft(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Every token, with ``log g`` on its logit.

        The novelty is a feature: the gate, not the keys, learns from it. The tokens that the
        penalty counts are decided, with the slope of g (straight through): a sum of soft gates
        can be on the budget where all of them are alike.
        """
        assert self.gate is not None
        keys = k.detach()
        logit = self.gate.logit(causal_novelty(self.gate.embed(keys), mask=mask), keys)
        real = torch.ones_like(logit) if mask is None else mask[..., None]
        self._kept = decided(logit).exp() * real
        self._count(self._kept.sum(1), x, mask)
        # One more channel of the keys holds log g, and of the queries 1: the logit is their sum.
        k = torch.cat([k, self.gate.log_gate(logit)[..., None].to(k)], -1)
        return attend(fn.pad(q, (0, 1), value=1.0), k, v, causal_mask(mask, x.shape[1]))

    def _stepwise(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: DistinctState | None,
        mask: Tensor | None,
    ) -> Tensor:
        """What `mix` reads token by token: each is written, may evict, then reads."""
        mode, value = self.reading.mode, self.reading.value
        now = self.start(len(x)) if state is None else state
        opens, embed, out = above(taus(self.tau, k)), lambda keys: keys, []
        if self.learns_tau and (gate := self.gate) is not None:
            embed = gate.embed
            opens = lambda novelty, key: gate.logit(novelty.to(key), key) > 0  # noqa: E731
        for t in range(x.shape[1]):
            now.room_for(1)
            assert now.usage is not None
            at, real = slice(t, t + 1), None if mask is None else mask[:, t : t + 1]
            kept = k[:, at].to(now.slots.keys.dtype)
            found, now.usage = evict_and_write(
                kept, v[:, at], now.slots, now.usage, opens, self.concentration,
                mask=real, value=value, embed=embed,
            )  # fmt: skip
            out.append(read_one(q[:, at], now.slots, mode, value, 1.0, found).to(v.dtype))
        if reads_without_sync(k):
            now.slots.check()
        if state is None:
            self._count(now.slots.n_slots, x, mask)
        return torch.cat(out, 1)

    def allocate(
        self, keys: Tensor, slots: SlotState | None = None, mask: Tensor | None = None
    ) -> Allocation:
        """The rule on keys (B, L, H, D); another rule for the same layer overrides this."""
        return allocate(keys, self.tau, state=slots, mask=mask)

    def _windowed(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: DistinctState | None,
        mask: Tensor | None,
    ) -> Tensor:
        """What `mix` reads with an exact window, whose tokens are written as they leave it."""
        L, W = x.shape[1], self.reading.window
        open_, real, packing = self._write_mask(x), mask, None
        if state is not None:
            k, v, real = state.joined(k, v, mask)
            open_ = torch.cat([state.open, open_], 1)
        if real is not None:
            packing = Packing(real, L)
            k, v, open_, real = *(packing.moved(t) for t in (k, v, open_)), packing.mask
            q = packing.moved(fn.pad(q, (0, 0, 0, 0, k.shape[1] - L, 0)))[:, -L:]
            open_ = open_ & real
        F = max(0, k.shape[1] - W + 1)  # tokens that the next query will find outside its window
        far = k[:, :F] if self.training and state is None else self._round(k[:, :F])
        written = real if self.training or self.gate is None else open_
        written = None if written is None else written[:, :F]
        if state is not None:
            state.room_for(F)
        slots = None if state is None else state.slots
        kept = far if slots is None else far.to(slots.keys.dtype)
        found = self.allocate(kept, slots, written) if F else None
        keys = far if found is None else slot_keys(far, found, state=slots)
        seen, N = columns(keys, k, v, slots, written, real), k.shape[1]
        y = read_near_and_far(q, seen, N, F, W)
        if state is not None:
            if found is not None:
                write(state.slots, kept, v[:, :F], found)
            # Copies: views would hold on to all tokens.
            state.keys, state.values, state.open = (t[:, F:].clone() for t in (k, v, open_))
            state.real = None if real is None else real[:, F:].clone()
        elif found is not None:
            self._count(found.n_slots, x, mask)
            if self.training and self.gate is not None:
                few, keys, assign = (t[:ROWS].detach() for t in (q, seen.keys, found.assign))
                near = visible(places(q, N), N, F, W)
                self._reads = slot_reads(few, keys, assign, near, seen.weight), x, packing
        return y if packing is None else packing.back(y)

    def _round(self, rows: Tensor) -> Tensor:
        """Keys or values as a slot will hold them."""
        return rows if self.slot_dtype is None else rows.to(self.slot_dtype).to(rows.dtype)

    def _write_mask(self, x: Tensor) -> Tensor:
        """Which tokens (B, L) the gate lets in."""
        if self.gate is None:
            return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return self.gate.logit(torch.zeros_like(x[..., 0]), x) > 0

    def _count(self, n_slots: Tensor, x: Tensor, mask: Tensor | None) -> None:
        n_tokens = x.shape[1] if mask is None else mask.sum(1).float().mean()
        self.slots_per_token = n_slots.detach().float().mean() / n_tokens

    def write_loss(self, asked: Tensor | None = None) -> Tensor:
        """What the gate adds to the loss of the last training batch.

        Of a gate on the novelty the penalty on a number of kept tokens that is not the budget,
        times ``penalty_weight``. Of others the cross-entropy with which tokens were read later;
        ``asked`` (B, L) marks the queries whose answers matter, all if it is left out.
        """
        if self._kept is not None and self.budget is not None:
            kept, self._kept = self._kept, None
            return self.penalty_weight * budget_penalty(kept, self.budget)
        if self.gate is None or self._reads is None:
            return self.project.scale.new_zeros(())
        (reads, x, packing), self._reads = self._reads, None
        if packing is not None:
            x = packing.moved(x)
            asked = packing.mask if asked is None else packing.moved(asked) & packing.mask
        x = x[:ROWS]
        if asked is not None:
            reads = reads * asked[:ROWS, None, :, None]
        wanted = (reads.amax((1, 2)) > READ).to(reads)  # (B, F)
        logit = self.gate.logit(torch.zeros_like(x[..., 0]), x)[:, : wanted.shape[1]]
        real = torch.ones_like(logit)
        if packing is not None:
            real = packing.mask[:ROWS, : wanted.shape[1]].to(logit)
        wrong = fn.binary_cross_entropy_with_logits(logit, wanted, real, reduction="sum")
        return wrong / real.sum().clamp(min=1)
