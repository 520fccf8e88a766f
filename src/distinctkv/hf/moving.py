"""What `generate` does with a cache: take tokens back, and keep, repeat or reorder streams."""

from __future__ import annotations

from abc import abstractmethod
from operator import index

import torch
from torch import Tensor

from . import door
from .holding import Holding


class Moving(Holding):
    """A cache of ours whose streams can be moved."""

    drafts: bool

    @abstractmethod
    def forget(self) -> None:
        """Know nothing of any text."""

    def crop(self, tokens: int) -> None:
        """Take back the last ``-tokens``, or all but the first ``tokens`` if that is positive."""
        door.check_whole(self)
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
        door.check_whole(self)
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
