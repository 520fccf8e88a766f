"""The figure of study ``five_models``."""

from __future__ import annotations

from ..result import Result
from .dots import recalls
from .picture import Picture
from .words import number, spread


def pictures(result: Result) -> tuple[Picture, ...]:
    """Recall of each model, and the bytes it holds."""
    told = "; ".join(
        f"{row.label}: {spread(row.measures['recall'])}, "
        f"{number(row.measures['bytes'].mean)} bytes, "
        f"{row.measures['parameters'].mean:,.0f} parameters"
        for row in result.rows
    )
    return (
        Picture(
            "five_models-recall",
            "Recall of models trained end to end, with the bytes that a stream of 512 tokens "
            "leaves in each. Rings: the paper's numbers. Squares: rivals that it does not have.",
            f"Recall and bytes of each model. {told}.",
            lambda axes: recalls(axes, result, result.rows),
            (7.6, 4.1),
            "Recall of models trained end to end",
        ),
    )
