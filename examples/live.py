"""Tell what is new in a live stream: Bytewax feeds a cache per shard, and the caches are merged.

The source here is a file of JSON lines. For Kafka, or what speaks its protocol, put
``bytewax.connectors.kafka.KafkaSource(brokers, topics)`` in its place. Each cache is saved after
every batch, so what was learned outlives the flow: ``python examples/live.py events.jsonl out/``.
"""

import json
import sys
import zlib
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
import numpy as np
from bytewax.connectors.files import FileSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import Source
from bytewax.outputs import Sink
from bytewax.testing import cluster_main

from distinctkv import Cache, Concentration
from distinctkv.scale import files

N_SHARDS, BATCH, WAIT = 2, 64, timedelta(seconds=1)


def by_shard(line: str) -> tuple[str, dict]:
    """An event under the shard of its source."""
    event = json.loads(line)
    return str(zlib.crc32(event["source"].encode()) % N_SHARDS), event


def flow(source: Source, sink: Sink, folder: Path) -> Dataflow:
    """Events into caches in batches; out comes what opened a slot."""

    def learn(cache: Cache | None, batch: list[dict]) -> tuple[Cache, list[str]]:
        cache = cache or Cache(Concentration.fixed(0.3))
        seen, born = cache.seen, cache.born
        cache.write(np.array([event["key"] for event in batch]))
        cache.save(folder / f"{by_shard(json.dumps(batch[0]))[0]}.cache")
        slots = cache.slots
        first = slots.first_seen[slots.ids >= born] - seen
        return cache, [f"new: {batch[row]['source']}" for row in first]

    made = Dataflow("live")
    events = op.map("shard", op.input("in", made, source), by_shard)
    learned = op.stateful_map("learn", op.collect("batch", events, WAIT, BATCH), learn)
    op.output("out", op.flat_map("each", op.key_rm("tell", learned), list), sink)
    return made


def merged(folder: Path) -> Cache:
    """What all shards have learned."""
    cache, *others = (Cache.load(path) for path in files(folder))
    for other in others:
        cache.absorb(other)
    return cache


if __name__ == "__main__":
    events, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    cluster_main(flow(FileSource(events), StdOutSink(), folder), [], 0, worker_count_per_proc=2)
    print(merged(folder))
