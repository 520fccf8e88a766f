"""Print what is new in a live stream: ``python examples/live.py events.jsonl out/``.

An event is a line such as ``{"source": "door 7", "key": [0.2, 0.9, 0.1]}``. Bytewax (``pip install
bytewax``, up to Python 3.12) feeds a cache for each shard, which is saved after every batch; the
caches are merged. For Kafka, put ``bytewax.connectors.kafka.KafkaSource(brokers, topics)`` in place
of the file. Six events of three doors give:

    new: door 0
    new: door 1
    new: door 2
    Cache(tau=0.3, 3 slots for 6 tokens, 156 bytes, cosine, first key, first value, blocked engine)
"""

import json
import sys
import zlib
from datetime import timedelta
from pathlib import Path

import numpy as np

try:
    import bytewax.operators as op
    from bytewax.connectors.files import FileSource
    from bytewax.connectors.stdio import StdOutSink
    from bytewax.dataflow import Dataflow
    from bytewax.testing import cluster_main
except ImportError:
    raise SystemExit("this example needs Bytewax: pip install bytewax") from None

from distinctkv import Cache, Concentration


def by_shard(line: str) -> tuple[str, dict]:
    """An event under the shard of its source."""
    event = json.loads(line)
    return str(zlib.crc32(event["source"].encode()) % 2), event


def flow(source: op.Source, sink: op.Sink, folder: Path) -> Dataflow:
    """Events into caches in batches; out comes what opened a slot."""

    def learn(cache: Cache | None, batch: list[dict]) -> tuple[Cache, list[str]]:
        cache = cache or Cache(Concentration.fixed(0.3))
        seen, next_id = cache.seen, cache.n_opened
        cache.write(np.array([event["key"] for event in batch]))
        cache.save(folder / f"{by_shard(json.dumps(batch[0]))[0]}.cache")
        first = cache.slots.first_seen[cache.slots.ids >= next_id] - seen
        return cache, [f"new: {batch[row]['source']}" for row in first]

    made = Dataflow("live")
    events = op.map("shard", op.input("in", made, source), by_shard)  # two shards, by source
    batches = op.collect("batch", events, timedelta(seconds=1), 64)
    learned = op.stateful_map("learn", batches, learn)
    op.output("out", op.flat_map("each", op.key_rm("tell", learned), list), sink)
    return made


def merged(folder: Path) -> Cache:
    """What all shards have learned."""
    cache, *others = map(Cache.load, sorted(folder.glob("*.cache")))
    for other in others:
        cache.absorb(other)
    return cache


if __name__ == "__main__":
    if len(sys.argv) != 3 or not Path(sys.argv[1]).is_file():
        raise SystemExit("name a file of events and a folder: live.py events.jsonl out/")
    events, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    cluster_main(flow(FileSource(events), StdOutSink(), folder), [], 0, worker_count_per_proc=2)
    print(merged(folder))
