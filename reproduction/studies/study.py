"""Old name of a module; goes when the studies are merged."""

from . import Progress
from .runner import FULL, QUICK, Scale, absent, silent, sources

__all__ = ["FULL", "QUICK", "Progress", "Scale", "absent", "silent", "sources"]
