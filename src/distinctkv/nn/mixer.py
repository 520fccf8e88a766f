"""What every mixer is: a layer over tokens that can also go token by token, and say what it holds.

The contract, for each mixer in evaluation mode: cutting a stream anywhere and carrying the state
over changes no output by more than 1e-5; a token changes no output before it. (Only at tau = 0 may
a cut move more: keys must then be equal to the last bit, and products of another shape differ
there.) Weights may have 16 bits; states and sums have 32 or more. Outputs are then rounded to 16
bits too, and the promise holds up to that.
"""

# B streams, L tokens, E channels, T taps

from __future__ import annotations

from typing import Generic, SupportsIndex, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .modelstate import State as State
from .padding import Packing, checked

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
        is a state, or slots; elsewhere nobody waits to look. An error leaves the state as it was
        or, where slots may have been written already, marked so that it is not used again;
        compiled code cannot see to that.
        """
        self.check_tokens(x)
        if state is not None:
            self.check_state(state, len(x))
        x = checked(x, mask, state is not None)
        if 0 in x.shape:
            return x
        if torch.compiler.is_compiling():
            return self._masked(x, state, mask)
        before = [] if state is None else state.parts()
        try:
            y = self._masked(x, state, mask)
        except BaseException as wrong:
            if state is not None:
                state.back(before)
            blame(self, wrong)
            raise
        if state is not None:
            state.calls += 1
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
        if not isinstance(state, State):
            raise TypeError(f"a state is what start({batch}) gives, got {type(state).__name__}")
        if state.maker not in ("", self.kind) or state.streams != batch:
            raise ValueError(
                f"this state was started by {state.maker or type(state).__name__} for "
                f"{state.streams} streams, and {self.kind} was given {batch}; use one state for "
                f"each layer and batch: start({batch})"
            )
        if state.halfway:
            state.check()

    @property
    def like(self) -> Tensor:
        """A parameter, for its device and type."""
        return next(self.parameters())


def blame(model: nn.Module, wrong: BaseException) -> None:
    """Say of an error that weights are not finite, if they are not: then nothing can be."""
    if not isinstance(wrong, ValueError):
        return
    weights = model.named_parameters()
    if names := [name for name, weight in weights if not weight.isfinite().all()]:
        raise ValueError(
            f"{len(names)} weights hold nan or inf, {names[0]} first, so nothing can be worked "
            "out; if training did this lower its rate, and go on from weights saved before"
        ) from wrong


def check_whole(**numbers: object) -> None:
    """Refuse what is no whole number, by name."""
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, SupportsIndex):
            raise TypeError(f"{name} must be a whole number, got {number!r}")


def check_sizes(**sizes: float) -> None:
    """Refuse sizes that are not whole numbers from 1 on, by name."""
    check_whole(**sizes)
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def widened(x: Tensor) -> Tensor:
    """The same numbers in 32 bits or more."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class ShortConv(nn.Module):
    """A causal convolution of each channel over a few tokens, the present one last.

    >>> conv = ShortConv(1, taps=2)
    >>> _ = conv.weight.data.copy_(torch.tensor([[10.0], [1.0]]))  # ten times the token before
    >>> y, past = conv(torch.tensor([[[1.0], [2.0], [3.0]]]))
    >>> y.flatten().tolist(), past.flatten().tolist()
    ([1.0, 12.0, 23.0], [3.0])
    """

    def __init__(self, width: int, taps: int = 4) -> None:
        super().__init__()
        check_whole(taps=taps)
        if taps < 1:
            raise ValueError(f"taps must be at least 1, got {taps}; 1 looks at no other token")
        self.taps = taps
        self.weight = nn.Parameter(torch.empty(taps, width).uniform_(-0.5, 0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def start(self, batch: int) -> Tensor:
        """The tokens before the first, all zero: (B, T - 1, E)."""
        return self.weight.new_zeros(batch, self.taps - 1, self.weight.shape[1])

    def forward(
        self, x: Tensor, past: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs for tokens that follow the T - 1 in ``past``, and the past of the next."""
        (B, L), before = x.shape[:2], self.taps - 1
        x = torch.cat([self.start(B).to(x) if past is None else past.to(x), x], 1)
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
