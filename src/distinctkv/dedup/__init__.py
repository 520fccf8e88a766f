"""Records without their near-repeats."""

from .batch import Deduplication, deduplicate
from .deduplicator import Deduplicator
from .encoding import NGrams
from .records import RecordError
from .verdict import Verdict

__all__ = ["Deduplication", "Deduplicator", "NGrams", "RecordError", "Verdict", "deduplicate"]
