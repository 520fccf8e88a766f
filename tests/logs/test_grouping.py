"""Groups: keys that share a template."""

from distinctkv.logs.patterns import Cover
from distinctkv.logs.rendering import Spelling
from distinctkv.logs.templates import Leaf, Template, gather, work_out

NAMES = ("ann", "bob", "cas", "dee", "eve")


def keys_of(*lines):
    return [tuple(line.split()) for line in lines]


def test_patterns_that_share_a_key_make_one_template():
    keys = keys_of("a b x", "a b c", "y b c", "p q r")
    groups = gather(keys, keys_of("a b <*>", "<*> b c"))
    assert [group.keys for group in groups] == [keys[:3], keys[3:]]


def test_the_widest_pattern_comes_first():
    cover = Cover(keys_of("a <*> c", "<*> <*> c", "a b <*>", "a <*> <*>"))
    assert cover.all(("a", "b", "c")) == keys_of("<*> <*> c", "a <*> <*>", "a <*> c", "a b <*>")
    assert cover.first(("a", "b", "c")) == ("<*>", "<*>", "c")
    assert cover.first(("x", "y", "z")) is None


def test_an_empty_line_is_covered_by_nothing():
    assert Cover(keys_of("a b")).all(()) == []
    assert Cover().first(()) is None


def test_what_fits_a_seed_is_kept_out_of_other_groups():
    keys = keys_of(*(f"the user {name} logged in" for name in NAMES))
    seed = keys_of("the user ann logged in")
    _, groups = work_out(keys, seed, 0.3, 3)
    assert [len(group.keys) for group in groups] == [1, 4]


def test_the_narrowest_seed_is_the_one_that_fits():
    seeds = keys_of("open <*> <*>", "open door <*>")
    known, _ = work_out(seeds, seeds, 0.3, 4)
    assert known.pattern(("open", "door", "now")) == ("open", "door", "<*>")


def test_a_template_stands_for_itself_once_all_that_stood_for_it_is_evicted():
    part, whole, heir = (Template(number, ("a",)) for number in range(3))
    for template in (part, heir):
        template.take(Leaf(("a",), Spelling((0,), ("a",), ("", "")), "a", "a", 0))
    whole.stand_for(part)
    heir.inherit(whole)
    assert part.final() is heir
    heir.lose(heir.leaves[0])
    assert part.final() is part
    assert part.into is None
