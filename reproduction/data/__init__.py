"""Streams to measure memories on."""

from .events import Events, windows
from .phases import PhasedTask
from .places import DataDamaged, DataMissing
from .processes import restaurant, zipf
from .synthetic import Episode, RecallTask

__all__ = [
    "DataDamaged",
    "DataMissing",
    "Episode",
    "Events",
    "PhasedTask",
    "RecallTask",
    "restaurant",
    "windows",
    "zipf",
]
