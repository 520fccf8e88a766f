"""De-duplication: what is kept, what is dropped, and why."""

import json
import subprocess
import sys
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import Cache, Concentration, SnapshotError, snapshot
from distinctkv.dedup import Deduplicator, NGrams, RecordError, deduplicate
from distinctkv.novelty import NoveltyDetector
from distinctkv.rule import unit
from tests.strategies import cuts, streams

DOORS = ["the door is open", "the door is open!", "no such file", "the door is open"]
similarities = st.sampled_from([0.0, 0.5, 0.7, 0.9, 0.99, 1.0]) | st.floats(-1, 1)
words = st.lists(st.sampled_from(["the", "a", "door", "file", "is", "open", "shut", "not"]))
texts = st.lists(words.map(" ".join) | st.text(max_size=40), max_size=60)


def cosine(one, other):
    one, other = (unit(np.asarray(row))[0] for row in (one, other))
    return float(one @ other)


def told(decisions):
    return [(one.kept, one.number, one.of, one.similarity) for one in decisions]


def test_a_repeat_is_dropped_with_its_reason():
    seen = Deduplicator(0.7)
    decisions = seen.add_many(DOORS)
    assert [one.kept for one in decisions] == [True, False, True, False]
    assert [one.of for one in decisions] == [None, 0, None, 0]
    assert decisions[1].record == DOORS[0]
    assert decisions[3].similarity == 1.0
    assert (seen.kept, seen.numbers, seen.counts) == ([DOORS[0], DOORS[2]], [0, 2], [3, 1])


def test_a_decision_is_true_if_the_record_is_kept():
    seen = Deduplicator(0.7)
    assert [text for text in DOORS if seen.add(text)] == seen.kept


def test_mappings_are_compared_by_their_field():
    seen = Deduplicator(0.7, field="text")
    rows = [{"id": n, "text": text} for n, text in enumerate(DOORS)]
    assert [bool(seen.add(row)) for row in rows] == [True, False, True, False]
    assert seen.kept == [rows[0], rows[2]]


def test_vectors_are_compared_as_they_are():
    seen = Deduplicator(0.9)
    decisions = seen.add_many([[3.0, 0.0], [0, 1], np.array([5.0, 0.1])])
    assert decisions[2].of == 0
    assert decisions[2].similarity == pytest.approx(cosine([1, 0], [5, 0.1]), abs=1e-6)
    assert np.allclose(seen.kept, np.eye(2))
    inner = Deduplicator(0.9, field="v")
    assert [bool(inner.add({"v": row})) for row in ([3.0, 0.0], [0, 1], [5.0, 0.1])] == [1, 1, 0]


def test_any_callable_is_an_encoder():
    asked = []

    def encode(batch):
        asked.extend(batch)
        return [[len(text), 1.0] for text in batch]

    seen = Deduplicator(0.9999, encode=encode)
    assert [one.of for one in seen.add_many(["aa", "bb", "c", "aa"])] == [None, 0, None, 0]
    assert asked == ["aa", "bb", "c"]  # the same text only once


def test_an_encoder_that_gives_a_sparse_matrix_is_told_the_way_out():
    sparse = pytest.importorskip("scipy.sparse")
    seen = Deduplicator(encode=lambda batch: sparse.csr_array(np.ones((len(batch), 3))))
    with pytest.raises(TypeError, match=r"csr_array.*\.toarray\(\)"):
        seen.add_many(["a", "b"])


@pytest.mark.parametrize(
    "bad", [lambda batch: [1.0], lambda batch: [["x"]], lambda batch: [[]] * 2]
)
def test_an_encoder_that_gives_no_rows_is_refused(bad):
    with pytest.raises(TypeError, match="a row of numbers for each"):
        Deduplicator(encode=bad).add("text")


BAD = [
    ({"a": 1}, "is missing; it has 'a'"),
    ({"v": None}, "is empty"),
    ("text", "a record with a field 'v' is expected"),
    ({"v": [1.0, float("nan")]}, "nan or inf"),
    ({"v": [np.inf, 1.0]}, "nan or inf"),
    ({"v": [0.0, 0.0]}, "all zeros"),
    ({"v": [1.0, 2.0, 3.0]}, "3 numbers, those before have 2"),
    ({"v": [[1.0], [2.0]]}, "a text, or a vector"),
    ({"v": []}, "a text, or a vector"),
    ({"v": object()}, "a text, or a vector"),
    ({"v": {"w": 1}}, "needs field="),
    ({"v": "a text among vectors"}, "cannot be compared"),
]


@pytest.mark.parametrize(("record", "said"), BAD)
@pytest.mark.parametrize("way", ["add", "add_many"])
def test_a_bad_record_is_refused_and_changes_nothing(record, said, way):
    seen = Deduplicator(field="v")
    seen.add({"v": [1.0, 2.0]})
    with pytest.raises(RecordError, match=said) as told:
        seen.add(record) if way == "add" else seen.add_many([{"v": [2.0, 1.0]}, record])
    assert f"record {1 if way == 'add' else 2}" in str(told.value)
    assert (seen.seen, len(seen)) == (1, 1)


@pytest.mark.parametrize("way", ["add", "add_many"])
def test_bad_records_may_be_counted_and_passed_over(way):
    seen = Deduplicator(field="v", on_bad="skip")
    records = [record for record, _ in BAD]
    records = [*records[:3], {"v": [1.0, 2.0]}, *records, {"v": [1.0, 2.0]}]
    decisions = [*map(seen.add, records)] if way == "add" else seen.add_many(records)
    assert [one.number for one in decisions if not one.bad] == [3, len(records) - 1]
    assert (seen.seen, seen.skipped, len(seen)) == (len(records), len(records) - 2, 1)


def ragged(texts):
    """An encoder that fails on some texts, and gives others another width."""
    if "fail" in texts:
        raise ValueError("no words in it")
    return [[1.0, len(text)] if text != "wide" else [1.0, 2.0, 3.0] for text in texts]


@pytest.mark.parametrize("way", ["add", "add_many", "deduplicate", "detector"])
def test_a_record_that_an_encoder_fails_on_is_a_bad_one(way):
    given = ["fail", "a", "wide", "a" * 50, "fail", "a"]
    if way == "deduplicate":
        found = deduplicate(given, 0.99, encode=ragged, on_bad="skip").decisions
    elif way == "detector":
        found = NoveltyDetector(0.99, encode=ragged, on_bad="skip").add_many(given)
    else:
        seen = Deduplicator(0.99, encode=ragged, on_bad="skip")
        found = [*map(seen.add, given)] if way == "add" else seen.add_many(given)
    assert [one.bad for one in found] == [True, False, True, False, True, False]
    assert "no words in it" in found[0].reason
    assert found[2].reason == "it is encoded in 3 numbers, those before in 2"
    assert found[1].reason is found[5].reason is None


@pytest.mark.parametrize("given", [["a", "fail"], ["a", "wide"]])
def test_an_encoder_that_fails_is_heard_unless_that_may_be_passed_over(given):
    seen = Deduplicator(0.99, encode=ragged)
    with pytest.raises((ValueError, TypeError), match=r"no words in it|all of one width"):
        seen.add_many(given)
    assert seen.seen == 0


def test_a_list_with_bad_records_is_parted_if_asked():
    given = [{"v": "one"}, {"v": None}, {"v": "one"}, {}]
    found = deduplicate(given, field="v", on_bad="skip")
    assert found.kept == given[:1]
    assert [one.bad for _, one in found.dropped] == [True, False, True]
    assert "is empty" in found.decisions[1].reason
    assert found.rethreshold(0.5).decisions[3].reason == found.decisions[3].reason != ""
    with pytest.raises(RecordError, match="record 1"):
        deduplicate(given, field="v")


def test_the_first_vector_that_is_good_says_how_wide_they_are():
    seen = Deduplicator(on_bad="skip")
    assert [one.kept for one in seen.add_many([[0.0] * 3, [1.0, 0.0]])] == [False, True]


@given(streams(), similarities)
def test_what_is_kept_is_pairwise_below_the_similarity(stream, similarity):
    seen = Deduplicator(similarity)
    seen.add_many(stream.keys)
    keys = np.array(seen.kept, np.float64)
    cosines = keys @ keys.T - 3 * np.eye(len(keys))
    assert cosines.max(initial=-1.0) <= similarity + 1e-6


@given(streams(), similarities)
def test_a_reason_is_true(stream, similarity):
    for one in Deduplicator(similarity).add_many(stream.keys):
        if not one.kept:
            assert one.similarity >= similarity
            assert one.of < one.number
            true = cosine(stream.keys[one.number], stream.keys[one.of])
            assert abs(one.similarity - true) < 1e-5


@given(streams(most=300), similarities)
def test_one_by_one_is_as_all_at_once(stream, similarity):
    batch, single = Deduplicator(similarity), Deduplicator(similarity)
    assert told(batch.add_many(stream.keys)) == told(map(single.add, stream.keys))
    assert_same(batch, single)


@given(texts, similarities, st.data())
def test_pieces_make_no_difference(given, similarity, data):
    whole, pieces = Deduplicator(similarity), Deduplicator(similarity)
    decisions, start = [], 0
    for stop in [*data.draw(cuts(len(given))), len(given)]:
        part = given[start:stop]
        single = data.draw(st.booleans())
        decisions += map(pieces.add, part) if single else pieces.add_many(part)
        start = stop
    assert told(decisions) == told(whole.add_many(given))
    assert_same(whole, pieces)


def assert_same(one, other, tmp=None):
    assert (one.seen, one.numbers, one.counts) == (other.seen, other.numbers, other.counts)
    left, right = (seen._cache.state() for seen in (one, other))  # all that would be saved
    assert left[1] == right[1]
    assert all((left[0][name] == right[0][name]).all() for name in left[0])


def test_many_rows_one_by_one_decide_as_the_cache_does(rng):
    things = rng.standard_normal((700, 24))
    rows = things[rng.integers(0, 700, 3000)] + 0.15 * rng.standard_normal((3000, 24))
    cache, seen = Cache(Concentration.similar(0.9, decay=1.0)), Deduplicator(0.9)
    ids = cache.write(rows)
    decisions = [seen.add(row) for row in rows[:1500]] + seen.add_many(rows[1500:2000])
    decisions += [seen.add(row) for row in rows[2000:]]
    firsts = cache.slots.first_seen
    assert [one.number if one.kept else one.of for one in decisions] == firsts[ids].tolist()


@given(texts, st.sampled_from([1, 3, 10]))
def test_a_budget_is_never_exceeded(given, budget):
    seen = Deduplicator(0.8, budget=budget)
    decisions = [seen.add(text) for text in given]
    assert len(seen) == len(seen.kept) == len(seen.numbers) <= budget
    whole = Deduplicator(0.8, budget=budget)
    assert told(whole.add_many(given)) == told(decisions)
    assert whole.kept == seen.kept


@pytest.mark.parametrize("way", ["add", "add_many"])
def test_a_budget_lets_texts_go(rng, way):
    given = ["".join(rng.permutation([*"abcdefghijklmnop"])) for _ in range(500)]
    seen = Deduplicator(0.9, budget=50)
    for part in np.array_split(given, 7):
        [*map(seen.add, part)] if way == "add" else seen.add_many(part.tolist())
    assert len(seen) == 50
    assert texts_in(seen) <= 1.125 * 50


def texts_in(thing):
    """How many texts of 16 letters are held by what is in a thing, and in that."""
    if isinstance(thing, str) or callable(thing):
        return int(isinstance(thing, str) and len(thing) == 16)
    inner = [*thing.items()] if isinstance(thing, dict) else getattr(thing, "__dict__", {}).values()
    return sum(map(texts_in, thing if isinstance(thing, list | tuple) else inner))


@pytest.mark.parametrize("n_rows", [1, 3])
def test_a_few_records_under_a_budget_copy_no_keys(rng, n_rows):
    seen = Deduplicator(0.9, budget=2000)
    seen.add_many(rng.standard_normal((2100, 256)))
    rows = rng.standard_normal((n_rows, 256))
    tracemalloc.start()
    seen.add_many(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2000 * 256 * 4 / 2


@pytest.mark.parametrize("budget", [np.inf, 60, 7])
def test_vectors_of_a_long_stream_are_kept_as_by_a_cache_at_any_budget(rng, budget):
    things = rng.standard_normal((120, 12)) @ rng.standard_normal((12, 48))
    rows = things[rng.integers(0, 120, 1500)] + 0.2 * rng.standard_normal((1500, 48))
    cache, seen = (
        Cache(Concentration.similar(0.97, budget, decay=1.0)),
        Deduplicator(0.97, budget=budget),
    )
    ids = cache.write(rows)
    decisions = [one for part in np.array_split(rows, 9) for one in seen.add_many(part)]
    opener = {}
    for number, slot in enumerate(ids.tolist()):
        first = opener.setdefault(slot, number)
        assert (decisions[number].kept, decisions[number].of) == (
            (True, None) if first == number else (False, first)
        )


def test_a_budget_keeps_what_recurs():
    seen = Deduplicator(0.9, budget=2)
    seen.add_many(["often", "often", "now and then", "often", "once", "twice", "often"])
    assert "often" in seen.kept


def test_a_lower_similarity_is_made_of_what_was_kept():
    seen = Deduplicator(0.95)
    seen.add_many(DOORS)
    less = seen.rethreshold(0.7)
    assert (len(seen), less.kept, less.counts) == (3, [DOORS[0], DOORS[2]], [3, 1])
    assert (less.seen, less.similarity) == (4, 0.7)
    with pytest.raises(ValueError, match=r"at most 0.95, got 0.99.*use deduplicate"):
        seen.rethreshold(0.99)


@given(texts, similarities, similarities)
def test_a_list_may_be_parted_again_at_any_similarity(given, one, other):
    again = deduplicate(given, one).rethreshold(other)
    fresh = deduplicate(given, other)
    assert again.decisions == fresh.decisions
    assert again.kept == fresh.kept == [given[v.number] for v in fresh.decisions if v]
    assert len(fresh.kept) + len(fresh.dropped) == len(given)
    assert all(v.record == given[v.of] for _, v in fresh.dropped)


@given(texts, similarities, st.data())
def test_a_saved_one_goes_on_as_if_nothing_had_been(tmp_path_factory, given, similarity, data):
    path = tmp_path_factory.mktemp("dedup") / "seen"
    cut = data.draw(st.integers(0, len(given)))
    seen, whole = Deduplicator(similarity), Deduplicator(similarity)
    seen.add_many(given[:cut])
    seen.save(path)
    seen = Deduplicator.load(path)
    whole.add_many(given[:cut])
    assert told(map(seen.add, given[cut:])) == told(whole.add_many(given[cut:]))
    assert seen.kept == whole.kept


def test_an_encoder_must_be_given_again(tmp_path):
    def encode(batch):
        return [[len(text), 1.0] for text in batch]

    seen = Deduplicator(0.99, encode=encode)
    seen.add("text")
    seen.save(tmp_path / "seen")
    with pytest.raises(TypeError, match=r"saved with the encoder .*encode, which a file cannot"):
        Deduplicator.load(tmp_path / "seen").add("other")
    assert not Deduplicator.load(tmp_path / "seen", encode=encode).add("text")


def test_another_encoder_than_the_one_it_was_saved_with_is_told(tmp_path):
    seen = Deduplicator(0.99, encode=ragged, on_bad="skip")
    seen.add("text")
    seen.save(tmp_path / "seen")
    with pytest.warns(UserWarning, match=r"saved with the encoder .*ragged, and .*other is given"):
        Deduplicator.load(tmp_path / "seen", encode=other)
    with pytest.raises(TypeError, match="give it again"):  # and is no bad record
        Deduplicator.load(tmp_path / "seen").add("new")


def other(texts):
    return [[len(text), 1.0] for text in texts]


def test_records_that_are_no_json_cannot_be_saved(tmp_path):
    seen = Deduplicator(encode=lambda batch: [[1.0]] * len(batch))
    seen.add(object())
    with pytest.raises(TypeError, match="JSON-like"):
        seen.save(tmp_path / "seen")


@pytest.mark.parametrize(
    ("name", "value"),
    [("similarity", 0.5), ("encode", {"width": 0}), ("cache", {}), ("note", 7)],
)
def test_a_file_that_describes_none_is_refused(tmp_path, name, value):
    seen = Deduplicator(0.9)
    seen.add_many(DOORS)
    seen.save(tmp_path / "seen")
    tensors, state = snapshot.load(tmp_path / "seen", "deduplicator")
    snapshot.save(tmp_path / "bad", "deduplicator", tensors, state | {name: value})
    with pytest.raises(SnapshotError, match="does not describe a de-duplicator"):
        Deduplicator.load(tmp_path / "bad")
    for records in (b"[]", b"[[0, 1]]", b"{", b"[[9, 1], [1, 1], [2, 1]]"):
        bad = tensors | {"records": np.frombuffer(records, np.uint8)}
        snapshot.save(tmp_path / "bad", "deduplicator", bad, state)
        with pytest.raises(SnapshotError, match="does not describe a de-duplicator"):
            Deduplicator.load(tmp_path / "bad")


def test_a_note_is_saved_and_kept_at_a_lower_similarity(tmp_path):
    seen = Deduplicator(0.9, on_bad="skip")
    seen.note["mine"] = [1, "two"]
    seen.save(tmp_path / "seen")
    loaded = Deduplicator.load(tmp_path / "seen")
    assert (loaded.note, loaded.on_bad) == ({"mine": [1, "two"]}, "skip")
    assert loaded.rethreshold(0.7).note == loaded.note


def test_what_another_kept_can_be_taken_in():
    left, right = Deduplicator(0.7), Deduplicator(0.7)
    left.add_many(DOORS[:2])
    right.add_many(DOORS[2:])
    decisions = left.absorb(right)
    assert [(*one,) for one in decisions] == [
        (True, 2, None, None, None, None),
        (False, 3, 0, DOORS[0], 1.0, None),
    ]
    assert (left.kept, left.counts, left.seen) == ([DOORS[0], DOORS[2]], [3, 1], 4)
    with pytest.raises(ValueError, match="compare records in one way"):
        left.absorb(Deduplicator(0.7, field="text"))
    with pytest.raises(ValueError, match=r"'similarity': 0.7.*'similarity': 0.5.*rethreshold"):
        left.absorb(Deduplicator(0.5))


def sized(batch, by):
    return [[len(text), by] for text in batch]


BY = {
    "lambda": lambda by: lambda batch: sized(batch, by),
    "default": lambda by: lambda batch, by=by: sized(batch, by),
    "keyword": lambda by: lambda batch, *, by=by: sized(batch, by),
    "partial": lambda by: partial(sized, by=by),
}


@pytest.mark.parametrize("kind", [Deduplicator, NoveltyDetector])
@pytest.mark.parametrize("make", BY.values(), ids=BY)
def test_two_functions_of_one_name_are_not_one_encoder(kind, make):
    ours, theirs = kind(0.9, encode=make(1.0)), kind(0.9, encode=make(9.0))
    theirs.add_many(["a text", "a longer text"])
    assert ours.setting == theirs.setting
    with pytest.raises(ValueError, match=r"two functions of the name .*; give both the same"):
        ours.absorb(theirs)
    assert (ours.seen, len(ours)) == (0, 0)


@pytest.mark.parametrize("make", BY.values(), ids=BY)
def test_a_function_is_known_by_its_code_and_what_it_holds_and_in_a_file_by_its_name(
    make, tmp_path
):
    by = 9.0
    ours, theirs = Deduplicator(encode=make(by)), Deduplicator(encode=make(by))
    theirs.add_many(["a text", "a longer text"])
    ours.absorb(theirs)
    theirs.save(tmp_path / "theirs")
    ours.absorb(Deduplicator.load(tmp_path / "theirs"))
    assert ours.seen == 4


def test_two_lambdas_that_hold_nothing_differ_by_their_code():
    with pytest.raises(ValueError, match="two functions"):
        Deduplicator(encode=lambda batch: sized(batch, 1.0)).absorb(
            Deduplicator(encode=lambda batch: sized(batch, 9.0))
        )


@given(texts)
def test_an_encoded_text_stands_alone(given):
    encode = NGrams(width=64)
    rows = encode(given)
    assert rows.any(axis=1).all()
    assert all((encode([text])[0] == row).all() for text, row in zip(given, rows, strict=True))


def test_the_encoding_is_the_same_in_every_process():
    code = (
        "from distinctkv.dedup import NGrams; import json;"
        f"print(json.dumps(NGrams(32)({DOORS!r}).tolist()))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert json.loads(told.stdout) == NGrams(32)(DOORS).tolist()


@pytest.mark.parametrize("given", [{"width": 0}, {"n": 0}, {"n": 2.5}])
def test_an_encoding_without_size_is_refused(given):
    with pytest.raises(ValueError, match="must be a whole number"):
        NGrams(**given)


def test_sizes_may_be_integers_of_numpy(tmp_path):
    seen = Deduplicator(encode=NGrams(np.int64(64), np.uint8(3)))
    seen.add_many(DOORS)
    seen.save(tmp_path / "seen")
    assert Deduplicator.load(tmp_path / "seen").setting["encode"] == {"width": 64, "n": 3}
