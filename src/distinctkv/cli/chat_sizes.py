"""Sizes of a cache on the command line, refused before torch is imported."""

# The rule is in ``hf.plan``, which comes with torch; the tests hold these ranges to it.

from __future__ import annotations

from math import inf
from typing import NoReturn

import click

WAYS_OUT = {
    "threshold": "to merge nothing say --kept 1",
    "kept": "0.25 holds a quarter, 1 all",
    "budget": "the first 4 tokens and the newest are held besides",
}


class _Told:
    """Says the way out with what is wrong."""

    def fail(
        self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None
    ) -> NoReturn:
        way_out = WAYS_OUT[param.name] if param is not None and param.name else "see --help"
        raise click.BadParameter(f"{message.rstrip('.')}; {way_out}", ctx=ctx, param=param)


class _Real(_Told, click.FloatRange):
    pass


class _Whole(_Told, click.IntRange):
    pass


THRESHOLD = _Real(0, inf, max_open=True)
KEPT = _Real(0, 1, min_open=True)
BUDGET = _Whole(37)
