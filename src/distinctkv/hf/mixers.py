"""The layers of a `HybridConfig`: each a line of plain JSON, checked before anything is built.

A line is the name of a mixer, or ``{"mixer": name}`` with settings:

- ``mamba2``, ``diagonal`` and ``delta``: what `Mamba2`, `DiagonalSSM` and `GatedDeltaNet` take by
  name, all of it numbers.
- ``full``: ``heads``; ``window``: ``heads`` and ``window``.
- ``distinct``: ``heads``, ``tau``, ``reading``, ``gate``, ``slot_dtype``.

``heads`` (of these last three) and ``reading`` map fields of `Heads` and `Reading` to their values.
``gate`` is true for a `WriteGate`, or ``{"kind": "KeyGate", "hidden": 64}``; ``slot_dtype`` is the
name of a torch type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch

from ..nn import Heads, Reading, WriteGate
from ..nn.gates import Gate, KeyGate, SaliencyGate
from ..nn.hybrid import MIXERS
from ..nn.mixer import Mixer
from ..policy import Concentration

Layer = str | Mapping[str, Any]
GATES: Mapping[str, Callable[..., Gate]] = {  # those that judge a token by what it is
    gate.__name__: gate for gate in (WriteGate, KeyGate, SaliencyGate)
}


def mixer(layer: Layer, width: int) -> Mixer[Any]:
    """The layer that a line of the config describes.

    >>> float(mixer({"mixer": "distinct", "tau": 0.2}, 32).tau)
    0.2
    """
    given: dict[str, Any] = dict(layer) if isinstance(layer, Mapping) else {"mixer": layer}
    name = given.pop("mixer", None)
    if not isinstance(name, str) or name not in MIXERS:
        raise ValueError(f"there is no mixer {name!r}; there are {', '.join(MIXERS)}")
    there = {
        "tau" if setting == "concentration" else setting for setting in _settings(MIXERS[name])
    }
    _known(given, there, name)
    for setting, kind in (("heads", Heads), ("reading", Reading)):
        if setting in given and name != "delta":  # whose heads are a number
            given[setting] = _record(kind, given[setting], setting)
    if "tau" in given:
        given["concentration"] = Concentration.fixed(given.pop("tau"))
    if "slot_dtype" in given:
        given["slot_dtype"] = _dtype(given["slot_dtype"])
    if "gate" in given:
        given["gate"] = gate(given["gate"], width)
    return MIXERS[name](width, **given)


def gate(given: bool | Mapping[str, Any], width: int) -> Gate | None:
    """The write gate that a config asks for.

    >>> type(gate({"kind": "KeyGate", "hidden": 8}, 32)).__name__
    'KeyGate'
    """
    if isinstance(given, bool):
        return WriteGate(width) if given else None
    settings = dict(given) if isinstance(given, Mapping) else {}
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in GATES:
        raise ValueError(
            f'a gate is true, false or {{"kind": name}} with name one of {", ".join(GATES)}, got '
            f"{given!r}; for a gate of your own build a distinctkv.nn.HybridLM"
        )
    _known(settings, _settings(GATES[kind]), kind)
    return GATES[kind](width, **settings)


def _settings(make: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(make).parameters) - {"width"}


def _record(kind: type[Any], given: object, name: str) -> object:
    """A `Heads` or `Reading` from its fields."""
    there = {field.name for field in fields(kind)}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"{name} must map some of {', '.join(sorted(there))} to numbers or words, got {given!r}"
        )
    _known(given, there, name)
    return kind(**given)


def _dtype(given: object) -> torch.dtype | None:
    found = getattr(torch, given, None) if isinstance(given, str) else given
    if not (found is None and given is None) and not isinstance(found, torch.dtype):
        raise ValueError(f"slot_dtype must name a type of torch, as 'bfloat16', got {given!r}")
    return found


def _known(given: Mapping[str, Any], there: set[str], name: str) -> None:
    """Refuse a setting that would otherwise be passed over, or told of by Python alone."""
    if odd := sorted(set(given) - there):
        raise ValueError(
            f"{name} has no setting {odd[0]!r}; it has {', '.join(sorted(there)) or 'none'}"
        )
