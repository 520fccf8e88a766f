"""Old name of a module; goes when the studies are merged."""

from ..claims import *  # noqa: F403
