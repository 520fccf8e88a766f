"""Records that are out of the ordinary."""

from .detector import NoveltyDetector
from .things import Known, Sighting

__all__ = ["Known", "NoveltyDetector", "Sighting"]
