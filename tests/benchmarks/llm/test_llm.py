import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import DynamicCache

from benchmarks.llm import contest, matching, online, table
from benchmarks.llm.contest import Case, Row
from benchmarks.llm.way import Way, each
from distinctkv.hf import distinct_cache
from distinctkv.studies.llm_asking import ask
from distinctkv.studies.llm_held import keep, read
from tests.hf.models import build
from tests.studies.spelling import Words

CASE = Case("facts", 200, 5)


def row(way="ours", part=0.25, accuracy=1.0, seed=0, task="facts"):
    return Row(task, 200, seed, way, part, part, accuracy, 1.0, 0.1, "abc")


@pytest.fixture(scope="module")
def model(seed):
    return build(seed)


def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    contest.append(path, [row(), row("other")])
    contest.append(path, [row(part=0.5)])
    assert contest.load(path, "abc") == [row(), row("other"), row(part=0.5)]
    assert contest.load(path, "another code") == []


def test_a_line_that_was_cut_short_costs_only_itself(tmp_path):
    path = tmp_path / "rows.jsonl"
    contest.append(path, [row(), row("other")])
    path.write_text(path.read_text()[:-20])
    contest.append(path, [row(part=0.5)])
    assert contest.load(path, "abc") == [row(), row(part=0.5)]


def test_what_is_done_is_not_done_again():
    first, second = (Way(name, "", each(lambda *_: [])) for name in ("first", "second"))
    done = [row("first", 0.25, seed=5)]
    left = contest.missing(done, CASE, [first, second], [0.25, 0.5])
    assert left == {first: [0.5], second: [0.25, 0.5]}


def test_a_way_that_sizes_itself_is_asked_once():
    way = Way("threshold 1", "", each(lambda *_: []), sizes_itself=True)
    assert contest.missing([], CASE, [way], [0.25, 0.5]) == {way: [1.0]}


def test_every_way_of_ours_is_measured_at_its_part(model):
    ways = [*contest.ways({"ours": {}})[:4], matching.WAY]
    rows = contest.measure(model, Words(64), CASE, {way: [0.5, 0.3] for way in ways}, "abc")
    assert [one.way for one in rows[:3]] == ["full", "ours", "ours"]
    assert rows[0].kept == 1
    for one in rows[1:]:
        assert one.kept == pytest.approx(one.part, abs=0.02)


def test_a_context_is_the_same_for_all_who_ask(model):
    way = contest.simple()[0]
    first, second = (
        contest.measure(model, Words(64), CASE, {way: [0.5]}, "abc")[1].nll for _ in range(2)
    )
    assert first == second


def test_matching_all_keys_changes_nothing(model, seed):
    generator = torch.Generator().manual_seed(seed)
    context = read(model, torch.randint(2, 64, (1, 60), generator=generator))
    whole = keep(context, [torch.ones(one.keys.shape[1:3]).bool() for one in context.layers])
    same = matching.hold(model, context, 1.0)
    question = [((5, 6), (7,))]
    full, matched = ask(model, [whole, same], 60, question)
    assert matched[0].nll == pytest.approx(full[0].nll, abs=1e-3)


def test_an_interval_holds_the_mean_and_shrinks_with_more_contexts(rng):
    few, many = rng.random(8), rng.random(800)
    for numbers in (few, many):
        mean, low, high = table.interval(numbers)
        assert mean == pytest.approx(np.mean(numbers))
        assert low < mean < high
    assert np.diff(table.interval(many)[1:]) < np.diff(table.interval(few)[1:])


def test_differences_are_taken_on_the_same_contexts():
    rows = [row(accuracy=a, seed=s) for s, a in enumerate((1.0, 0.5, 0.75))]
    rows += [row("rival", accuracy=a, seed=s) for s, a in enumerate((0.5, 0.5))]
    assert table.paired(rows, 0.25, "ours", "rival").tolist() == [0.5, 0.0]


def test_the_table_names_every_way_and_its_lead():
    rows = [row("full", 1.0), row(), row("rival", accuracy=0.5)]
    text = table.show(rows, ["ours"], [0.25])
    assert "+0.50 [+0.50, +0.50] rival" in text
    assert "200 tokens, kept 1/4" in text


def test_the_best_variant_is_chosen_by_recall_over_all_parts():
    rows = [row("a", 0.25, 0.9), row("a", 0.5, 0.1), row("b", 0.25, 0.6), row("b", 0.5, 0.6)]
    rows.append(row("a", 0.5, 9.0, task="nll_logs"))
    assert table.choose(rows, ["a", "b"]) == "b"


def test_a_stream_read_in_chunks_has_the_nats_of_one_read_at_once(model, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 64, (1, 90), generator=generator)
    course = online.follow(model, ids, DynamicCache(), chunk=30)
    with torch.no_grad():
        logits = model(ids).logits[0]
    true = torch.nn.functional.cross_entropy(logits[29:-1], ids[0, 30:])
    assert course.nll == pytest.approx(float(true), abs=1e-4)
    assert course.slots == [30, 60, 90]


def test_a_stream_of_repeats_opens_few_slots(model, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 64, (1, 30), generator=generator).repeat(1, 6)
    cache = distinct_cache(model, threshold=1.0)
    course = online.follow(model, ids, cache, chunk=30)
    assert course.slots[-1] < 180
    assert 0 <= online.exponent(course.slots) < 1
