"""A language model of any mixers: a state-space backbone with a cache, and its rivals."""

# B sequences, L tokens, E model width, V tokens of the vocabulary

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .attention import FullAttention, SlidingWindowAttention
from .delta_net import GatedDeltaNet
from .distinct import DistinctAttention
from .mixer import (
    Mixer,
    State,
    check_complete,
    check_mask,
    check_places,
    check_sizes,
    reads_without_sync,
    rms_norm,
)
from .mixer import ModelState as ModelState
from .ssm import DiagonalSSM, Mamba2

# Names for mixers as they come; for any other setting give the module itself.
MIXERS: dict[str, Callable[[int], Mixer[Any]]] = {
    "mamba2": Mamba2,
    "diagonal": DiagonalSSM,
    "delta": GatedDeltaNet,
    "full": FullAttention,
    "window": SlidingWindowAttention,
    "distinct": DistinctAttention,
}


class HybridBlock(nn.Module):
    """A mixer, then a network on each token if ``expand`` is not 0, each on the normed residual."""

    def __init__(self, mixer: Mixer[Any], width: int, expand: int = 0) -> None:
        super().__init__()
        if expand < 0:
            raise ValueError(f"expand must be 0 or more, got {expand}; 0 is no network")
        self.mixer = made(mixer, width)
        self.norm = nn.Parameter(torch.ones(width))
        self.expand = expand
        if expand:
            self.wide_norm = nn.Parameter(torch.ones(width))
            self.wide = nn.Linear(width, 2 * expand * width, bias=False)
            self.narrow = nn.Linear(expand * width, width, bias=False)

    def forward(self, x: Tensor, state: State | None = None, mask: Tensor | None = None) -> Tensor:
        """(B, L, E) to (B, L, E); tokens are added to the mixer's ``state`` if there is one."""
        x = x + self.mixer(rms_norm(x, self.norm), state, mask)
        if self.expand:
            gate, up = self.wide(rms_norm(x, self.wide_norm)).chunk(2, -1)
            x = x + self.narrow(fn.silu(gate) * up)
        return x


class HybridLM(nn.Module):
    """Tokens to logits of the next token, through one block for each of ``layers``.

    A layer is a mixer or the name of one in `MIXERS`. Logits are products with the embedding.

    >>> model = HybridLM(16, 32, [Mamba2(32, head=32), "distinct"])
    >>> model(torch.tensor([[3, 1, 2]])).shape
    torch.Size([1, 3, 16])
    """

    def __init__(
        self, vocabulary: int, width: int, layers: Sequence[str | Mixer[Any]], *, expand: int = 0
    ) -> None:
        super().__init__()
        if isinstance(layers, str) or expand < 0:
            raise ValueError(
                f"layers must be a list and expand 0 or more, got {layers!r} and {expand}"
            )
        check_sizes(vocabulary=vocabulary, width=width, layers=len(layers))
        mixers = [made(layer, width) for layer in layers]
        self.embed = nn.Embedding(vocabulary, width)
        # A token must be seen beside what the mixers add; with .02 recall forms late or never.
        nn.init.normal_(self.embed.weight, std=2.5 * width**-0.5)
        self.blocks = nn.ModuleList(HybridBlock(mixer, width, expand) for mixer in mixers)
        self.norm = nn.Parameter(torch.ones(width))

    @property
    def mixers(self) -> list[Mixer[Any]]:
        """The mixers, first block first."""
        return [block.mixer for block in self.blocks if isinstance(block, HybridBlock)]

    def start(self, batch: int, *, room: int | None = None) -> ModelState:
        """The state before the first token of ``batch`` streams.

        ``room`` is for the layers with slots: how many of each stream there is room for at first.
        """
        words = {} if room is None else {"room": room}
        return ModelState(
            [
                mixer.start(batch, **(words if isinstance(mixer, DistinctAttention) else {}))
                for mixer in self.mixers
            ]
        )

    def forward(
        self,
        tokens: Tensor,
        state: ModelState | None = None,
        mask: Tensor | None = None,
        *,
        at: Tensor | None = None,
        hidden: list[Tensor] | None = None,
    ) -> Tensor:
        """Logits (B, L, V) for tokens (B, L), which follow those in ``state`` and are added.

        ``mask`` (B, L) is true for real tokens. Padding, wherever it stands, changes nothing; what
        is said at it means nothing. With ``at`` (B, A) there are logits (B, A, V) at these places
        alone: those of a large vocabulary cost more than the rest of a small model. To ``hidden``
        is added what enters the first block and what leaves each (B, L, E), of the last the norm.

        What is refused before the first block leaves the state as it was. A later error leaves it
        marked, and it is not used again.
        """
        x = self._embedded(tokens)
        if at is not None:
            check_places(at, tokens)
        if state is not None:
            self._check_state(state, len(x))
        check_mask(mask, x)
        if state is not None:
            state.interrupted = True
        logits = self._logits(x, state, mask, at, hidden)
        if state is not None:
            state.interrupted = False
        return logits

    def _logits(
        self,
        x: Tensor,
        state: ModelState | None,
        mask: Tensor | None,
        at: Tensor | None,
        hidden: list[Tensor] | None,
    ) -> Tensor:
        """What `forward` gives for tokens (B, L, E)."""
        for place, block in enumerate(self.blocks):
            if hidden is not None:
                hidden.append(x)
            x = block(x, None if state is None else state.blocks[place], mask)
        if hidden is not None:
            hidden.append(rms_norm(x, self.norm))
        if at is not None:
            x = x.gather(1, at.to(x.device, torch.long)[..., None].expand(-1, -1, x.shape[-1]))
        return fn.linear(rms_norm(x, self.norm), self.embed.weight)

    def _embedded(self, tokens: Tensor) -> Tensor:
        """Tokens (B, L, E); on the CPU ids that there are not are refused, elsewhere torch does."""
        if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"tokens must be whole numbers (B, L), got {tokens.dtype} {tuple(tokens.shape)}; "
                "one text alone is tokens[None], and of other types tokens.long()"
            )
        try:
            x: Tensor = self.embed(tokens)
        except IndexError as wrong:
            raise ValueError(
                f"tokens must be 0 to {self.embed.num_embeddings - 1}, the vocabulary, got "
                f"{int(tokens.min())} to {int(tokens.max())}"
            ) from wrong
        return x

    def _check_state(self, state: ModelState, batch: int) -> None:
        """Refuse a state of another model or for other streams, and one that an error left."""
        if len(state.blocks) != len(self.blocks):
            raise ValueError(
                f"this model has {len(self.blocks)} blocks, got {state!r}; use one state for each "
                f"model and batch: start({batch})"
            )
        check_complete(state)
        for mixer, held in zip(self.mixers, state.blocks, strict=True):
            mixer.check_state(held, batch)

    def step(self, token: Tensor, state: ModelState) -> Tensor:
        """Logits (B, V) after one more token (B,)."""
        if token.ndim != 1:
            raise ValueError(
                f"a step takes one token of each stream (B,), got {tuple(token.shape)}; call the "
                "model for more"
            )
        logits: Tensor = self(token[:, None], state)
        return logits[:, 0]

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        n: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """``n`` tokens (B, n) that follow ``tokens``: the likeliest, or drawn at a temperature.

        ``mask`` (B, L) is true for the real tokens of prompts of different lengths; on the CPU a
        prompt without any is refused.
        """
        if tokens.ndim != 2 or tokens.shape[1] < 1 or n < 0 or not temperature >= 0:
            raise ValueError(
                "generate needs prompts (B, L) of 1 token or more, n and temperature of 0 or more, "
                f"got {tuple(tokens.shape)}, n={n} and temperature={temperature}; one prompt alone "
                "is tokens[None]"
            )
        state = self.start(len(tokens))
        logits = self(tokens, state, mask)
        if mask is None:
            logits = logits[:, -1]
        else:  # each stream goes on from its last real token
            if reads_without_sync(mask) and (blank := int((~mask.any(1)).sum())):
                raise ValueError(
                    f"{blank} of {len(mask)} prompts have no real token to follow; leave them out"
                )
            last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
            logits = logits[torch.arange(len(last), device=mask.device), last]
        said = []
        for left in range(n, 0, -1):
            said.append(_pick(logits, temperature, generator))
            if left > 1:
                logits = self.step(said[-1], state)
        return torch.stack(said, 1) if said else tokens[:, :0]


def made(layer: str | Mixer[Any], width: int) -> Mixer[Any]:
    """The mixer itself, or a new one by its name."""
    if isinstance(layer, Mixer):
        if layer.width not in (None, width):
            raise ValueError(f"{layer.kind} takes {layer.width} channels, the model has {width}")
        return layer
    if not isinstance(layer, str):
        raise TypeError(
            f"a layer is a mixer, as DistinctAttention({width}), or a name, got {layer}"
        )
    if layer not in MIXERS:
        raise ValueError(f"there is no mixer {layer!r}; there are {', '.join(MIXERS)}")
    return MIXERS[layer](width)


def _pick(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    if not temperature:
        return logits.argmax(-1)
    chances = (logits.float() / temperature).softmax(-1)
    return torch.multinomial(chances, 1, generator=generator)[:, 0]
