import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from benchmarks.llm import __main__ as program
from benchmarks.llm import contest, rows, same_tokens, worker
from benchmarks.llm.kv_states import keep, read
from benchmarks.llm.questions import ask
from benchmarks.llm.rows import Case, Row
from benchmarks.llm.way import Way, each
from benchmarks.llm.ways import everyone, simple
from tests.benchmarks.llm.word_tokenizer import Words
from tests.hf.models import build

CASE = Case("facts", 200, 5)


def row(way="ours", part=0.25, accuracy=1.0, seed=0, task="facts"):
    return Row(task, 200, seed, way, part, part, accuracy, 1.0, 0.1, "abc")


@pytest.fixture(scope="module")
def model(seed):
    return build(seed)


def test_rows_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "rows.jsonl"
    rows.append(path, [row(), row("other")])
    rows.append(path, [row(part=0.5)])
    assert rows.load(path, "abc") == [row(), row("other"), row(part=0.5)]
    assert rows.load(path, "another code") == []


def test_a_line_that_was_cut_short_costs_only_itself(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows.append(path, [row(), row("other")])
    path.write_text(path.read_text()[:-20])
    rows.append(path, [row(part=0.5)])
    assert rows.load(path, "abc") == [row(), row(part=0.5)]


def test_what_is_done_is_not_done_again():
    first, second = (Way(name, "", each(lambda *_: [])) for name in ("first", "second"))
    done = {row("first", 0.25, seed=5).cell}
    left = rows.missing(done, CASE, [first, second], [0.25, 0.5])
    assert left == {first: [0.5], second: [0.25, 0.5]}


def test_a_way_that_sizes_itself_is_asked_once():
    way = Way("threshold 1", "", each(lambda *_: []), sizes_itself=True)
    assert rows.missing(set(), CASE, [way], [0.25, 0.5]) == {way: [1.0]}


def test_every_way_of_ours_is_measured_at_its_part(model):
    names = ("ours", "ours, by the cache", "ours, horizon 1024, importance .25, attended")
    ways = [*(way for way in everyone() if way.name in names), *simple(), same_tokens.WAY]
    made = contest.measure(model, Words(64), CASE, {way: [0.5, 0.3] for way in ways}, "abc")
    found = {(one.way, one.part): one for one in made}
    assert found.pop(("full", 1.0)).kept == 1
    assert set(found) == {(way.name, part) for way in ways for part in (0.5, 0.3)}
    for one in found.values():
        assert one.kept == pytest.approx(one.part, abs=0.02)


def test_a_context_is_the_same_for_all_who_ask(model):
    way = simple()[0]
    first, second = (
        {one.way: one.nll for one in contest.measure(model, Words(64), CASE, {way: [0.5]}, "abc")}
        for _ in range(2)
    )
    assert first == second


def test_ways_that_wait_to_be_asked_answer_as_those_asked_at_once(model, monkeypatch):
    ways = {way: [0.5, 0.3] for way in simple()}
    alone = contest.measure(model, Words(64), CASE, ways, "abc")
    monkeypatch.setattr(contest, "ASK_ONE_BY_ONE", ())
    together = contest.measure(model, Words(64), CASE, ways, "abc")
    there = {one.cell: one for one in alone}
    assert set(there) == {one.cell for one in together}
    for one in together:
        assert one.nll == pytest.approx(there[one.cell].nll, abs=1e-4)
        assert one.kept == there[one.cell].kept


def test_a_run_whose_time_is_over_leaves_the_rest_undone(tmp_path, monkeypatch, model):
    def load(*_):
        return model, Words(64)

    monkeypatch.setattr(worker.llm_model, "load", load)
    out = tmp_path / "rows.jsonl"
    for ends, n in ((0.0, 0), (1e12, 2)):
        todo = worker.Todo(tmp_path, "cpu", "float32", out, "abc", ends)
        worker.work(todo, [CASE], ["random"], [0.5])
        assert len(rows.load(out, "abc")) == n


def test_a_context_that_no_matrix_can_be_solved_for_is_left_out(tmp_path, monkeypatch, model):
    def measure(_, __, case, *___, room):
        if case == CASE:
            raise torch.linalg.LinAlgError("singular")
        return [row(seed=case.seed)]

    monkeypatch.setattr(worker.llm_model, "load", lambda *_: (model, Words(64)))
    monkeypatch.setattr(contest, "measure", measure)
    out = tmp_path / "rows.jsonl"
    cases = [CASE, Case("facts", 200, 6)]
    todo = worker.Todo(tmp_path, "cpu", "float32", out, "abc", 1e12)
    worker.work(todo, cases, ["random"], [0.5])
    assert [one.seed for one in rows.load(out, "abc")] == [6]


def test_where_memory_is_short_less_is_asked_at_once(model, monkeypatch):
    way = simple()[0]
    whole = contest.measure(model, Words(64), CASE, {way: [0.5, 0.3]}, "abc")
    asked = []

    def ask(model, helds, *rest):
        asked.append(len(helds))
        if len(helds) > 1:
            raise torch.OutOfMemoryError("too many")
        return contest_ask(model, helds, *rest)

    contest_ask = contest.ask
    monkeypatch.setattr(contest, "ASK_ONE_BY_ONE", ())
    monkeypatch.setattr(contest, "ask", ask)
    parts = contest.measure(model, Words(64), CASE, {way: [0.5, 0.3]}, "abc")
    assert asked == [3, 1, 1, 1]
    assert {one.cell for one in parts} == {one.cell for one in whole}


def test_a_way_that_does_not_fit_is_tried_again_when_the_others_are_gone(model):
    full = []

    def hold(model, context, part):
        full.append(part)
        if len(full) == 1:
            raise torch.OutOfMemoryError("no room")
        return simple()[0].hold(model, context, [part])[0]

    made = contest.measure(model, Words(64), CASE, {Way("late", "", each(hold)): [0.5]}, "abc")
    assert {one.way for one in made} == {"full", "late"}


def test_a_context_that_does_not_fit_is_tried_with_less_room(tmp_path, monkeypatch, model):
    rooms = []

    def measure(_, __, case, *___, room):
        rooms.append(room)
        if len(rooms) < 3:
            raise torch.OutOfMemoryError("no room")
        return [row(seed=case.seed)]

    monkeypatch.setattr(worker.llm_model, "load", lambda *_: (model, Words(64)))
    monkeypatch.setattr(contest, "measure", measure)
    todo = worker.Todo(tmp_path, "cpu", "float32", tmp_path / "rows.jsonl", "abc", 1e12)
    worker.work(todo, [CASE], ["random"], [0.5])
    assert rooms == [*worker.ROOMS]
    assert [one.seed for one in rows.load(todo.out, "abc")] == [5]


def test_weak_rivals_are_left_out_of_later_contexts(tmp_path):
    todo = worker.Todo(tmp_path, "cpu", "float32", tmp_path, "abc", 0.0, few=5)
    names = ["ours", "random", "h2o, ours"]
    early, late = (
        [way.name for way in worker._ways(todo, Case("facts", 200, seed), names)] for seed in (4, 5)
    )
    assert early == ["ours", "random", "h2o, ours"]
    assert late == ["ours", "h2o, ours"]


def test_ways_and_a_first_seed_can_be_named_to_choose_by(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(program, "run", lambda _, cases, names, *__: ran.append((cases, names)))
    words = "--choose 2 --first 7 --contexts 0 --tasks facts --length 200 --out rows.jsonl --ways"
    ways = ["ours, horizon 512", "h2o, ours"]
    monkeypatch.setattr("sys.argv", ["llm", *words.split(), *ways, "--model", str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    program.main()
    cases = [Case("facts", 200, rows.ASIDE + 7), Case("facts", 200, rows.ASIDE + 8)]
    assert ran == [(cases, ways), ([], ways)]
    assert "best of 1 by pooled recall: ours, horizon 512" in capsys.readouterr().out


def test_contexts_are_taken_evenly():
    cases = program.evenly(
        program.Plan(["a"], [100, 200], [2, 4], 7), program.Plan(["b"], [9], [1], 0)
    )
    assert [(one.length, one.seed) for one in cases] == [
        (100, 7), (200, 7), (9, 0), (200, 8), (100, 8), (200, 9), (200, 10)
    ]  # fmt: skip


def test_matching_many_layers_at_once_is_matching_each(model, seed, monkeypatch):
    generator = torch.Generator().manual_seed(seed)
    context = read(model, torch.randint(2, 64, (1, 60), generator=generator))
    together = same_tokens.hold(model, context, 0.5)
    monkeypatch.setattr(same_tokens, "LAYERS", 1)
    for mine, alone in zip(together, same_tokens.hold(model, context, 0.5), strict=True):
        for name in ("keys", "values", "bias"):
            torch.testing.assert_close(getattr(mine, name), getattr(alone, name))


def test_matching_all_keys_changes_nothing(model, seed):
    generator = torch.Generator().manual_seed(seed)
    context = read(model, torch.randint(2, 64, (1, 60), generator=generator))
    whole = keep(context, [torch.ones(one.keys.shape[1:3]).bool() for one in context.layers])
    same = same_tokens.hold(model, context, 1.0)
    question = [((5, 6), (7,))]
    full, matched = ask(model, [whole, same], 60, question)
    assert matched[0].nll == pytest.approx(full[0].nll, abs=1e-3)
