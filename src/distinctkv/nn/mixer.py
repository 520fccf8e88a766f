"""What every mixer is: a layer over tokens that can also go token by token, and say what it holds.

The contract, for each mixer in evaluation mode: cutting a stream anywhere and carrying the state
over changes no output by more than 1e-5; a token changes no output before it.
"""

# B streams, L tokens, E channels, T taps

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as fn


class State:
    """What a mixer remembers of the tokens before; its methods move it on in place."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors held."""
        return sum(getattr(part, "nbytes", 0) for part in vars(self).values())


S = TypeVar("S", bound=State)


class Mixer(nn.Module, Generic[S]):
    """A layer that maps (B, L, E) to (B, L, E), each token from those up to it."""

    def start(self, batch: int) -> S:
        """The state before the first token of ``batch`` streams."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: S | None = None) -> Tensor:
        """Outputs for (B, L, E) tokens, which follow those in ``state`` and are added to it."""
        raise NotImplementedError

    def step(self, x: Tensor, state: S) -> Tensor:
        """Output for one (B, E) token, which is added to the state."""
        y: Tensor = self(x[:, None], state)
        return y[:, 0]

    @property
    def like(self) -> Tensor:
        """A parameter, for its device and type."""
        return next(self.parameters())


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
        if taps < 1:
            raise ValueError(f"taps must be at least 1, got {taps}; 1 looks at no other token")
        self.taps = taps
        self.weight = nn.Parameter(torch.empty(taps, width).uniform_(-0.5, 0.5))
        self.bias = nn.Parameter(torch.zeros(width))

    def start(self, batch: int) -> Tensor:
        """The tokens before the first, all zero: (B, T - 1, E)."""
        return self.weight.new_zeros(batch, self.taps - 1, self.weight.shape[1])

    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs for tokens that follow the T - 1 in ``past``, and the past of the next."""
        L = x.shape[1]
        x = torch.cat([self.start(len(x)).to(x) if past is None else past.to(x), x], 1)
        # A sum of shifted products: unlike nn.Conv1d it fuses, and needs no transpose.
        y = self.bias + sum(x[:, t : t + L] * self.weight[t] for t in range(self.taps))
        return y, x[:, L:]


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Rows of mean square one, scaled by ``weight``; the norm is taken in 32 bits or more."""
    wide = x if x.dtype == torch.float64 else x.float()
    return (fn.rms_norm(wide, wide.shape[-1:], eps=1e-6) * weight).to(x.dtype)
