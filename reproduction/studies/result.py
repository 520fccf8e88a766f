"""Old name of a module; goes when the studies are merged."""

from ..result import *  # noqa: F403
