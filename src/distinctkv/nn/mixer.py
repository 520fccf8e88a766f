"""What every token mixer shares: states, padding, the short convolution and normalisation."""

# B sequences, L tokens, A places of each sequence, T taps, E model width

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from math import isfinite
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as fn


def check_mask(mask: Tensor | None, tokens: Tensor) -> None:
    """Refuse what is not true or false for each of tokens (B, L, ...)."""
    if mask is not None and (mask.shape != tokens.shape[:2] or mask.dtype != torch.bool):
        raise ValueError(
            f"mask must be bool {tuple(tokens.shape[:2])}, true for real tokens, got {mask.dtype} "
            f"{tuple(mask.shape)}; an attention_mask of 0 and 1 has .bool()"
        )


def reads_without_sync(numbers: Tensor) -> bool:
    """Whether a look makes nobody wait."""
    return numbers.is_cpu and not torch.compiler.is_compiling()


def checked(x: Tensor, mask: Tensor | None, remembered: bool) -> Tensor:
    """Tokens with 0 for padding; shapes that do not fit and, if remembered, nan are refused."""
    if x.ndim != 3 or not x.is_floating_point():
        raise ValueError(f"tokens must be floats (B, L, E), got {x.dtype} {tuple(x.shape)}")
    check_mask(mask, x)
    if mask is not None:
        x = torch.where(mask[..., None], x, 0)
    looked = remembered and x.is_cpu and not torch.compiler.is_compiling()
    # A finite sum has finite parts, and is had sooner than a look at each of them.
    if looked and not isfinite(x.detach().sum()) and not x.isfinite().all():
        n = int((~x.isfinite()).any(-1).sum())
        raise ValueError(
            f"{n} of {x.shape[0] * x.shape[1]} tokens hold nan or inf, and a state would never "
            "lose them again; it is as it was. Look for them in the weights or in what came before"
        )
    return x


class Packing:
    """Tokens (B, N) moved so that padding comes first; ``mask`` is true for real ones.

    The last ``n`` of the N are those asked for; what stood before them comes from a state.

    >>> packing = Packing(torch.tensor([[True, False, True, False]]), 3)
    >>> moved = packing.moved(torch.tensor([[[5], [0], [6], [0]]]))
    >>> moved.flatten().tolist(), packing.back(moved[:, 1:]).flatten().tolist()
    ([0, 0, 5, 6], [0, 6, 0])
    """

    def __init__(self, mask: Tensor, n: int) -> None:
        self.order = mask.to(torch.uint8).argsort(dim=1, stable=True)
        before = mask.shape[1] - n
        self.place = (self.order.argsort(dim=1)[:, before:] - before).clamp(min=0)
        self.mask = mask.gather(1, self.order)

    def moved(self, tokens: Tensor) -> Tensor:
        """(B, N, ...) in the new order."""
        return _taken(tokens, self.order)

    def back(self, tokens: Tensor) -> Tensor:
        """The last n of the N, moved, where they came from; padding holds anything."""
        return _taken(tokens, self.place)


def _taken(tokens: Tensor, place: Tensor) -> Tensor:
    wide = place.reshape(*place.shape, *[1] * (tokens.ndim - 2))
    return tokens.gather(1, wide.expand(-1, -1, *tokens.shape[2:]))


def check_places(at: Tensor, tokens: Tensor) -> None:
    """Refuse places (B, A) that are none of tokens (B, L); elsewhere than on the CPU torch does."""
    L = tokens.shape[1]
    if at.ndim != 2 or len(at) != len(tokens):
        raise ValueError(
            f"at must be ({len(tokens)}, A), the places of each stream, got {tuple(at.shape)}; for "
            "the same of all streams expand them"
        )
    if reads_without_sync(at) and at.numel() and not 0 <= int(at.min()) <= int(at.max()) < L:
        raise ValueError(
            f"at must be places 0 to {L - 1} of {L} tokens, got {int(at.min())} to {int(at.max())}"
        )


class State:
    """What a mixer remembers of the tokens before; the mixer moves it on in place.

    An error while a mixer takes tokens in leaves it marked, and it is refused from then on.
    """

    maker: str = ""  # the kind of the mixer that started it; unknown if it does not say
    interrupted: bool = False  # whether an error may have left some of it a token further

    def of(self, mixer: Mixer[Any]) -> Self:
        """This state, marked as what a mixer of this kind starts."""
        self.maker = mixer.kind
        return self

    def __repr__(self) -> str:
        """Its kind, its sequences, its slots if it has some, its bytes."""
        slots = [f"{part!r}, " for part in vars(self).values() if hasattr(part, "n_slots")]
        what = self.maker or type(self).__name__
        return f"State({what}, {self.streams} streams, {''.join(slots)}{self.nbytes} bytes)"

    @property
    def streams(self) -> int:
        """How many sequences it remembers."""
        return next(len(part) for part in vars(self).values() if isinstance(part, Tensor))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(getattr(part, "nbytes", 0) for part in vars(self).values())

    def check(self) -> Self:
        """Raise if an update was interrupted, or met what it could not report at once."""
        check_complete(self)
        return self

    def index_select(self, rows: Tensor) -> Self:
        """A copy with these rows of the batch, as beam search asks for."""
        return self._each(
            lambda part: part.index_select(0, rows), lambda part: part.index_select(rows)
        )

    def clone(self) -> Self:
        """A copy that later tokens do not touch."""
        return self._each(Tensor.clone, lambda part: part.clone())

    def detach(self) -> Self:
        """The same numbers without a way back for gradients, for truncated back-propagation.

        Train on one segment, step, detach, and let the next segment follow.
        """
        return self._each(Tensor.detach, lambda part: part.detach())

    def _each(self, change: Callable[[Tensor], Tensor], nested: Callable[[Any], Any]) -> Self:
        """A copy with all tensors changed, and what holds tensors."""
        new = copy(self)
        for name, part in vars(self).items():
            if isinstance(part, Tensor):
                setattr(new, name, change(part))
            elif hasattr(part, "index_select"):
                setattr(new, name, nested(part))
        return new


@dataclass(repr=False)
class ModelState:
    """The states of all blocks, first block first."""

    blocks: list[State]
    interrupted: bool = False  # whether an error came after some blocks had taken tokens in

    def __repr__(self) -> str:
        """Its blocks and its bytes."""
        blocks = "".join(f"  {block!r}\n" for block in self.blocks)
        return f"ModelState({len(self.blocks)} blocks, {self.nbytes} bytes:\n{blocks})"

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(block.nbytes for block in self.blocks)

    def check(self) -> ModelState:
        """Raise if a layer met what it could not report at once; synchronises with the device."""
        check_complete(self)
        for block in self.blocks:
            block.check()
        return self

    def index_select(self, rows: Tensor) -> ModelState:
        """A copy with these rows of the batch, as beam search asks for."""
        return ModelState([block.index_select(rows) for block in self.blocks], self.interrupted)

    def clone(self) -> ModelState:
        """A copy that later tokens do not touch."""
        return ModelState([block.clone() for block in self.blocks], self.interrupted)

    def detach(self) -> ModelState:
        """The same numbers without a way back for gradients, for truncated back-propagation."""
        return ModelState([block.detach() for block in self.blocks], self.interrupted)


def check_complete(state: State | ModelState) -> None:
    """Refuse a state that an error interrupted."""
    if state.interrupted:
        raise ValueError(
            f"an error interrupted an update of {state!r}; start anew, or go on from a copy made "
            "before it (clone)"
        )


S = TypeVar("S", bound=State)


class Mixer(nn.Module, Generic[S]):
    """A layer that maps (B, L, E) to (B, L, E), each token from those up to it."""

    @property
    def width(self) -> int | None:
        """Channels E of a token, if it says."""
        return None

    @property
    def kind(self) -> str:
        """The layer in words; layers of one kind may go on from each other's states."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def start(self, batch: int) -> S:
        """The state before the first token of ``batch`` streams."""
        raise NotImplementedError

    def mix(self, x: Tensor, state: S | None = None, mask: Tensor | None = None) -> Tensor:
        """What `forward` gives for one token or more, 0 where there is padding; ours to write."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: S | None = None, mask: Tensor | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens, which follow those in ``state`` and are added to it.

        ``mask`` (B, L) is true for real tokens. Padding, wherever it stands, is as if it were not
        there: its own outputs are 0. On the CPU a token that is not finite is an error where there
        is a state, or slots; elsewhere nothing synchronises to look. Tokens that are refused leave
        the state as it was; a later error leaves it marked, and it is not used again.
        """
        self.check_tokens(x)
        if state is not None:
            self.check_state(state, len(x))
        x = checked(x, mask, state is not None)
        if 0 in x.shape:
            return x
        if state is not None:
            state.interrupted = True
        y = self._masked(x, state, mask)
        if state is not None:
            state.interrupted = False
        return y

    def _masked(self, x: Tensor, state: S | None, mask: Tensor | None) -> Tensor:
        y = self.mix(x, state, mask)
        return y if mask is None else torch.where(mask[..., None], y, 0)

    def step(self, x: Tensor, state: S) -> Tensor:
        """Output for one (B, E) token, which is added to the state."""
        y: Tensor = self(x[:, None], state)
        return y[:, 0]

    def check_tokens(self, x: Tensor) -> None:
        """Refuse tokens of other channels or another type than the weights."""
        if x.ndim == 3 and self.width is not None and x.shape[2] != self.width:
            raise ValueError(
                f"tokens have {x.shape[2]} channels, and {self.kind} takes {self.width}"
            )
        # The first may be a scale or a decay that is kept wide.
        weight = next(self.parameters(), x)
        mixed = x.is_floating_point() and weight.dtype != x.dtype
        mixed = mixed and all(one.dtype != x.dtype for one in self.parameters())
        if mixed and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(
                f"tokens are {x.dtype} and the weights of {self.kind} {weight.dtype}; cast one of "
                "them, or use torch.autocast"
            )

    def check_state(self, state: State, batch: int) -> None:
        """Refuse a state that another kind of layer started, or for other streams."""
        if state.maker not in ("", self.kind) or state.streams != batch:
            raise ValueError(
                f"this state was started by {state.maker or type(state).__name__} for "
                f"{state.streams} streams, and {self.kind} was given {batch}; use one state for "
                f"each layer and batch: start({batch})"
            )
        check_complete(state)

    @property
    def like(self) -> Tensor:
        """A parameter, for its device and type."""
        return next(self.parameters())


def check_sizes(**sizes: float) -> None:
    """Refuse sizes below 1, by name."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def upcast(x: Tensor) -> Tensor:
    """The same numbers in 32 bits or more."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class ShortConv(nn.Module):
    """A causal convolution of each channel over a few tokens, the present one last.

    >>> conv = ShortConv(1, taps=2)
    >>> _ = conv.weight.data.copy_(torch.tensor([[10.0], [1.0]]))  # ten times the token before
    >>> y, conv_state = conv(torch.tensor([[[1.0], [2.0], [3.0]]]))
    >>> y.flatten().tolist(), conv_state.flatten().tolist()
    ([1.0, 12.0, 23.0], [3.0])
    """

    def __init__(self, width: int, taps: int = 4) -> None:
        super().__init__()
        check_sizes(taps=taps)
        self.taps = taps
        self.weight = nn.Parameter(torch.empty(taps, width).uniform_(-0.5, 0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def start(self, batch: int) -> Tensor:
        """The tokens before the first, all zero: (B, T - 1, E)."""
        return self.weight.new_zeros(batch, self.taps - 1, self.weight.shape[1])

    def forward(
        self, x: Tensor, conv_state: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs for tokens that follow the T - 1 in ``conv_state``, and that of the next."""
        (B, L), before = x.shape[:2], self.taps - 1
        x = torch.cat([self.start(B).to(x) if conv_state is None else conv_state.to(x), x], 1)
        packing = None
        if mask is not None:
            packing = Packing(torch.cat([mask.new_ones(B, before), mask], 1), L)
            x = torch.where(packing.mask[..., None], packing.moved(x), 0)
        # A sum of shifted products: unlike nn.Conv1d it fuses, and needs no transpose.
        y = self.bias + sum(x[:, t : t + L] * self.weight[t] for t in range(self.taps))
        # A view would hold on to all L tokens.
        return y if packing is None else packing.back(y), x[:, L:].clone()


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Rows of mean square one, scaled by ``weight``; the norm is taken in 32 bits or more."""
    wide = x if x.dtype == torch.float64 else x.float()
    return (fn.rms_norm(wide, wide.shape[-1:], eps=1e-6) * weight).to(x.dtype)
