"""Methods that the cache is compared with, as memories; each names its source and best setting."""

from .attention import KNN, Attention
from .clustering import KMeans
from .learned_states import InfFormer, Kanerva, Titans
from .linear_states import (
    Based,
    DecayedSuperposition,
    Delta,
    Fourier,
    GatedDelta,
    Ridge,
    Superposition,
)
from .scheduled import KVM, OVQ
from .slot_memories import HAM, LFU, LRU, NEC, TTL, GroupSamples, SubGen
from .token_eviction import H2O, TOVA, KeyDiff, Recency, Redundancy, Sinks, SnapKV, SnapKVOnce

__all__ = [
    "H2O",
    "HAM",
    "KNN",
    "KVM",
    "LFU",
    "LRU",
    "NEC",
    "OVQ",
    "TOVA",
    "TTL",
    "Attention",
    "Based",
    "DecayedSuperposition",
    "Delta",
    "Fourier",
    "GatedDelta",
    "GroupSamples",
    "InfFormer",
    "KMeans",
    "Kanerva",
    "KeyDiff",
    "Recency",
    "Redundancy",
    "Ridge",
    "Sinks",
    "SnapKV",
    "SnapKVOnce",
    "SubGen",
    "Superposition",
    "Titans",
]
