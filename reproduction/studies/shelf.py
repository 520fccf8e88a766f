"""Old name of a module; goes when the studies are merged."""

from .runner import finish as conclude
from .runner import mark_unmeasured as unmeasured

__all__ = ["conclude", "unmeasured"]
