"""Records that are out of the ordinary."""

from .detector import Known, NoveltyDetector, Sighting

__all__ = ["Known", "NoveltyDetector", "Sighting"]
