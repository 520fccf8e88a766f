"""What trains: the rule on batches of tensors (`functional`), and layers and models built on it."""

try:
    import torch as _torch  # noqa: F401
except ImportError as missing:
    from ..extras import install as _install

    raise ImportError(f"distinctkv.nn needs torch: {_install('torch')}") from missing

from .attention import FullAttention, Heads, SlidingWindowAttention
from .delta_net import GatedDeltaNet
from .distinct import DistinctAttention, Reading
from .gates import (
    ContextGate,
    Gate,
    GumbelGate,
    KeyGate,
    KeyNoveltyGate,
    MetricGate,
    NoveltyGate,
    Probe,
    SaliencyGate,
    SignedGate,
    StraightThrough,
    SurpriseGate,
    WriteGate,
    distillation,
    fit,
    rule_loss,
    task_loss,
)
from .hybrid import HybridBlock, HybridLM
from .mixer import Mixer
from .ssm import DiagonalSSM, Mamba2

__all__ = [
    "ContextGate",
    "DiagonalSSM",
    "DistinctAttention",
    "FullAttention",
    "Gate",
    "GatedDeltaNet",
    "GumbelGate",
    "Heads",
    "HybridBlock",
    "HybridLM",
    "KeyGate",
    "KeyNoveltyGate",
    "Mamba2",
    "MetricGate",
    "Mixer",
    "NoveltyGate",
    "Probe",
    "Reading",
    "SaliencyGate",
    "SignedGate",
    "SlidingWindowAttention",
    "StraightThrough",
    "SurpriseGate",
    "WriteGate",
    "distillation",
    "fit",
    "rule_loss",
    "task_loss",
]
