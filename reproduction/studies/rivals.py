"""Whom study ``frontier`` sets against the cache, and at which sizes.

Each has the best setting that is known of it on this stream. `Memorizing` would have the line of
`Recency`, and `Titans` takes more time than all states together; they have none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

from distinctkv.cache import Memory

from ..baselines import (
    H2O,
    HAM,
    KVM,
    LFU,
    LRU,
    NEC,
    OVQ,
    TOVA,
    TTL,
    Fourier,
    GatedDelta,
    InfFormer,
    Kanerva,
    KeyDiff,
    Recency,
    Redundancy,
    Sinks,
    SnapKV,
    SnapKVOnce,
    SubGen,
    Superposition,
)
from .result import Role
from .sweep import Method

BUDGETS = (16, 32, 48, 64, 80, 96, 128)
TAU = 0.3


def _whole(make: Callable[[int], Memory]) -> Callable[[float], Memory]:
    return lambda size: make(int(size))


def _policy(name: str, label: str, setting: str, make: Callable[[int], Memory]) -> Method:
    role: Role = "paper" if name in ("recency", "sinks", "h2o") else "added"
    return Method(name, label, f"B={{}}{setting}", _whole(make), BUDGETS, role)


def window(budget: int) -> int:
    """SnapKV's: the longest in use, 64, but no more than lets the window still vote on others.

    Over the whole budget it would do better yet, and be `Recency`.

    >>> window(64), window(128)
    (48, 64)
    """
    return min(64, 3 * budget // 4)


POLICIES = (
    _policy("recency", "Recency", "", Recency),
    _policy("sinks", "Sinks and window", ", 4 sinks", Sinks),
    _policy(
        "h2o",
        "Heavy hitter (H2O)",
        ", scores at theta .145, no recent window",
        lambda budget: H2O(budget, score_theta=0.145, recent=0),
    ),
    _policy(
        "h2o_tuned",
        "H2O, tuned",
        ", scores at theta .1, no recent window",
        lambda budget: H2O(budget, score_theta=0.1, recent=0),
    ),
    _policy("h2o_published", "H2O, published form", ", scores at theta .1, half recent", H2O),
    _policy("redundancy", "Redundancy eviction", ", the older of the closest two", Redundancy),
)
OTHERS = (
    _policy("lru", "LRU over slots", f", tau {TAU}", LRU),
    _policy("lfu", "LFU over slots", f", tau {TAU}, decay .98", LFU),
    _policy("nec", "NEC dictionary", ", 1 neighbour", NEC),
    _policy("keydiff", "KeyDiff", "", KeyDiff),
    _policy("tova", "TOVA", "", TOVA),
    _policy(
        "snapkv",
        "SnapKV",
        ", window 64 or 3B/4",
        lambda budget: SnapKV(budget, window=window(budget)),
    ),
    _policy(
        "snapkv_once",
        "SnapKV once",
        ", window 64 or 3B/4",
        lambda budget: SnapKVOnce(budget, window=window(budget)),
    ),
)
# Their size follows from a setting and the stream. SubGen's delta is that of the cache's tau; at
# an error of 2 HAM keeps no token, and is the delta rule.
GROWING = (
    Method(
        "subgen",
        "SubGen",
        "delta of tau {}, 1 sample",
        lambda tau: SubGen(delta=sqrt(2 * tau)),
        (0.01, 0.1, 0.3, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85),
    ),
    Method("kvm", "KVM", "factor {}, chunks of 16", KVM, (1, 2, 3, 4, 5, 6, 8)),
    Method("ovq", "OVQ", "limit {}, chunks of 16", _whole(OVQ), (17, 36, 59, 86, 116, 154, 256)),
    Method("ham", "HAM", "error {}, rate .05", HAM, (0.95, 0.98, 1.0, 1.02, 1.05, 2.0)),
    Method("ttl", "TTL", f"idle {{}}, tau {TAU}", _whole(TTL), (16, 32, 64, 128, 255)),
)
STATES = (
    Method(
        "fourier",
        "Fourier state",
        "{} random features, scale 2.5",
        _whole(Fourier),
        (16, 32, 48, 66, 96, 132, 192),
    ),
    Method(
        "kanerva",
        "Kanerva state",
        "{} rows and their covariance",
        _whole(Kanerva),
        (12, 16, 24, 32, 40, 48, 64),
    ),
    Method("infformer", "∞-former", "{} waves", _whole(InfFormer), (16, 32, 64, 128)),
    Method("gated", "Gated delta rule", "rate .1, decay {}", lambda _: GatedDelta(), (0.999,)),
)
# The paper's fixed state, on streams whose keys have more numbers: it has no other way to grow.
WIDE = Method(
    "wide",
    "Sum, wider keys",
    "sum of k vᵀ, keys of {} numbers",
    lambda _: Superposition(),
    (16, 32, 64, 96, 132, 192, 256),
)
