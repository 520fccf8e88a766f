"""``distinctkv info``: what a snapshot holds."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import click

from . import kinds
from .io import file_errors, standard_output, valid, visible

FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
SHOWN = 5  # of the most frequent things
LONG = 200  # characters of each


@click.command("info", short_help="Say what a snapshot holds.")
@click.argument("file", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--tensors", "every", is_flag=True, help="Every tensor too, with type and shape.")
def command(file: Path, as_json: bool, every: bool) -> None:
    """Say what a snapshot holds: a cache, a log parser, a saved talk, ...

    The whole file is checked; one that is damaged, or no snapshot, is refused.
    """
    with file_errors():
        kind, version = kinds.kind_of(file)
        held = kinds.load(file, kind)
    found: dict[str, Any] = {
        "file": str(file),
        "kind": kind,
        "format": version,
        "bytes": file.stat().st_size,
    }
    tell = {
        "cache": _cache,
        kinds.PARSER: _parser,
        kinds.SEEN: _seen,
        kinds.DETECTOR: _detector,
        kinds.TALK: _talk,
    }
    found |= tell.get(kind, _other)(held)
    tensors = kinds.tensors(file)
    found["tensors"] = tensors if every else len(tensors)
    with standard_output():
        if as_json:
            click.echo(json.dumps(found, default=str))
        else:
            _print(found)


def _cache(cache: Any) -> dict[str, Any]:  # noqa: ANN401
    policy, table = cache.concentration, cache.slots
    most = sorted(zip(table.count, table.ids, strict=True), key=lambda one: (-one[0], one[1]))
    return {
        "slots": len(cache),
        "ever opened": cache.born,
        "rows seen": cache.seen,
        "rows skipped": cache.skipped,
        "key size": cache.width,
        "metric": cache.metric,
        "tau": policy.tau,
        "budget": _limit(policy.base),
        "temperature": cache.temperature,
        "merge": f"{cache.merge.key} key, {cache.merge.value} value",
        "values": None if table.values is None else f"{table.values.dtype} {table.values.shape}",
        "in memory": cache.nbytes,
        "most used": [{"slot": int(slot), "count": int(count)} for count, slot in most[:SHOWN]],
    }


def _parser(parser: Any) -> dict[str, Any]:  # noqa: ANN401
    most = sorted(parser.templates(), key=lambda one: (-one.count, one.id))[:SHOWN]
    return {
        "templates": len(parser),
        "lines": parser.seen,
        "leaves": parser.n_leaves,
        "tau": parser.concentration.tau,
        "budget": _limit(parser.concentration.base),
        "lines forgotten": parser.forgotten,
        "most frequent": [{"count": one.count, "template": one.template[:LONG]} for one in most],
    }


def _seen(seen: Any) -> dict[str, Any]:  # noqa: ANN401
    pairs = zip(seen.counts, seen.numbers, seen.kept, strict=True)
    most = sorted(pairs, key=lambda one: (-one[0], one[1]))[:SHOWN]
    return {
        "kept": len(seen),
        "records": seen.seen,
        "bad records": seen.skipped,
        "similarity": seen.similarity,
        "budget": _limit(seen.budget),
        **seen.setting,
        "in memory": seen.nbytes,
        "most repeated": [
            {"count": count, "record": number + 1, "text": _text(record)}
            for count, number, record in most
        ],
    }


def _detector(detector: Any) -> dict[str, Any]:  # noqa: ANN401
    most = sorted(detector.known.values(), key=lambda one: -one.count)[:SHOWN]
    return {
        "known things": len(detector),
        "records": detector.seen,
        "similarity": round(detector.similarity, 9),
        "threshold": _limit(detector.threshold),
        "most frequent": [
            {"count": one.count, "last seen": one.last_seen, "text": _text(one.record)}
            for one in most
        ],
    }


def _talk(held: Any) -> dict[str, Any]:  # noqa: ANN401
    """Numbers of a cache of a language model, which need neither the model nor torch."""
    tensors, state = held
    model, plan, seen = state["model"], state["plan"], state["seen"]
    lengths = [array for name, array in tensors.items() if name.endswith(".slots.lengths")]
    heads = model["layers"] * model["kv_heads"]
    slots = float(sum(array.sum(1).mean() for array in lengths)) / heads
    outside = tensors["0.keys"].shape[2] if "0.keys" in tensors else 0
    care = [f"{name}={value}" for name, value in plan["care"].items() if value]
    return {
        "model": {name: one for name, one in model.items() if isinstance(one, str | int)},
        "streams": len(state["thresholds"]),
        "tokens seen": seen,
        "slots": int(sum(array.sum() for array in lengths)),
        "slots of a head": round(slots, 1),
        "tokens outside": outside,
        "part held": round((slots + outside) / seen, 4) if seen else None,
        **{name: plan[name] for name in ("threshold", "kept", "budget", "surprise")},
        "thresholds found": None if plan["threshold"] is not None else state["thresholds"],
        "sinks": plan["sinks"],
        "recent": _recent(plan),
        "care": ", ".join(care) or "none",
    }


def _recent(plan: dict[str, Any]) -> int | str:
    """Newest tokens that wait; where a size says how many, at most 32."""
    if plan["recent"] is not None:
        return int(plan["recent"])
    return 32 if plan["kept"] is None and plan["budget"] is None else "32 or fewer"


def _other(held: Any) -> dict[str, Any]:  # noqa: ANN401
    state = sorted(held[1].items())
    return {
        "state": {name: v if isinstance(v, int | float) else str(v)[:LONG] for name, v in state}
    }


def _limit(number: float) -> float | None:
    return None if number == inf else number


def _text(record: Any) -> str | None:  # noqa: ANN401
    if isinstance(record, dict):
        record = json.dumps(record, ensure_ascii=False)
    return valid(record[:LONG]) if isinstance(record, str) else None


def _print(found: dict[str, Any]) -> None:
    for name, value in found.items():
        if isinstance(value, list | dict) and value:
            click.echo(f"{name}:")
            rows = value.items() if isinstance(value, dict) else enumerate(value)
            for label, row in rows:
                cells = row.values() if isinstance(row, dict) else (label, row)
                told = "  ".join(_cell(cell) for cell in cells if cell is not None)
                click.echo(f"  {visible(told)}")
        elif value not in (None, [], {}):
            click.echo(f"{name}: {visible(_cell(value))}")


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
