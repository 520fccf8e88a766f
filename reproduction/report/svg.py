"""Matplotlib figures as SVG text: inline, where the page colours them, or as a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Each role has one colour here; on the page it is a CSS variable of that name, light or dark.
COLOURS = {
    "ink": "#1f2328",
    "muted": "#66707c",
    "grid": "#e2e5e9",
    "paper": "#35608f",
    "added": "#7b61a8",
    "cache": "#c2410c",
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "distinctkv",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.labelcolor": COLOURS["ink"],
    "ytick.labelcolor": COLOURS["ink"],
    "grid.color": COLOURS["grid"],
}
Painter = Callable[[Axes], None]


def standalone(paint: Painter, size: tuple[float, float]) -> str:
    """An SVG file on white, so that it reads on any page."""
    return _draw(paint, size, "#ffffff")


def inline(paint: Painter, size: tuple[float, float], name: str) -> str:
    """An ``<svg>`` element without a background; ``name`` keeps its ids apart from others'."""
    text = _draw(paint, size, "none")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    # The page sets the width; the view box keeps the shape.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    for role, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{role})")
    return text


def _draw(paint: Painter, size: tuple[float, float], background: str) -> str:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained", facecolor=background)
        axes = figure.subplots()
        axes.set_facecolor("none")
        paint(axes)
        out = StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()
