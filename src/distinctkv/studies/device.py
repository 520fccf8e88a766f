"""Where studies that train run: on the graphics card if there is one, else on the processor."""

from __future__ import annotations

from importlib.util import find_spec


def device() -> str:
    """``cuda``, ``cpu``, or ``absent`` without torch; it stands among a study's settings."""
    if find_spec("torch") is None:
        return "absent"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
