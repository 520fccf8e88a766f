"""How a cache is sized and how it merges, and the errors of this package."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any, Self

NAME = "distinctkv"  # of our attention, among those of transformers
THRESHOLD = 1.4  # of a cache for which no size is given
RECENT = 32  # newest tokens that are not merged yet


class UnsupportedModelError(ValueError):
    """A model, or a way to call it, that the cache does not support."""


class WrongModelError(ValueError):
    """A cache, a saved cache or a metric that was made for another model."""


class MaskError(ValueError):
    """A mask that is not causal with padding on the left, or differs from earlier ones."""


class PositionError(ValueError):
    """Positions that do not grow, or rotary frequencies that differ from those of the slots."""


class CropError(ValueError):
    """A crop of tokens that are slots already."""


class BrokenForwardError(RuntimeError):
    """A cache whose layers hold different tokens, because a forward pass was interrupted."""


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """Which tokens merge less, and how values are averaged; the default lost least in our tasks.

    ``importance``: squared distances are multiplied by (attention received) ** importance; 0 is
    off. The attention is in units of an even share: 1 is what a token gets from queries that look
    at all tokens alike.
    ``horizon``: so many tokens apart count as a squared distance of 1, twice as many as 4: what is
    repeated much later gets a slot of its own. None is off.
    ``attention_mean``: the value of a slot is the mean of its tokens' values weighted by the
    attention that each received before it was merged, not the plain mean; 4 bytes more for a slot.

    ``FAST`` turns all three off: attention is then not measured, so a long context is read faster.

    >>> MergePolicy(horizon=1024)
    MergePolicy(importance=0.25, horizon=1024, attention_mean=True)
    """

    importance: float = 0.25
    horizon: float | None = 512
    attention_mean: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.importance <= 4:
            raise ValueError(
                f"importance must lie in [0, 4], got {self.importance}; it is a power, 0 is off"
            )
        if self.horizon is not None and not 0 < self.horizon < inf:
            raise ValueError(
                f"horizon must be finite and greater than 0, got {self.horizon}; it is a number of "
                "tokens, None is off"
            )

    @property
    def needs_attention(self) -> bool:
        """Whether the attention that tokens receive must be measured."""
        return self.importance > 0 or self.attention_mean


FAST = MergePolicy(importance=0.0, horizon=None, attention_mean=False)


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Size of a cache, tokens that are never or not yet merged, and how the others merge.

    At most one of ``threshold``, ``kept`` and ``budget`` is given; see `distinct_cache`.

    >>> CacheConfig().threshold, CacheConfig(kept=0.25).threshold
    (1.4, None)
    """

    threshold: float | None = None
    kept: float | None = None
    budget: int | None = None
    sinks: int = 4
    recent: int | None = None
    merge: MergePolicy = field(default_factory=MergePolicy)

    def __post_init__(self) -> None:
        """Check the ranges."""
        sizes = {n: getattr(self, n) for n in ("threshold", "kept", "budget")}
        given = [name for name, value in sizes.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"give one size of the cache, got {' and '.join(given)}")
        if not given:
            object.__setattr__(self, "threshold", THRESHOLD)
        for name, count in (("sinks", self.sinks), ("recent", self.recent or 0)):
            if count < 0:
                raise ValueError(f"{name} must be at least 0, got {count}")
        if self.threshold is not None and not 0 <= self.threshold < inf:
            raise ValueError(
                f"threshold must be finite and 0 or more, got {self.threshold}; kept=1.0 merges "
                "nothing"
            )
        if self.kept is not None and not 0 < self.kept <= 1:
            raise ValueError(
                f"kept must lie in (0, 1], got {self.kept}; 0.25 holds a quarter, 1 all"
            )
        if self.budget is not None and self.budget < self.min_size:
            raise ValueError(
                f"budget must be at least {self.min_size} (sinks + recent + 1), got {self.budget}; "
                "give a smaller recent to go below"
            )

    @property
    def max_recent(self) -> int:
        """The most newest tokens that are not merged yet."""
        return RECENT if self.recent is None else self.recent

    @property
    def min_size(self) -> int:
        """Tokens of a head below which nothing can be merged."""
        return self.sinks + self.max_recent + 1

    @property
    def size(self) -> str:
        """The size as it was given.

        >>> CacheConfig(kept=0.25).size
        'kept=0.25'
        """
        sizes = ((name, getattr(self, name)) for name in ("threshold", "kept", "budget"))
        return next(f"{name}={value}" for name, value in sizes if value is not None)

    def state(self) -> dict[str, Any]:
        """The config as JSON."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The config of a `state`."""
        return cls(**{**state, "merge": MergePolicy(**state["merge"])})
