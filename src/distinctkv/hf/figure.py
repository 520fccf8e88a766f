"""What a cache holds, as a picture."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..extras import install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .summary import Summary

BLUE, GREY = "#2a6fbb", "#c9ced6"


def draw(summary: Summary) -> Figure:
    """The share of tokens that each head of each layer holds, and the bytes of the whole cache."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"a figure needs matplotlib: {install('report')}") from error

    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    heads, layers, size = figure.subplots(
        1, 3, width_ratios=(2.2, 2.2, 1.0), gridspec_kw={"wspace": 0.08}
    )
    share = (summary.slots + summary.outside) / max(summary.tokens, 1)
    image = heads.imshow(share, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    heads.set(title="held by each head", xlabel="key-value head", ylabel="layer")
    heads.set_xticks(_ticks(share.shape[1]))
    heads.set_yticks(_ticks(share.shape[0]))
    figure.colorbar(image, ax=heads, format=lambda part, _: f"{part:.0%}", label="of the tokens")

    places = np.arange(len(share))
    held = summary.slots + summary.outside
    layers.barh(places, held.mean(1), color=BLUE)
    spread = np.abs(np.stack((held.min(1), held.max(1))) - held.mean(1))
    layers.errorbar(held.mean(1), places, xerr=spread, fmt="none", ecolor="black", lw=0.7)
    layers.set(title="held by each layer", xlabel="slots and tokens, least to most")
    layers.set_ylim(len(share) - 0.5, -0.5)
    layers.set_yticks(_ticks(len(share)))
    layers.axvline(summary.tokens, color=GREY)

    full, now = summary.full / 1e6, summary.bytes / 1e6
    size.bar(["full", "held"], [full, now], color=[GREY, BLUE])
    for place, number in enumerate((full, now)):
        size.text(place, number, f"{number:,.3g}", ha="center", va="bottom")
    size.set(title="MB")
    size.margins(y=0.1)
    for axes in (layers, size):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{summary.tokens:,} tokens, {summary.kept:.0%} kept")
    return figure


def save(summary: Summary, path: str | os.PathLike[str]) -> None:
    """Write the picture; the name says in which format."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}", os.fspath(path))
    draw(summary).savefig(path, dpi=150)


def _ticks(n: int) -> list[int]:
    """At most about ten whole numbers."""
    return list(range(0, n, max(1, -(-n // 10))))
