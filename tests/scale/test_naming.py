"""Parts are named after all that made them: what differs never shares a name."""

import re
import subprocess
import sys
from collections import namedtuple
from datetime import date
from functools import cache, partial
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest

from distinctkv import Cache, Concentration
from distinctkv.scale.naming import (
    UnnameableError,
    fingerprint,
    fingerprint_maker,
    fingerprint_shard,
)

Pair = namedtuple("Pair", "left right")


def alike(*things):
    """Whether any two of these have the same name."""
    return len({fingerprint(thing) for thing in things}) < len(things)


def compiled(source, **names):
    """The function that a source defines, as if it stood in a module of its own."""
    exec(source, names)
    return names["feed"]


@pytest.mark.parametrize("wrap", [tuple, list, lambda two: {"keys": two[0], "values": two[1]}])
def test_long_arrays_in_a_shard_are_told_apart_to_the_last_number(rng, wrap):
    keys, values = rng.standard_normal((2000, 16)), np.arange(2000)
    other = keys.copy()
    other[1000, 7] += 1e-9
    assert not alike(wrap([keys, values]), wrap([other, values]))
    assert fingerprint(wrap([keys, values])) == fingerprint(wrap([keys.copy(), values.copy()]))


def test_plain_values_are_told_apart_by_kind_and_by_where_they_stand():
    assert not alike(1, 1.0, True, 1j, "1", b"1", None, ..., 0.0, -0.0, np.int64(1), np.str_("1"))
    assert not alike(["ab", "c"], ["a", "bc"], ["abc"], ("ab", "c"), {"ab": "c"}, Pair("ab", "c"))
    assert not alike([], (), {}, set(), frozenset(), "", b"", [[]], [()], [None])
    assert fingerprint({"a", "b", "c"}) == fingerprint({"c", "b", "a"})


def test_arrays_are_told_apart_by_type_shape_mask_and_what_they_point_to():
    flat = np.arange(6)
    objects = np.array(["x" * 400, "y"], object), np.array(["x" * 400, "z"], object)
    fields = np.zeros(2, [("a", "i4"), ("b", "i4")]), np.zeros(2, [("a", "i4"), ("c", "i4")])
    masked = np.ma.array(flat, mask=flat == 3), np.ma.array(flat, mask=flat == 4)
    assert not alike(flat, flat.astype(float), flat.reshape(2, 3), *objects, *fields, *masked)
    assert fingerprint(objects[0]) == fingerprint(objects[0].copy())
    assert fingerprint(flat.reshape(2, 3).T) == fingerprint(flat.reshape(2, 3).T.copy())


@pytest.mark.parametrize("wrap", [str, lambda path: (str(path), 1), lambda path: [path]])
def test_a_file_that_changes_is_another_shard_also_inside_a_tuple(tmp_path, wrap):
    (tmp_path / "a.npy").write_bytes(b"before")
    before = fingerprint_shard(wrap(tmp_path / "a.npy"))
    assert fingerprint_shard(wrap(tmp_path / "a.npy")) == before
    (tmp_path / "a.npy").write_bytes(b"and after")
    assert fingerprint_shard(wrap(tmp_path / "a.npy")) != before


def test_a_folder_changes_with_a_file_in_it(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"before")
    before = fingerprint_shard(tmp_path)
    (tmp_path / "deep" / "a").write_bytes(b"and after")
    assert fingerprint_shard(tmp_path) != before


def test_lines_are_text_even_where_they_look_like_places():
    odd = ["http://nowhere.invalid/x", "nul \0", "x" * 10_000, "two\nlines", "/"]
    assert fingerprint_shard(odd) == fingerprint_shard(list(odd))


@pytest.mark.parametrize("thing", [object(), date(2020, 1, 1), [object()], itemgetter(1)])
def test_what_has_no_exact_name_is_refused(thing):
    with pytest.raises(UnnameableError, match=r"a (date|object|itemgetter) cannot"):
        fingerprint(thing)


EDITS = {
    "another function is called": ["np.abs(shard)", "np.sign(shard)"],
    "a constant": ["shard * 2", "shard * 3"],
    "an inner function": ["[*map(lambda row: abs(row), shard)]", "[*map(lambda row: -row, shard)]"],
    "what it catches": ["shard[[i for i in range(9)]]", "shard[[i for i in range(8)]]"],
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_feed_has_another_name(edit):
    source = "def feed(part, shard):\n    part.write({})"
    assert not alike(*(compiled(source.format(body), np=np) for body in edit))


def test_what_a_feed_holds_and_reads_is_part_of_its_name():
    def closing(scale):
        return lambda part, shard: part.write(shard * scale)

    def given(part, shard, scale=2, *, shift=0):
        part.write(shard * scale + shift)

    helped = "def help(x): return x {} 1\ndef feed(part, shard): part.write(help(shard) * SIZE)"
    feeds = [compiled(helped.format(sign), SIZE=size) for sign in "+-" for size in (1, 2)]
    bound = [partial(given, scale=np.full(2000, size)) for size in (1, 2)]
    assert not alike(closing(2), closing(3), given, *bound, *feeds)
    assert fingerprint(closing(2)) == fingerprint(closing(2))


def test_a_feed_may_be_an_object_a_method_or_call_itself():
    class Feed:
        def __init__(self, size):
            self.size = size

        def __call__(self, part, shard):
            part.write(shard * self.size)

        def twice(self, part, shard):
            self(part, shard)

    def again(part, shard):
        return again(part, shard)

    assert not alike(Feed(1), Feed(2), Feed(1).twice, Feed(2).twice, again, len, max)
    assert fingerprint(Feed(1).twice) == fingerprint(Feed(1).twice)


def test_a_feed_may_be_wrapped_or_the_method_of_a_builtin():
    feeds = [compiled(f"def feed(part, shard): part.write(shard * {n})") for n in (1, 2)]
    methods = [re.compile(pattern).match for pattern in "ab"]
    assert not alike(*map(cache, feeds), *methods, ",".join, ";".join)
    assert fingerprint(cache(feeds[0])) == fingerprint(cache(feeds[0]))


def test_a_feed_has_the_same_name_in_every_process():
    source = (
        "from distinctkv.scale.naming import fingerprint\n"
        "import numpy as np\n"
        "def feed(part, shard):\n"
        "    kept = {x for x in map(lambda r: r, shard) if x in {'a', 'b', 'c'}}\n"
        "    part.write(np.array([*kept]))\n"
        "print(fingerprint(feed))"
    )
    runs = [
        subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    assert len({run.stdout for run in runs}) == 1
    assert len(runs[0].stdout.strip()) == 24


def test_a_policy_is_told_by_what_it_would_save():
    caches = [Cache(Concentration.fixed(tau)) for tau in (0.4, 0.5)]
    assert not alike(*caches)
    assert fingerprint(caches[0]) == fingerprint(Cache(Concentration.fixed(0.4)))
    assert not alike(Path("a"), "b")


def test_what_makes_a_part_is_told_by_its_functions_and_by_the_kinds_of_objects():
    class Model:
        def __init__(self, size):
            self.size, self.handle = size, date.today

        def encode(self, texts):
            return texts

    one, other = Model(1), Model(2)
    makes = [partial(dict, encode=lambda texts, model=one: model.encode(texts))]
    makes += [partial(dict, encode=lambda texts, model=one: model.encode(texts[:9]))]
    makes += [partial(dict, encode=one.encode), partial(dict, encode=one), partial(dict, date)]
    assert len(set(map(fingerprint_maker, makes))) == len(makes)
    assert fingerprint_maker(partial(dict, one.encode)) == fingerprint_maker(
        partial(dict, other.encode)
    )
