"""The recipe for live streams runs, and its merged cache is that of one pass."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from distinctkv import Cache, Concentration

EXAMPLE = Path(__file__).parents[2] / "examples" / "live.py"
WITHOUT_BYTEWAX = "import runpy, sys; sys.modules['bytewax'] = None; runpy.run_path(sys.argv[1])"
with_bytewax = pytest.mark.skipif(sys.version_info >= (3, 13), reason="Bytewax is not made for it")


def told(*given):
    answer = subprocess.run([sys.executable, *given], capture_output=True, text=True, check=False)
    return answer.returncode, answer.stderr


@with_bytewax
@pytest.mark.parametrize("given", [(), ("events.jsonl",), ("gone.jsonl", "out")])
def test_what_is_not_named_or_not_there_is_told_in_one_line(given):
    said = "name a file of events and a folder: live.py events.jsonl out/\n"
    assert told(EXAMPLE, *given) == (1, said)


def test_without_bytewax_it_says_so_in_one_line():
    said = "this example needs Bytewax: pip install bytewax\n"
    assert told("-c", WITHOUT_BYTEWAX, EXAMPLE) == (1, said)


@with_bytewax
def test_a_live_stream_tells_what_is_new_and_its_shards_merge(tokens, tmp_path):
    from bytewax import testing

    spec = importlib.util.spec_from_file_location("live", EXAMPLE)
    live = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(live)
    keys, items = tokens[0][:600], tokens[1][:600]
    events = [
        json.dumps({"source": f"item {item}", "key": key.tolist()})
        for key, item in zip(keys, items, strict=True)
    ]
    lines = []
    source, sink = testing.TestingSource(events), testing.TestingSink(lines)
    testing.cluster_main(live.flow(source, sink, tmp_path), [], 0, worker_count_per_proc=2)
    whole = Cache(Concentration.fixed(0.3))
    whole.write(keys)
    assert sorted(lines) == sorted({f"new: item {item}" for item in items})
    cache = live.merged(tmp_path)
    assert len(cache) == len(whole) == len(np.unique(items))
    assert cache.slots.count.sum() == len(keys)
