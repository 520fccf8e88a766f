"""Removal of duplicate and near-duplicate records."""

from .deduplicator import Decision, Deduplication, Deduplicator, deduplicate
from .encoders import NGrams
from .records import RecordError

__all__ = ["Decision", "Deduplication", "Deduplicator", "NGrams", "RecordError", "deduplicate"]
