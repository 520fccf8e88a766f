import numpy as np
import pytest

from reproduction.baselines import H2O, LFU, LRU, TOVA, TTL, KeyDiff, Redundancy, SnapKV
from reproduction.baselines.base import similarity, unit_rows

PEERS = {
    "h2o": lambda: H2O(9, recent=2),
    "snapkv": lambda: SnapKV(9, window=4),
    "tova": lambda: TOVA(9),
    "redundancy": lambda: Redundancy(9),
    "keydiff": lambda: KeyDiff(9),
    "lru": lambda: LRU(9),
    "lfu": lambda: LFU(9),
    "ttl": lambda: TTL(9),
}


@pytest.mark.parametrize("make", PEERS.values(), ids=PEERS)
def test_twins_are_the_same_to_it_wherever_a_chunk_ends(make, rng):
    # Identical keys tie, and a tie must not be settled by the last bit of a sum.
    items = rng.integers(20, size=400)
    keys, values = rng.standard_normal((20, 13))[items], np.arange(400.0)[:, None]
    cuts = np.sort(rng.integers(400, size=30))
    whole, parts = make(), make()
    ids = whole.write(keys, values)
    pieces = zip(np.split(keys, cuts), np.split(values, cuts), strict=True)
    np.testing.assert_array_equal(np.concatenate([parts.write(*p) for p in pieces]), ids)
    np.testing.assert_array_equal(parts.read(keys[:20]), whole.read(keys[:20]))


def test_similarities_do_not_depend_on_the_order_of_addition(rng):
    keys = unit_rows("keys", rng.standard_normal((50, 40)), None)
    shuffled = keys[:, rng.permutation(40)]
    np.testing.assert_array_equal(similarity(keys, keys), similarity(shuffled, shuffled))
