"""The rivals of the cache, each a memory, each with its source and its best setting."""

from .attention import Attention
from .h2o import H2O
from .knn import KNN
from .recency import Recency
from .superposition import Superposition

__all__ = ["H2O", "KNN", "Attention", "Recency", "Superposition"]
