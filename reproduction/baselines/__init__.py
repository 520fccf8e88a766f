"""The rivals of the cache, each a memory, each with its source and its best setting."""

from .attention import Attention
from .based import Based
from .budgets import LFU, LRU
from .decay import DecayedSuperposition
from .delta import Delta, GatedDelta
from .emllm import EMLLM
from .fourier import Fourier
from .h2o import H2O
from .ham import HAM
from .hopfield import Hopfield
from .infformer import InfFormer
from .kanerva import Kanerva
from .keydiff import KeyDiff
from .kmeans import KMeans
from .knn import KNN
from .kvm import KVM
from .landmark import Landmark
from .memorizing import Memorizing
from .nec import NEC
from .ovq import OVQ
from .recency import Recency
from .redundancy import Redundancy
from .reformer import Reformer
from .ridge import Ridge
from .routing import Routing
from .sinks import Sinks
from .snapkv import SnapKV
from .snapkv_once import SnapKVOnce
from .subgen import SubGen
from .superposition import Superposition
from .titans import Titans
from .tova import TOVA
from .ttl import TTL

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
