"""What trains: the rule on batches of tensors (`functional`), and layers and models built on it."""

try:
    import torch as _torch  # noqa: F401
except ImportError as missing:
    raise ImportError("distinctkv.nn needs torch: pip install 'distinctkv[torch]'") from missing

from .attention import FullAttention, Heads, SlidingWindowAttention
from .delta import GatedDeltaNet
from .distinct import DistinctAttention, Reading
from .gates import NoveltyGate
from .hybrid import HybridBlock, HybridLM
from .mamba import DiagonalSSM, Mamba2
from .mixer import Mixer
from .zoo import WriteGate

__all__ = [
    "DiagonalSSM",
    "DistinctAttention",
    "FullAttention",
    "GatedDeltaNet",
    "Heads",
    "HybridBlock",
    "HybridLM",
    "Mamba2",
    "Mixer",
    "NoveltyGate",
    "Reading",
    "SlidingWindowAttention",
    "WriteGate",
]
