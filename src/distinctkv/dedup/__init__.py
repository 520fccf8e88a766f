"""Removal of duplicate and near-duplicate records."""

from .deduplicator import Deduplication, Deduplicator, Verdict, deduplicate
from .encoders import NGrams
from .records import RecordError

__all__ = ["Deduplication", "Deduplicator", "NGrams", "RecordError", "Verdict", "deduplicate"]
