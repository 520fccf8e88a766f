"""The variants of ours that are tried; the first is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distinctkv.hf import Care

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "ours, importance .25": {"care": Care(importance=0.25)},
    "ours, importance .5": {"care": Care(importance=0.5)},
    "ours, importance 1": {"care": Care(importance=1.0)},
    "ours, spare .05": {"care": Care(spare=0.05)},
    "ours, cap 4": {"care": Care(cap=4)},
    "ours, importance .5, cap 4": {"care": Care(importance=0.5, cap=4)},
}
