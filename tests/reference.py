"""The rule run beside a cache, and the comparison of the two, bit for bit."""

from itertools import pairwise

import numpy as np

from distinctkv import Rule
from distinctkv.rule import unit


def follow(cache, keys, values=None):
    """A `Rule` with the cache's policies after the same tokens, and the ids it gave them."""
    rule = Rule(cache.concentration, cache.merge, cache.metric)
    rows = unit(keys) if cache.metric == "cosine" else np.array(keys, float)
    rows = rows.astype(np.float32) + np.float32(0)
    values = [None] * len(rows) if values is None else values
    return rule, [rule.write(row, value) for row, value in zip(rows, values, strict=True)]


def write_cut(cache, keys, values, places):
    """Write in chunks cut at these places; the ids of all tokens."""
    bounds = [0, *places, len(keys)]
    parts = pairwise(bounds)
    return np.concatenate(
        [cache.write(keys[a:b], None if values is None else values[a:b]) for a, b in parts]
    )


def payload(slot, policy, classes):
    """A slot's value as `Cache.slots` shows it."""
    if policy == "mean":
        return slot.value / slot.count
    if policy == "counts":
        return np.array([slot.value.get(label, 0) for label in classes])
    if isinstance(slot.value, np.ndarray):
        return slot.value.astype(np.float32)
    return slot.value


def assert_same(cache, rule, values=True):
    """Everything the two remember is equal, to the last bit."""
    table = cache.slots
    assert table.ids.tolist() == [slot.id for slot in rule.slots]
    assert np.array_equal(table.keys, rule.keys)
    assert np.array_equal(
        table.usage, np.array([slot.usage for slot in rule.slots]) / rule.use_weight
    )
    for name in ("count", "first_seen", "last_seen"):
        assert getattr(table, name).tolist() == [getattr(slot, name) for slot in rule.slots]
    assert cache.temperature == rule.temperature
    assert cache.budget == rule.budget
    if values:
        want = [payload(slot, cache.merge.value, cache.classes) for slot in rule.slots]
        assert np.array_equal(table.values, np.array(want))


def state(cache):
    """All of a cache's state, to compare before and after."""
    table = cache.slots
    arrays = [getattr(table, name) for name in type(table).__slots__]
    frozen = [None if array is None else array.tobytes() for array in arrays]
    return (
        frozen,
        cache.temperature,
        cache.seen,
        cache.skipped,
        cache.classes.tolist(),
        repr(cache),
    )
