"""Old name of a module; goes when the studies are merged."""

from .runner import Outcome as Told
from .runner import device, n_seeds
from .runner import run_training as result_of

__all__ = ["Told", "device", "n_seeds", "result_of"]
