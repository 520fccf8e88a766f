"""Nearest templates, and templates that others stand for."""

from hypothesis import given
from hypothesis import strategies as st

from distinctkv.logs.patterns import novelty
from distinctkv.logs.rendering import Rendering
from distinctkv.logs.templates import FEW_KEYS, NearestKeys, Template, Variant

token = st.sampled_from(["<*>", *"abcd"])
key = st.tuples(token, token, token, token)
changes = st.lists(st.tuples(st.integers(0, 2 * FEW_KEYS), st.none() | key), max_size=150)


@given(changes, key)
def test_the_nearest_of_all_keys_is_found(changes, asked):
    nearest, keys = NearestKeys(4), {}
    for number, one in changes:
        if one is not None:
            nearest.put(number, one)
            keys[number] = one
        elif number in keys:
            nearest.remove(number)
            del keys[number]
        expected = min((novelty(asked, one) for one in keys.values()), default=1.0)
        assert asked in keys.values() or nearest.novelty(asked) == expected


def test_a_template_stands_for_itself_again_when_the_subsuming_one_is_evicted():
    part, whole, successor = (Template(number, ("a",)) for number in range(3))
    for template in (part, successor):
        template.add(Variant(("a",), Rendering((0,), ("a",), ("", "")), "a", "a", 0))
    whole.subsume(part)
    successor.replace(whole)
    assert part.root() is successor
    successor.remove(successor.variants[0])
    assert part.root() is part
    assert part.parent is None
