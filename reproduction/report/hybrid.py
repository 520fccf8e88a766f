"""The figures of study ``hybrid``."""

from __future__ import annotations

from matplotlib.axes import Axes

from ..result import Result, Row
from . import svg
from .dots import recalls
from .picture import Picture
from .words import number, spread


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall and count of the models; then what the state-space model has learned."""
    models, controls = result.tables["models"], result.tables["controls"]
    told = "; ".join(
        f"{row.label}: recall {spread(row.measures['recall'])}, R² {spread(row.measures['R²'])}, "
        f"{number(row.measures['bytes'].mean)} bytes"
        for row in models
    )
    learned = "; ".join(f"{row.label}: {spread(row.measures['recall'])}" for row in controls)
    return (
        Picture(
            "hybrid-recall",
            "Recall (dots) and R² of the count (diamonds) of models that must do both, with the "
            "bytes they hold. Rings: the paper's recall. Squares: rivals that it does not have.",
            f"Recall and R² for each model. {told}.",
            lambda axes: both(axes, result, models),
            (7.6, 3.8),
            "Recall and a running count together",
        ),
        Picture(
            "hybrid-controls",
            "Recall of the state-space model alone, beside that of a guess. Line: chance.",
            f"Recall of the controls. {learned}.",
            lambda axes: learned_of_recall(axes, result, controls),
            (7.6, 2.6),
            "What a state-space model alone learns of recall",
        ),
    )


def both(axes: Axes, result: Result, rows: tuple[Row, ...]) -> None:
    """A dot for recall and a diamond for the count."""
    recalls(axes, result, rows)
    for place, row in enumerate(rows[::-1]):
        told = row.measures["R²"].mean
        axes.plot(told, place, "D", ms=5, mfc="none", mec=svg.COLOURS["ink"], zorder=5)
    axes.set_xlabel("recall, R²")


def learned_of_recall(axes: Axes, result: Result, rows: tuple[Row, ...]) -> None:
    """Near chance, so from 0 to .3."""
    recalls(axes, result, rows)
    axes.axvline(1 / int(result.settings["n_classes"]), color=svg.COLOURS["muted"], linewidth=1)
    axes.set_xlim(0, 0.3)
    axes.set_xticks([0, 0.1, 0.2, 0.3])
