import re
from pathlib import Path

import numpy as np
import pytest

from reproduction import baselines as peers
from reproduction.baselines import table

PAGE = Path(__file__).parents[2] / "docs" / "look-up" / "peers.md"
L, D, C = 90, 8, 3

# What the letters and settings of a formula are worth in the memory beside it.
FORMULAS = {
    "Attention": (lambda: peers.Attention(), {}),
    "KNN": (lambda: peers.KNN(), {}),
    "Superposition": (lambda: peers.Superposition(), {}),
    "Recency": (lambda: peers.Recency(7), {"B": 7}),
    "H2O": (lambda: peers.H2O(7), {"B": 7}),
    "Sinks": (lambda: peers.Sinks(7), {"B": 7}),
    "SnapKV": (lambda: peers.SnapKV(7, window=5), {"B": 7, "window": 5}),
    "SnapKVOnce": (lambda: peers.SnapKVOnce(7, window=5), {}),
    "TOVA": (lambda: peers.TOVA(7), {"B": 7}),
    "Redundancy": (lambda: peers.Redundancy(7), {"B": 7}),
    "KeyDiff": (lambda: peers.KeyDiff(7), {"B": 7}),
    "Landmark": (lambda: peers.Landmark(block=4), {"block": 4}),
    "TTL": (lambda: peers.TTL(idle=5, tau=1e-6), {"S": 6}),
    "KMeans": (lambda: peers.KMeans(7), {"S": L}),
    "Routing": (lambda: peers.Routing(groups=4), {"groups": 4}),
    "Reformer": (lambda: peers.Reformer(buckets=6, rounds=3), {"buckets": 6, "rounds": 3}),
    "NEC": (lambda: peers.NEC(7), {"S": 7}),
    "Memorizing": (lambda: peers.Memorizing(7), {"B": 7}),
    "EMLLM": (
        lambda: peers.EMLLM(gamma=-100.0, representatives=2),
        {"E": L // 2 - 1, "representatives": 2, "window": 16},
    ),
    "Hopfield": (lambda: peers.Hopfield(), {}),
    "KVM": (lambda: peers.KVM(factor=4), {"S": 35, "chunk": 16}),
    "OVQ": (lambda: peers.OVQ(limit=10), {"S": 8, "chunk": 16}),
    "SubGen": (lambda: peers.SubGen(delta=1e-3, samples=2), {"G": L, "samples": 2}),
    "HAM": (lambda: peers.HAM(error=1e-6), {"n": L}),
}


def test_the_page_is_what_the_code_says():
    written = PAGE.read_text(encoding="utf-8")
    assert written == table.markdown(), (
        "python -m reproduction.baselines.table > docs/look-up/peers.md"
    )


def test_every_peer_has_a_row():
    page = table.markdown()
    assert all(f"| `{name}` |" in page for name in peers.__all__)


def test_reasons_name_peers_that_exist():
    named = {name for _, reason in table.ABSENT for name in re.findall(r"`(\w+)`", reason)}
    assert named <= set(peers.__all__)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_gives_the_bytes(name, rng):
    make, letters = FORMULAS[name]
    memory = make()
    memory.write(rng.standard_normal((L, D)), np.ones((L, C)))
    product = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", getattr(peers, name).card.size)
    assert memory.nbytes == eval(product, {"L": L, "D": D, "C": C, **letters})
