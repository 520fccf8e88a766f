"""Removal of duplicate and near-duplicate records."""

from .deduplicator import Deduplication, Deduplicator, deduplicate
from .encoders import NGrams
from .records import RecordError
from .verdict import Verdict

__all__ = ["Deduplication", "Deduplicator", "NGrams", "RecordError", "Verdict", "deduplicate"]
