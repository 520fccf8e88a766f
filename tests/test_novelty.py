"""Novelty: scores of the past, a threshold that keeps its word, alerts with their context."""

import datetime
from math import inf, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distinctkv import SnapshotError, snapshot
from distinctkv.dedup import RecordError
from distinctkv.novelty import NoveltyDetector, Quantile
from distinctkv.rule import novelty, unit
from tests.strategies import cuts, streams

similarities = st.sampled_from([0.0, 0.5, 0.9, 1.0])


def detectors(similarity, **given):
    return NoveltyDetector(similarity, quantile=0.5, window=20, **given)


def test_an_alert_names_what_is_nearest_and_when_it_was_seen():
    detector = NoveltyDetector(quantile=0.9, window=50)
    for n in range(20):
        detector.add(f"door {n % 2} opened", at=f"10:{n:02}")
    detection = detector.add("door 1 closed", at="10:20")
    assert detection.alert
    assert detection.known.record == "door 1 opened"
    seen = detection.known
    assert (seen.count, seen.first_seen, seen.last_seen) == (10, "10:01", "10:19")
    assert not detector.add("door 1 closed").alert


def test_the_first_record_is_infinitely_novel_and_no_alert():
    [first, second] = NoveltyDetector().add_many(["one", "one"])
    assert (first.novelty, first.alert, first.known) == (inf, False, None)
    assert (second.novelty, second.known.count, second.known.first_seen) == (0.0, 1, 0)


@given(streams(), similarities)
def test_a_score_is_the_novelty_to_what_came_before(stream, similarity):
    detections = detectors(similarity).add_many(stream.keys)
    keys = unit(stream.keys).astype(np.float32)
    held = []
    for key, detection in zip(keys, detections, strict=True):
        known = np.array(held, np.float32).reshape(-1, keys.shape[1])
        nearest, _ = novelty(key, known)
        assert detection.novelty == pytest.approx(nearest, abs=1e-9)
        if not held or nearest > 1 - similarity:
            held.append(key)


@given(streams(most=40), similarities, st.sampled_from([inf, 3]), st.data())
def test_pieces_make_no_difference(stream, similarity, budget, data):
    whole, pieces = (detectors(similarity, budget=budget) for _ in range(2))
    parts = np.split(stream.keys, data.draw(cuts(len(stream.keys))))
    found = [detection for part in parts for detection in pieces.add_many(part)]
    assert found == whole.add_many(stream.keys)
    assert (pieces.known, pieces.threshold) == (whole.known, whole.threshold)
    assert len(whole.known) == len(whole) <= budget


@given(streams(), similarities, st.data())
def test_a_saved_detector_goes_on(tmp_path_factory, stream, similarity, data):
    path = tmp_path_factory.mktemp("novelty") / "detector"
    cut = data.draw(st.integers(0, len(stream.keys)))
    whole, saved = detectors(similarity), detectors(similarity)
    saved.add_many(stream.keys[:cut])
    saved.save(path)
    found = NoveltyDetector.load(path).add_many(stream.keys[cut:])
    assert found == whole.add_many(stream.keys)[cut:]


@given(streams(), st.sampled_from([0.0, 0.5]), st.booleans(), st.data())
def test_what_another_knows_can_be_taken_in(stream, similarity, timed, data):
    cut = data.draw(st.integers(0, len(stream.keys)))
    whole, first, later = (detectors(similarity) for _ in range(3))
    times = [f"{n:04}" for n in range(len(stream.keys))] if timed else None
    first.add_many(stream.keys[:cut], times and times[:cut])
    later.add_many(stream.keys[cut:], times and times[cut:])
    past = [*first._past.recent, *later._past.recent][-20:]
    ids = first.absorb(later)
    whole.add_many(stream.keys, times)
    assert (first.seen, [*first._past.recent]) == (whole.seen, past)
    assert sum(one.count for one in first.known.values()) == len(stream.keys)
    assert len(ids) == len(later)
    assert {*ids} <= {*first.known}
    # Things a merge puts together were as near in one pass; only where none are is it the same.
    if len(first) == len(whole):
        seen = [
            [(one.first_seen, one.last_seen) for one in d.known.values()] for d in (first, whole)
        ]
        assert [one[0] for one in seen[0]] == [one[0] for one in seen[1]]


def test_times_and_counts_of_two_detectors_add_up(tmp_path):
    first, later = NoveltyDetector(), NoveltyDetector()
    first.add_many(["a door", "a lock", "a door"])
    later.add_many(["a lock", "a key!", "a lock"])
    later.save(tmp_path / "later")
    assert first.absorb(NoveltyDetector.load(tmp_path / "later")) == [1, 2]
    found = [(one.record, one.count, one.first_seen, one.last_seen) for one in first.known.values()]
    assert found == [("a door", 2, 0, 2), ("a lock", 3, 1, 5), ("a key!", 1, 4, 4)]


def test_detectors_that_differ_are_not_merged():
    with pytest.raises(ValueError, match="in one way"):
        NoveltyDetector().absorb(NoveltyDetector(0.8))
    with pytest.raises(ValueError, match="in one way"):
        NoveltyDetector().absorb(NoveltyDetector(window=500))
    with pytest.raises(ValueError, match="absorb itself"):
        (one := NoveltyDetector()).absorb(one)


def test_a_budget_holds_after_a_merge():
    first, later = (detectors(0.9, budget=3) for _ in range(2))
    first.add_many(["often", "often", "one", "two"])
    later.add_many(["often", "three", "four"])
    first.absorb(later)
    assert len(first.known) == len(first) == 3
    assert "often" in [one.record for one in first.known.values()]


def test_scoring_alone_learns_nothing():
    detector = NoveltyDetector()
    assert detector.score(["one"]).tolist() == [inf]
    detector.add("one")
    assert detector.score(["one", "other"]).tolist()[0] == 0.0
    assert detector.score([]).tolist() == []
    assert (detector.seen, len(detector)) == (1, 1)


@given(st.lists(st.floats(0, 2), max_size=80), st.sampled_from([0.5, 0.8, 0.9]))
def test_the_threshold_is_the_quantile_of_the_window(numbers, share):
    past = Quantile(share, window=30)
    for place, number in enumerate(numbers):
        recent = sorted(numbers[max(0, place - 30) : place])
        rank = int(np.ceil(share * (len(recent) + 1)))
        assert past.threshold == (recent[rank - 1] if rank <= len(recent) else inf)
        past.add(number)


def test_few_of_the_like_are_alerted(rng):
    detector = NoveltyDetector(similarity=0.5, quantile=0.95, window=500)
    things = rng.standard_normal((20, 16))
    rows = things[rng.integers(0, 20, 4000)] + 0.2 * rng.standard_normal((4000, 16))
    later = detector.add_many(rows)[1000:]
    # 3,000 draws of one in twenty or less: six standard deviations on top.
    assert (
        sum(detection.alert for detection in later) <= 3000 * 0.05 + 6 * (3000 * 0.05 * 0.95) ** 0.5
    )
    assert detector.add(rng.standard_normal(16)).alert


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [0.0, 0.0], [1.0, 2.0, 3.0], {"a": 1}, object()])
def test_a_bad_record_is_refused_and_changes_nothing(bad):
    detector = NoveltyDetector()
    detector.add([1.0, 2.0])
    with pytest.raises(RecordError, match="record 2"):
        detector.add_many([[2.0, 1.0], bad])
    assert (detector.seen, len(detector)) == (1, 1)


@pytest.mark.parametrize(
    "given", [{"quantile": 1.0}, {"quantile": 0.99, "window": 10}, {"window": 2.5}, {"budget": 0}]
)
def test_a_setting_that_means_nothing_is_refused(given):
    with pytest.raises(ValueError, match=r"must|too short"):
        NoveltyDetector(**given)


def test_times_must_fit():
    with pytest.raises(ValueError, match="1 times do not fit 2 records"):
        NoveltyDetector().add_many(["a", "b"], at=["now"])


def test_a_window_may_be_an_integer_of_numpy(tmp_path):
    detector = NoveltyDetector(quantile=0.9, window=np.int64(50))
    detector.add("door 1 opened")
    detector.save(tmp_path / "a")
    assert NoveltyDetector.load(tmp_path / "a").setting == detector.setting


@pytest.mark.parametrize("name", ["known", "past", "window", "cache"])
def test_a_file_that_describes_none_is_refused(tmp_path, name):
    detector = NoveltyDetector()
    detector.add_many(["one", "two", "one"])
    detector.save(tmp_path / "good")
    tensors, state = snapshot.load(tmp_path / "good", "novelty detector")
    if name in tensors:
        wrong = {"known": np.frombuffer(b"[]", np.uint8), "past": np.array([3.0])}
        tensors[name] = wrong[name]
    else:
        state[name] = 0
    snapshot.save(tmp_path / "bad", "novelty detector", tensors, state)
    with pytest.raises(SnapshotError, match="does not describe a detector"):
        NoveltyDetector.load(tmp_path / "bad")


def test_times_that_were_given_stay_however_like_numbers_they_are(tmp_path):
    first, later = NoveltyDetector(), NoveltyDetector()
    first.add_many(["a door", "a lock"])
    later.add_many(["a key!", "a wall", "a lamp"], at=[0, {"at": 1}, None])
    later.save(tmp_path / "later")
    first.absorb(NoveltyDetector.load(tmp_path / "later"))
    seen = [(one.first_seen, one.last_seen) for one in first.known.values()]
    assert seen == [(0, 0), (1, 1), (0, 0), ({"at": 1}, {"at": 1}), (4, 4)]
    first.save(tmp_path / "both")
    assert NoveltyDetector.load(tmp_path / "both").known == first.known


@pytest.mark.parametrize("at", [datetime.datetime(2020, 1, 1), np.int64(3), {1}, object()])
def test_a_time_that_could_not_be_saved_is_refused_at_once(at):
    detector = NoveltyDetector()
    with pytest.raises(TypeError, match=r"at must be a text, a number or JSON-like.*isoformat"):
        detector.add("one", at=at)
    assert detector.seen == 0


def test_a_detection_is_true_if_it_is_an_alert():
    detector = NoveltyDetector(quantile=0.9, window=50)
    found = [detector.add(f"door {n % 2} opened") for n in range(20)]
    assert not any(found[2:])
    assert detector.add("disk is on fire")


def test_one_text_may_be_scored_alone():
    detector = NoveltyDetector(field="text")
    detector.add({"text": "one"})
    assert detector.score({"text": "one"}).tolist() == [0.0]
    detector = NoveltyDetector()
    detector.add("one")
    assert detector.score("one").tolist() == detector.score(b"one").tolist() == [0.0]


@given(streams(most=40), similarities, st.sampled_from([inf, 3]), st.data())
def test_bad_records_may_be_passed_over(stream, similarity, budget, data):
    bad = data.draw(st.sets(st.integers(0, len(stream.keys) - 1)))
    rows = stream.keys.astype(np.float64)
    rows[[*bad]] = np.nan
    good = [place for place in range(len(rows)) if place not in bad]
    skipping = detectors(similarity, budget=budget, on_bad="skip")
    plain = detectors(similarity, budget=budget)
    found, want = skipping.add_many(rows), plain.add_many(rows[good])
    left = [(one.novelty, one.threshold, one.item) for one in found if not one.bad]
    assert left == [(one.novelty, one.threshold, one.item) for one in want]
    assert [one.number for one in found if one.bad] == sorted(bad)
    assert (skipping.seen, skipping.skipped, len(skipping)) == (len(rows), len(bad), len(plain))


def test_a_record_that_was_passed_over_says_why(tmp_path):
    detector = NoveltyDetector(field="text", on_bad="skip")
    none, one, other = detector.add_many([{"text": None}, {"text": "one"}, {"txt": "two"}])
    assert (isnan(none.novelty), none.alert, "is empty" in none.reason) == (True, False, True)
    assert (one.reason, "is missing; it has 'txt'" in other.reason) == (None, True)
    assert [isnan(score) for score in detector.score([{"text": "one"}, {}])] == [False, True]
    detector.save(tmp_path / "detector")
    assert NoveltyDetector.load(tmp_path / "detector").add({}).bad


def test_an_encoder_is_not_asked_about_nothing():
    assert NoveltyDetector(encode=lambda batch: [[1.0] for _ in batch]).add_many([]) == []
