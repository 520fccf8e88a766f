"""Methods that the cache is compared with, as memories; each names its source and best setting."""

from .attention import KNN, Attention, Hopfield
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
from .slot_memories import HAM, LFU, LRU, NEC, TTL, SubGen
from .sparse_attention import EMLLM, Landmark, Memorizing, Reformer, Routing
from .token_eviction import H2O, TOVA, KeyDiff, Recency, Redundancy, Sinks, SnapKV, SnapKVOnce

__all__ = [
    "EMLLM",
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
    "Hopfield",
    "InfFormer",
    "KMeans",
    "Kanerva",
    "KeyDiff",
    "Landmark",
    "Memorizing",
    "Recency",
    "Redundancy",
    "Reformer",
    "Ridge",
    "Routing",
    "Sinks",
    "SnapKV",
    "SnapKVOnce",
    "SubGen",
    "Superposition",
    "Titans",
]
