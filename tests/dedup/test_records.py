"""Records at the door: what is refused, and what is said."""

import numpy as np
import pytest

from distinctkv.dedup import Deduplicator, deduplicate
from distinctkv.novelty import NoveltyDetector

TAKERS = {
    "add_many": lambda given: Deduplicator().add_many(given),
    "deduplicate": deduplicate,
    "detector": lambda given: NoveltyDetector().add_many(given),
    "score": lambda given: NoveltyDetector().score(given),
}
LEARNERS = {name: take for name, take in TAKERS.items() if name != "score"}


@pytest.mark.parametrize("take", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("given", ["abc", "", b"abc", bytearray(b"abc"), {"text": "abc"}])
def test_one_record_is_not_taken_for_several(take, given):
    with pytest.raises(TypeError, match=r"one by one, got .*; put it in a list: \[record\]"):
        take(given)


@pytest.mark.parametrize("held", [Deduplicator, NoveltyDetector])
def test_a_text_among_vectors_is_said_to_be_one(held):
    made = held()
    made.add(np.ones(3))
    with pytest.raises(ValueError, match="it is a text"):
        made.add("x")


def test_bytes_that_are_not_utf8_are_told_apart():
    seen = Deduplicator()
    rows = [text.encode("cp1251") for text in ("привет из Москвы", "другие в Рязани")]
    assert [decision.kept for decision in seen.add_many(rows + rows)] == [True, True, False, False]


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_texts_of_arrow_are_texts(take):
    pyarrow = pytest.importorskip("pyarrow")
    texts = ["hello world", "jello earth", "no such file", "hello world"]
    want = [str(one) for one in take(texts)] if take is not deduplicate else take(texts).kept
    for column in (pyarrow.array(texts), pyarrow.chunked_array([texts[:1], texts[1:]])):
        found = take(column)
        assert (found.kept if take is deduplicate else [str(one) for one in found]) == want


@pytest.mark.parametrize("held", [Deduplicator, NoveltyDetector])
def test_a_value_of_arrow_is_not_taken_for_the_numbers_of_its_bytes(held):
    pyarrow = pytest.importorskip("pyarrow")
    for value in (pyarrow.scalar("abc"), pyarrow.scalar(b"abc"), pyarrow.scalar([1.0, 2.0])):
        with pytest.raises(ValueError, match=r"as_py\(\)"):
            held().add(value)
    with pytest.raises(ValueError, match=r"as_py\(\)"):
        held(field="text").add(pyarrow.scalar({"text": "abc"}))


def test_a_bytearray_is_text_as_bytes_are():
    seen = Deduplicator()
    assert [one.kept for one in seen.add_many([bytearray(b"abc"), b"abc", "abd"])] == [1, 0, 1]
    assert seen.kept == ["abc", "abd"]


def test_nothing_absorbs_itself():
    seen = Deduplicator()
    seen.add("one")
    with pytest.raises(ValueError, match="cannot absorb itself"):
        seen.absorb(seen)
    assert (seen.seen, seen.counts) == (1, [1])


def test_a_table_is_refused_with_the_way_out():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"text": ["a", "b"], "id": [1, 2]})
    with pytest.raises(TypeError, match="to_dict"):
        Deduplicator().add_many(table)
    assert len(deduplicate(table["text"]).kept) == 2
