"""Templates that others stand for."""

from distinctkv.logs.rendering import Rendering
from distinctkv.logs.templates import Template, Variant


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
