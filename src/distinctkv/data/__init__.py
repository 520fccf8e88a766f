"""Streams to measure memories on."""

from .synthetic import Episode, RecallTask

__all__ = ["Episode", "RecallTask"]
